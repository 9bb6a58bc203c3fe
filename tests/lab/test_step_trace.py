"""The step-trace experiment: points follow parameters; steps, pieces and gaps tell one story."""

from __future__ import annotations

from collections import Counter

import pytest
from experiment_choices import CHOICES

from interleave.lab.experiments import step_trace as experiment
from interleave.lab.experiments.step_trace import PARTS, Params

SMALL = CHOICES["step_trace"].small


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
