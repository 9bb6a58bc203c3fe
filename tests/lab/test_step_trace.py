"""The step-trace experiment: points follow parameters; steps, pieces and gaps tell one story."""

from __future__ import annotations

from collections import Counter

import pytest
from experiment_choices import CHOICES

from interleave.engine.ladder import ENGINES
from interleave.lab.experiments import step_trace as experiment
from interleave.lab.experiments.step_trace import PARTS, PROFILES, Params

SMALL = CHOICES["step_trace"].small


@pytest.mark.parametrize("engine", ["static", "continuous", "paged", "whole", "chunked", "mixed", "recorded"])
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


@pytest.mark.parametrize("profile", ["cpu", "full"])
def test_a_committed_tier_traces_every_batched_engine(profile: str) -> None:
    batched = [name for name, spec in ENGINES.items() if spec.kv in ("slots", "blocks")]
    points = experiment.points(Params(**PROFILES[profile]))
    for rows in (8, 32):
        assert [point.config["engine"] for point in points if point.config["rows"] == rows] == batched


def test_a_static_batch_is_expected_to_take_what_its_largest_request_takes() -> None:
    """Six requests through three rows: two batches."""
    params = Params(**{**SMALL, "num_requests": 6}, engines=("static",))
    (point,) = experiment.points(params)
    rows = experiment._trace(point.config).rows
    halves = (rows[:3], rows[3:])
    positions = sum(3 * max(row.prompt_tokens for row in half) for half in halves)
    steps = sum(max(row.new_tokens for row in half) for half in halves)
    assert experiment.estimate_s(params) == [pytest.approx(positions * 0.0025 + steps * 0.06)]
