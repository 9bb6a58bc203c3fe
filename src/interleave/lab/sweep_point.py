"""One point of a sweep: a policy under one load of one mixture of prompts, simulated. A pure function.

Torch-free, and all that a point depends on is in its setting and itself, so that any machine can compute it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from interleave.lab.arrivals import checked_positive
from interleave.lab.latency_model import LatencyModel
from interleave.lab.metrics import Limits
from interleave.lab.quantiles import distribution
from interleave.lab.request_table import RequestTable
from interleave.lab.simulate_serve import SATURATED_RATE, SATURATED_REQUESTS, served_rate
from interleave.lab.simulator import Served, simulate_table
from interleave.lab.slo_capacity import share_within
from interleave.lab.trace import TraceRow
from interleave.lab.workload import (
    PUBLISHED_NEW_TOKENS,
    PUBLISHED_PROMPT_LENS,
    scaled_block_tokens,
    scaled_chunk_budget,
    scaled_len,
)

ENGINE_OF = {"whole": "whole", "chunked": "chunked", "mixed": "mixed", "padded": "paged"}
"""Policy -> the rung of the ladder that it is simulated as."""
CUTTING = ("chunked", "mixed")
SHORT, LONG = PUBLISHED_PROMPT_LENS[:3], PUBLISHED_PROMPT_LENS[3:]
"""The published lengths in two kinds. At a share of 0.4 long ones this is the published draw."""
METRICS = (
    "served_rate", "goodput", "ttft_p50_s", "ttft_p90_s", "gap_p50_s", "gap_p90_s", "gap_max_s",
    "outside_share",
)  # fmt: skip
"""outside_share: of the steps, those with a count outside of what the model was fitted to."""
DIGITS = 4


class SweepPoint(NamedTuple):
    """policy: see ENGINE_OF; chunk_budget: null for a policy that cuts nothing; load: multiple of the rate that
    `chunked` serves at its default budget with everybody waiting; long_share: of prompts."""

    policy: str
    chunk_budget: int | None
    long_share: float
    load: float


@dataclass(frozen=True, slots=True)
class SweepSetting:
    """What all points of a sweep share. model: of step times; limits: what a request must meet for goodput."""

    model: LatencyModel
    num_requests: int
    limits: Limits
    seed: int = 0
    scale: int = 1
    max_rows: int = 32

    def __hash__(self) -> int:  # the model holds a dict
        return hash((self.num_requests, self.limits, self.seed, self.scale, self.max_rows))

    def served(self, policy: str, chunk_budget: int | None) -> Served:
        return Served(
            engine=ENGINE_OF[policy],
            chunk_budget=scaled_chunk_budget(self.scale) if chunk_budget is None else chunk_budget,
            max_rows=self.max_rows,
            block_tokens=scaled_block_tokens(self.scale),
        )


def mixture_rows(
    num_requests: int, rate: float, long_share: float, seed: int, scale: int
) -> Iterator[TraceRow]:
    """Poisson arrivals; each prompt long with a probability, each length of its kind as likely as the others."""
    checked_positive("rate", rate, "requests/s")
    lengths, gaps, due_s = random.Random(seed), random.Random(seed), 0.0
    for _ in range(num_requests):
        due_s += gaps.expovariate(rate)
        kind = LONG if lengths.random() < long_share else SHORT
        prompt = scaled_len(lengths.choice(kind), scale)
        yield TraceRow(due_s, prompt, scaled_len(lengths.choice(PUBLISHED_NEW_TOKENS), scale))


@lru_cache(maxsize=64)
def reference_rate(setting: SweepSetting, long_share: float) -> float:
    """Requests/s that `chunked` serves at its default budget with everybody waiting: a load of 1."""
    rows = mixture_rows(SATURATED_REQUESTS, SATURATED_RATE, long_share, setting.seed, setting.scale)
    table, _ = simulate_table(setting.served("chunked", None), rows, SATURATED_REQUESTS, setting.model)
    return served_rate(table)


def simulate_point(task: tuple[SweepSetting, SweepPoint]) -> dict[str, float]:
    """METRICS of a point, and its arrival rate, to DIGITS significant digits."""
    setting, point = task
    rate = point.load * reference_rate(setting, point.long_share)
    rows = mixture_rows(setting.num_requests, rate, point.long_share, setting.seed, setting.scale)
    served = setting.served(point.policy, point.chunk_budget)
    table, executor = simulate_table(served, rows, setting.num_requests, setting.model)
    found = {
        "rate": rate,
        **_metrics(table, setting),
        "outside_share": executor.num_outside / table.num_steps,
    }
    return {name: _rounded(value) for name, value in found.items()}


def _metrics(table: RequestTable, setting: SweepSetting) -> dict[str, float]:
    rate = served_rate(table)
    ttft = distribution((table.column("first_token_s") - table.column("due_s")).tolist())
    gaps = table.gaps.distribution()
    found = {
        "served_rate": rate,
        "goodput": rate * share_within(table, setting.limits),
        "ttft_p50_s": ttft["p50"],
        "ttft_p90_s": ttft["p90"],
        "gap_p50_s": gaps["p50"],
        "gap_p90_s": gaps["p90"],
        "gap_max_s": gaps["max"],
    }
    missing = [name for name, value in found.items() if value is None]
    if missing:
        raise ValueError(f"{setting.num_requests} requests are too few for {', '.join(missing)}")
    return {name: float(value) for name, value in found.items() if value is not None}


def _rounded(value: float) -> float:
    return float(np.format_float_positional(value, DIGITS, unique=False, fractional=False, trim="k"))
