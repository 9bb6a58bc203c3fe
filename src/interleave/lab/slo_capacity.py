"""The highest rate at which enough requests meet every limit, found by bisection. Torch-free."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from interleave.lab.deployment import Deployment
from interleave.lab.latency_model import LatencyModel
from interleave.lab.metrics import Limits
from interleave.lab.request_table import RequestTable
from interleave.lab.simulate_serve import draw_rows, saturated, worst_outside

ROUNDS = 10
"""Halvings of the interval between nothing and 1.25 times the saturated rate: to 0.12% of that."""


def share_within(table: RequestTable, limits: Limits) -> float:
    """Share of requests that meet every limit; one with a single token has no TPOT and no gap to miss."""
    first, last = table.column("first_token_s"), table.column("last_token_s")
    tokens = table.column("new_tokens")
    good = np.ones(table.num_requests, dtype=bool)
    if limits.ttft_s is not None:
        good &= first - table.column("due_s") <= limits.ttft_s
    if limits.tpot_s is not None:
        good &= (last - first <= limits.tpot_s * (tokens - 1)) | (tokens == 1)
    if limits.max_gap_s is not None:
        good &= (table.column("max_gap_s") <= limits.max_gap_s) | (tokens == 1)
    return float(good.mean())


def slo_capacity(
    deployment: Deployment,
    model: LatencyModel,
    limits: Limits,
    share: float,
    num_requests: int,
    seed: int = 0,
    scale: int = 1,
) -> dict[str, Any]:
    """Bisect the rate of Poisson arrivals of the published recipe, the same draw at every rate.

    share: of requests that must be within all limits, above 0 and at most 1 (ValueError otherwise).
    The rate is None where even a hundredth of the saturated rate is too much. limits_bind is False where
    the highest rate that was tried, a quarter more than what saturates, still meets the limits: they are
    loose, or the requests too few for a queue to show, and no capacity was found. Steps, and those outside of
    the model's fit, are counted over the runs at all rates that were tried.
    """
    if not 0 < share <= 1:
        raise ValueError(f"share must lie above 0 and be at most 1, got {share!r}")

    tried = {"num_steps": 0, "steps_outside_the_fit": 0}
    worst: dict[str, int] = {}

    def within(rate: float) -> float:
        rows = draw_rows(num_requests, rate, seed, scale)
        run = deployment.run(rows, num_requests, model)
        tried["num_steps"] += run.table.num_steps
        tried["steps_outside_the_fit"] += sum(executor.num_outside for executor in run.executors)
        for name, value in worst_outside(run.executors).items():
            worst[name] = max(value, worst.get(name, value))
        return share_within(run.table, limits)

    def found(rate: float | None, reached: float, bind: bool) -> dict[str, Any]:
        result = {"limits": asdict(limits), "share": share, "num_requests": num_requests, "saturated": full}
        ends = {"rate": rate, "share_reached": reached, "limits_bind": bind}
        return {**result, **ends, **tried, "outside": worst}

    full = saturated(deployment, model, seed, scale)["served_rate"]
    low, high = full / 100, 1.25 * full
    reached = within(low)
    if reached < share:
        return found(None, reached, True)
    if (at_top := within(high)) >= share:
        return found(high, at_top, False)
    for _ in range(ROUNDS):
        middle = (low + high) / 2
        if (at_middle := within(middle)) >= share:
            low, reached = middle, at_middle
        else:
            high = middle
    return found(low, reached, True)
