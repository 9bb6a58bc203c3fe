"""The published A10's decode step taken apart, and its served rate if that step were shorter.

The calibrated model has three prices in a step of decodes: reading the weights, a price per row, and one per
position that is attended to; and a floor under the whole step. The reads stay whatever the host does. A price
per row buys next to no reading or arithmetic, so it is counted, with the floor, as what a host can save.
Simulated throughout; the mark of every figure made from this.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from interleave.engine.batched import StepOutcome
from interleave.lab.latency_model import LatencyModel
from interleave.lab.plan_features import Features
from interleave.lab.point_table import Row
from interleave.lab.published_calibration import steps_of
from interleave.lab.published_runs import PublishedRuns
from interleave.lab.simulator import Served, simulate_table
from interleave.lab.workload import workload

FULL_ROWS = 32
ENGINE = "chunked"
PEAK_RATES = (5.0, 6.0, 7.0, 9.0)
"""Arrival rates whose best served rate counts as the peak, as in the row p01."""


def full_decode_steps() -> list[Features]:
    """The steps of the disturbance in which all 32 rows decode and nothing else happens; no time matters."""
    steps = steps_of(ENGINE, "disturbance64", FULL_ROWS)
    return [step[0] for step in steps if len(step) == 1 and step[0].decode_rows == FULL_ROWS]


def decode_step_s(model: LatencyModel, steps: Sequence[Features]) -> float:
    """The median of these steps under a model."""
    return statistics.median(model.step_s([step]) for step in steps)


def step_parts_s(model: LatencyModel, steps: Sequence[Features]) -> dict[str, float]:
    """The median step by what it pays for. wait: what is left until the floor; the parts sum to the step."""
    step = sorted(steps, key=lambda one: model.step_s([one]))[len(steps) // 2]
    per, whole = model.per, model.step_s([step])
    parts = {
        "weights": max(model.weights_s, per.get("positions", 0.0) * step.positions),
        "keys and values": per.get("decode_attended", 0.0) * step.decode_attended,
        "rows": per.get("decode_rows", 0.0) * step.decode_rows,
        "forward": model.fixed_s + per.get("forwards", 0.0),
    }
    return {**parts, "wait": max(0.0, whole - sum(parts.values()))}


def without_host(model: LatencyModel, steps: Sequence[Features], step_s: float) -> LatencyModel:
    """The model with floor and price per row lowered by one factor, so that the median step takes step_s.

    The host's part of steps with a chunk shrinks with it. Raises ValueError where the reads alone take longer.
    """

    def with_factor(factor: float) -> LatencyModel:
        per = {**model.per, "decode_rows": model.per.get("decode_rows", 0.0) * factor}
        return replace(model, per=per, floor_s=model.floor_s * factor, fitted=None)

    least = decode_step_s(with_factor(0.0), steps)
    if not least <= step_s <= decode_step_s(model, steps):
        raise ValueError(
            f"a decode step of {step_s:g} s: reads alone take {least:.4g} s, and now it takes "
            f"{decode_step_s(model, steps):.4g} s"
        )
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if decode_step_s(with_factor(middle), steps) > step_s else (middle, high)
    return with_factor(low)


def floor_only(model: LatencyModel) -> LatencyModel:
    """The model without its floor: nothing else is cheaper."""
    return replace(model, floor_s=0.0, fitted=None)


@dataclass(frozen=True, slots=True)
class Change:
    """name: what was made cheaper (nothing, the floor, host, every part); runs: the published runs under it."""

    name: str
    runs: PublishedRuns


def changes(runs: PublishedRuns, steps_s: Sequence[float]) -> list[Change]:
    """As it is; without a floor; and for each step time the host's part, then every part, shrunk to give it.

    A step that the reads alone exceed is left out of the host's part.
    """
    steps, model = full_decode_steps(), runs.model
    found = [Change("nothing", runs), Change("floor", PublishedRuns(floor_only(model)))]
    least = decode_step_s(replace(floor_only(model), per={**model.per, "decode_rows": 0.0}), steps)
    found += [
        Change("host", PublishedRuns(without_host(model, steps, step_s)))
        for step_s in steps_s
        if least <= step_s <= decode_step_s(model, steps)
    ]
    return found + [Change("every part", runs.with_decode_step(step_s)) for step_s in steps_s]


def change_row(change: Change) -> Row:
    """Step, peak served rate and the rate at 7 requests/s of one change."""
    return {
        "kind": "change",
        "cheaper": change.name,
        "step_s": decode_step_s(change.runs.model, full_decode_steps()),
        "peak_rate": max(change.runs.served_rate(ENGINE, rate) for rate in PEAK_RATES),
        "rate_at_7": change.runs.served_rate(ENGINE, 7.0),
    }


def load_row(model: LatencyModel, rate: float, padding: Callable[[int], int]) -> Row:
    """What the steps of the published arrivals at one rate carry. padding: rows that a count is rounded up by.

    chunk_steps, chunk_time: shares of steps, and of the time in them, with a chunk forward; rows: decoding ones, over
    steps that decode.
    """
    counts = {"steps": 0, "chunk_steps": 0, "decode_steps": 0, "rows": 0, "padded": 0}
    seconds = {"all": 0.0, "chunk": 0.0}

    def hear(outcome: StepOutcome, _end_s: float) -> None:
        span_s, repeats = outcome.executed.span_s, outcome.executed.repeats
        assert span_s is not None
        took_s = repeats * (span_s[0] + span_s[1]) / 2
        counts["steps"] += repeats
        seconds["all"] += took_s
        if outcome.prefill_tokens:
            counts["chunk_steps"] += repeats
            seconds["chunk"] += took_s
        if outcome.decode_rows:
            counts["decode_steps"] += repeats
            counts["rows"] += repeats * outcome.decode_rows
            counts["padded"] += repeats * padding(outcome.decode_rows)

    trace = workload("published", rate=rate)
    table, _ = simulate_table(Served(engine=ENGINE), trace.rows, len(trace), model, on_step=hear)
    span = table.column("last_token_s").max() - table.column("due_s").min()
    return {
        "kind": "load",
        "rate": rate,
        "served_rate": float(table.num_completed / span),
        "chunk_steps": counts["chunk_steps"] / counts["steps"],
        "chunk_time": seconds["chunk"] / seconds["all"],
        "rows": counts["rows"] / counts["decode_steps"],
        "padded": counts["padded"] / (counts["rows"] + counts["padded"]),
    }
