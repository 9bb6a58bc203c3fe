"""The chunk-budget experiment: points follow parameters, and a point measures what it says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from experiment_choices import CHOICES

from interleave.lab.experiments import chunk_budget as experiment
from interleave.lab.experiments.chunk_budget import Params
from interleave.lab.latency_file import model_to_json
from interleave.lab.latency_model import LatencyModel

SMALL = CHOICES["chunk_budget"].small


@pytest.fixture(scope="module")
def rows() -> dict[str, list[dict[str, Any]]]:
    """The rows of every point, by its label."""
    params = Params(**SMALL)
    setting = experiment.prepare(params)
    found: dict[str, list[dict[str, Any]]] = {}
    for point in experiment.points(params):
        found[point.label] = experiment.measure(point, setting, found)
    return found


@pytest.mark.parametrize("engine", ["chunked", "mixed"])
def test_a_larger_budget_takes_fewer_steps(engine: str, rows: dict[str, list[dict[str, Any]]]) -> None:
    (small,), (large,) = rows[f"{engine}, budget 4"], rows[f"{engine}, budget 16"]
    assert (small["budget"], large["budget"]) == (4, 16)
    assert small["steps"] > large["steps"]
    assert 0 < small["gap_p50_s"] <= small["worst_gap_s"] <= small["wall_s"]


def test_a_target_is_told_in_decode_steps(rows: dict[str, list[dict[str, Any]]]) -> None:
    (model,) = rows["step-time model"]
    assert model["engine"] == "mixed"
    assert model["fit_steps"] > 0
    assert model["decode_step_s"] > 0
    for steps in (1.5, 3.0):
        (run,) = rows[f"mixed, {steps:g} decode steps"]
        assert run["target_s"] == pytest.approx(steps * model["decode_step_s"])
        assert 1 <= run["chunk_p50"] <= run["budget"] == 16
        assert 0 <= run["late_share"] <= 1


def test_the_model_decides_how_large_a_chunk_may_be() -> None:
    """With positions that cost nothing every target takes the largest chunk, with dear ones the smallest."""
    params = Params(**SMALL, decode_steps=(2.0,))
    setting = experiment.prepare(params)
    (point,) = (point for point in experiment.points(params) if point.config["kind"] == "target")
    chunks = []
    for per_position_s in (0.0, 1.0):
        model = LatencyModel("additive", {"positions": per_position_s}, fixed_s=0.1)
        earlier = {"decode_step_s": 0.2, "model": json.dumps(model_to_json(model))}
        (run,) = experiment.measure(point, setting, {experiment.MODEL_LABEL: [earlier]})
        chunks.append(run["chunk_p50"])
    assert chunks[0] > chunks[1] == 1


def test_engines_that_cannot_follow_a_target_get_none() -> None:
    kinds = {point.config["kind"] for point in experiment.points(Params(engines=("recorded",)))}
    assert kinds == {"serve", "step", "passes"}
    assert not any(point.config["kind"] == "model" for point in experiment.points(Params(decode_steps=())))


def test_a_single_forward_is_one_step(rows: dict[str, list[dict[str, Any]]]) -> None:
    found = rows["one step of 8"]
    assert [(row["repeat"], row["steps"], row["tokens"]) for row in found] == [(1, 1, 8), (2, 1, 8)]
    assert all(row["prefill_s"] > 0 for row in found)


@pytest.mark.parametrize("pieces", [1, 2, 6, 24])
def test_a_long_prompt_is_cut_into_equal_pieces(pieces: int, rows: dict[str, list[dict[str, Any]]]) -> None:
    found = rows[f"96 in {pieces} pieces"]
    assert [(row["steps"], row["chunk"], row["tokens"]) for row in found] == [(pieces, 96 // pieces, 96)] * 2


def test_budgets_divide_by_every_scale() -> None:
    with pytest.raises(ValueError, match="multiple of 16"):
        Params(budgets=(100,))
