"""The step-trace experiment: points follow parameters; steps, pieces and gaps tell one story."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from interleave.lab.experiments import step_trace as experiment
from interleave.lab.experiments.step_trace import PARTS, PROFILES, Params

SMALL: dict[str, Any] = {"model": "tiny", "rows": (3,), "num_requests": 8}


def configs(**changed: Any) -> list[dict[str, Any]]:
    return [dict(point.config) for point in experiment.points(Params(**{**SMALL, **changed}))]


CHANGES: list[tuple[str, Any]] = [
    ("model", "smollm2"),
    ("dtype", "bf16"),
    ("device", "cuda"),
    ("scale", 8),
    ("engines", ("paged",)),
    ("rows", (3, 4)),
    ("num_requests", 9),
    ("chunk_budget", 7),
    ("seed", 5),
]


@pytest.mark.parametrize(("name", "value"), CHANGES)
def test_every_parameter_changes_what_is_recorded(name: str, value: Any) -> None:
    assert configs(**{name: value}) != configs()


def test_every_parameter_is_tried_above() -> None:
    assert {name for name, _ in CHANGES} == set(Params.model_fields)


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_profiles_are_valid_and_estimated(profile: str) -> None:
    params = Params(**PROFILES[profile])
    seconds = experiment.estimate_s(params)
    assert len(seconds) == len(experiment.points(params))
    assert min(seconds) > 0


@pytest.mark.parametrize("engine", ["static", "continuous", "paged", "whole", "chunked", "mixed"])
def test_steps_pieces_and_gaps_tell_one_story(engine: str) -> None:
    params = Params(**SMALL, engines=(engine,))
    (point,) = experiment.points(params)
    rows = experiment.measure(point, experiment.prepare(params), {})
    kinds = {kind: [row for row in rows if row["kind"] == kind] for kind in ("run", "step", "piece", "gap")}
    assert sum(map(len, kinds.values())) == len(rows)
    (run,) = kinds["run"]
    trace = experiment._trace(point.config)
    # Every prompt position and every later token is a piece of some step, exactly once.
    computed: Counter[str] = Counter()
    for piece in kinds["piece"]:
        computed[piece["phase"]] += piece["tokens"]
    assert computed["prefill"] == trace.num_prompt_tokens == sum(s["prefill_tokens"] for s in kinds["step"])
    assert computed["decode"] == trace.num_new_tokens - len(trace)
    assert computed["decode"] == sum(step["decode_rows"] for step in kinds["step"])
    assert (computed["held"] > 0) == (engine == "static")  # rows that ended and were computed on
    # Parts fill their steps, steps fill the run.
    for step in kinds["step"]:
        assert sum(step[f"{part}_s"] for part in PARTS) == pytest.approx(step["end_s"] - step["start_s"])
    assert kinds["step"][-1]["end_s"] <= run["wall_s"]
    numbers = {step["step"] for step in kinds["step"]}
    assert {row["step"] for kind in ("piece", "gap") for row in kinds[kind]} <= numbers
    assert {row["rows"] for row in rows} == {3}
    assert max(step["running"] for step in kinds["step"]) <= 3


def test_chunks_are_pieces_of_at_most_the_budget() -> None:
    params = Params(**SMALL, engines=("chunked",), chunk_budget=5)
    (point,) = experiment.points(params)
    rows = experiment.measure(point, experiment.prepare(params), {})
    chunks = [row["tokens"] for row in rows if row["kind"] == "piece" and row["phase"] == "prefill"]
    assert max(chunks) == 5
