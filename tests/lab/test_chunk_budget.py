"""The chunk-budget experiment: points follow parameters, and a point measures what it says."""

from __future__ import annotations

from typing import Any

import pytest
from experiment_choices import CHOICES

from interleave.lab.experiments import chunk_budget as experiment
from interleave.lab.experiments.chunk_budget import Params

SMALL = CHOICES["chunk_budget"].small


@pytest.fixture(scope="module")
def rows() -> dict[str, list[dict[str, Any]]]:
    """The rows of every point, by its label."""
    params = Params(**SMALL)
    setting = experiment.prepare(params)
    return {point.label: experiment.measure(point, setting, {}) for point in experiment.points(params)}


@pytest.mark.parametrize("engine", ["chunked", "mixed"])
def test_a_larger_budget_takes_fewer_steps(engine: str, rows: dict[str, list[dict[str, Any]]]) -> None:
    (small,), (large,) = rows[f"{engine}, budget 4"], rows[f"{engine}, budget 16"]
    assert (small["budget"], large["budget"]) == (4, 16)
    assert small["steps"] > large["steps"]
    assert 0 < small["gap_p50_s"] <= small["worst_gap_s"] <= small["wall_s"]


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
