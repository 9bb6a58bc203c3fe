"""Where chunking pays: latencies of two policies over the share of long prompts and the load, simulated.

The step-time model is fitted to steps of measured runs; scheduler and serving loop are the engines' own.
Loads are multiples of the rate that the reference engine serves of the same mix when all of it waits. Torch-free.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from interleave.lab.latency_model import LatencyModel
from interleave.lab.long_prompts import long_prompts
from interleave.lab.plan_features import Features
from interleave.lab.point_table import Row
from interleave.lab.simulator import Served, simulate_table
from interleave.lab.step_fit import best_fit
from interleave.lab.step_traces import TimedStep, fit_steps
from interleave.lab.trace import Trace

SHARES = (0.0, 0.05, 0.1, 0.2, 0.35, 0.6, 1.0)
LOADS = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9)
LATENCIES = ("max_gap_s", "worst_gap_s", "ttft_short_s", "ttft_long_s")
COUNTS = ("forwards", "positions", "prefill_attended", "decode_rows", "decode_attended")
"""The counts of a packed forward; the others are zero without padding, slots and copies."""


def forward_rows(steps: Iterable[TimedStep]) -> list[Row]:
    """A row per forward: its step, the seconds of that step, and the counts."""
    return [
        {"step": number, "step_s": step.seconds, **{name: getattr(forward, name) for name in COUNTS}}
        for number, step in enumerate(steps)
        for forward in step.forwards
    ]


def steps_of(rows: Iterable[Mapping[str, Any]]) -> list[TimedStep]:
    """`forward_rows` of one run, read back."""
    steps: dict[int, tuple[float, list[Features]]] = {}
    for row in rows:
        counts = Features(**{name: int(row[name]) for name in COUNTS})
        steps.setdefault(int(row["step"]), (float(row["step_s"]), []))[1].append(counts)
    return [TimedStep(forwards, seconds) for seconds, forwards in steps.values()]


def step_model(steps: Sequence[TimedStep]) -> tuple[LatencyModel, float]:
    """(the best of the overlap hypotheses, its relative rms error), with no limit on what it is asked for."""
    best = best_fit(fit_steps(steps))
    return replace(best.model, fitted=None), best.rms


def latencies(requests: Iterable[Mapping[str, float | None]]) -> dict[str, float | None]:
    """Medians over requests: longest gap, TTFT of short and of long prompts; and the longest gap of all.

    A request: ttft_s, max_gap_s (None below two tokens), long (true or false). None for none of a kind.
    """
    requests = list(requests)

    def middle(name: str, chosen: Callable[[Mapping[str, float | None]], bool]) -> float | None:
        values = [value for one in requests if chosen(one) and (value := one[name]) is not None]
        return median(values) if values else None

    return {
        "max_gap_s": middle("max_gap_s", lambda one: True),
        "worst_gap_s": max((gap for one in requests if (gap := one["max_gap_s"]) is not None), default=None),
        "ttft_short_s": middle("ttft_s", lambda one: not one["long"]),
        "ttft_long_s": middle("ttft_s", lambda one: bool(one["long"])),
    }


def simulated(served: Served, trace: Trace, model: LatencyModel, longest: int) -> dict[str, float | None]:
    """`latencies` and served rate of a trace, simulated; a prompt of `longest` tokens or more is long."""
    table, _ = simulate_table(served, trace.rows, len(trace), model)
    columns = {
        name: np.asarray(table.column(name), dtype=float)
        for name in ("due_s", "first_token_s", "max_gap_s", "prompt_tokens", "new_tokens")
    }
    requests = [
        {
            "ttft_s": first - due,
            "max_gap_s": gap if new > 1 and math.isfinite(gap) else None,
            "long": float(prompt >= longest),
        }
        for due, first, gap, prompt, new in zip(*columns.values(), strict=True)
    ]
    span_s = table.column("last_token_s").max() - columns["due_s"].min()
    return {**latencies(requests), "served_rate": float(table.num_completed / span_s)}


def cells(
    policies: Mapping[str, Served],
    reference: Served,
    model: LatencyModel,
    *,
    shares: Iterable[float],
    loads: Iterable[float],
    scale: int,
    num_requests: int,
    seed: int,
    longest: int,
) -> list[Row]:
    """A row per share, load and policy."""
    found: list[Row] = []
    loads = list(loads)
    for share in shares:
        size: dict[str, Any] = {"scale": scale, "num_requests": num_requests, "seed": seed}
        full = simulated(reference, long_prompts(share, **size), model, longest)["served_rate"]
        assert full is not None
        for load in loads:
            trace = long_prompts(share, rate=load * full, **size)
            for name, served in policies.items():
                facts: Row = {"share": share, "load": load, "rate": load * full, "policy": name}
                found.append({**facts, **simulated(served, trace, model, longest)})
    return found
