"""The published A10 experiment, run by the simulator: each quantity that a published row states.

Knows which run answers which row. Does not know the published values.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, cached_property

import numpy as np

from interleave.engine.records import RunLog
from interleave.lab.latency_model import LatencyModel
from interleave.lab.metrics import gaps_s, incumbent_gaps
from interleave.lab.plan_features import Features
from interleave.lab.published_calibration import (
    LAYERS,
    mid_run_attended,
)
from interleave.lab.request_table import RequestTable
from interleave.lab.simulator import Served, simulate, simulate_table
from interleave.lab.workload import workload

KV_BYTES_PER_TOKEN = LAYERS * 2 * 2 * 128 * 2
"""Qwen2.5-1.5B in fp16: layers x (K and V) x 2 KV heads x 128 x 2 bytes."""
BLOCK_TOKENS = 64
SMALL_POOL_BLOCKS = 2**29 // (BLOCK_TOKENS * KV_BYTES_PER_TOKEN)


class PublishedRuns:
    """Simulated runs of the published engines under one model, each made once."""

    def __init__(self, model: LatencyModel) -> None:
        self.model = model
        self.closed: Callable[..., RunLog] = cache(self._closed)
        self.open: Callable[..., RequestTable] = cache(self._open)

    def _closed(
        self, engine: str, name: str, max_rows: int = 32, chunk_budget: int = 512, small: bool = False
    ) -> RunLog:
        served = Served(
            engine=engine,
            max_rows=max_rows,
            chunk_budget=chunk_budget,
            num_blocks=SMALL_POOL_BLOCKS if small else None,
        )
        return simulate(served, workload(name), self.model)

    def _open(self, engine: str, rate: float, small: bool = False) -> RequestTable:
        served = Served(engine=engine, num_blocks=SMALL_POOL_BLOCKS if small else None)
        trace = workload("published", rate=rate)
        return simulate_table(served, trace.rows, len(trace), self.model)[0]

    def wall_s(self, engine: str, name: str, **choices: int) -> float:
        return self.closed(engine, name, **choices).wall_s

    def first_token_s(self, engine: str, name: str) -> float:
        """Until the last request of a closed batch has its first token."""
        return max(record.token_times_s[0] for record in self.closed(engine, name).requests)

    def decode_rate(self, engine: str, name: str) -> float:
        """Tokens after each request's first, over the time after the last first token."""
        log = self.closed(engine, name)
        tokens = sum(len(record.tokens) - 1 for record in log.requests)
        return tokens / (log.wall_s - self.first_token_s(engine, name))

    def worst_gap_s(self, engine: str) -> float:
        return max(gap.gap_s for gap in incumbent_gaps(self.closed(engine, "disturbance64")))

    def median_gap_s(self, engine: str) -> float:
        log = self.closed(engine, "disturbance64")
        return statistics.median(gap for record in log.requests for gap in gaps_s(record))

    def full_decode_step_s(self, engine: str) -> float:
        """Median step in which all 32 rows decode and nothing else happens."""
        steps = self.closed(engine, "disturbance64").steps
        return statistics.median(
            s.end_s - s.start_s for s in steps if s.decode_rows == 32 and not s.prefill_tokens
        )

    def wall_over(self, chunk_budget: int) -> float:
        return self.wall_s("chunked", "mixed32", chunk_budget=chunk_budget) / self.wall_s(
            "chunked", "mixed32"
        )

    def served_rate(self, engine: str, rate: float, small: bool = False) -> float:
        table = self.open(engine, rate, small)
        span = table.column("last_token_s").max() - table.column("due_s").min()
        return float(table.num_completed / span)

    def least_of_peak(self, engine: str, rates: Sequence[float]) -> float:
        """The lowest served rate at these arrival rates over the highest."""
        served = [self.served_rate(engine, rate) for rate in rates]
        return min(served) / max(served)

    def queue_wait_p50_s(self, engine: str, rate: float) -> float:
        table = self.open(engine, rate)
        return float(np.median(table.column("admit_s") - table.column("due_s")))

    def tpot_p95_s(self, engine: str, rate: float) -> float:
        """Over requests with more than one token."""
        table = self.open(engine, rate)
        first, last, new = (table.column(name) for name in ("first_token_s", "last_token_s", "new_tokens"))
        several = new > 1
        return float(np.quantile((last - first)[several] / (new[several] - 1), 0.95))

    def attention_call_ms(self) -> float:
        step = Features(decode_attended=mid_run_attended())
        return 1e3 * self.model.per.get("decode_attended", 0.0) * step.decode_attended / LAYERS

    @cached_property
    def faster_decode(self) -> PublishedRuns:
        """The same engine with a decode step of 15 ms, the published prediction's condition."""
        return self.with_decode_step(0.015)

    def with_decode_step(self, step_s: float) -> PublishedRuns:
        """The same engine with a decode step of so many seconds: floor and decode work shrink by one factor."""
        factor = step_s / self.full_decode_step_s("chunked")
        per = {
            name: value * factor if name.startswith("decode") else value
            for name, value in self.model.per.items()
        }
        model = self.model
        return PublishedRuns(
            replace(
                model,
                per=per,
                floor_s=model.floor_s * factor,
                weights_s=model.weights_s * factor,
                fitted=None,
            )
        )


SPEAKS: dict[str, Callable[[PublishedRuns], float]] = {
    "c01": lambda runs: runs.wall_s("chunked", "mixed32"),
    "c02": lambda runs: runs.wall_s("paged", "mixed32"),
    "c03": lambda runs: runs.first_token_s("paged", "mixed32"),
    "c04": lambda runs: runs.decode_rate("paged", "mixed32"),
    "c05": lambda runs: runs.wall_s("chunked", "uniform32"),
    "c06": lambda runs: runs.wall_s("paged", "uniform32"),
    "c07": lambda runs: runs.decode_rate("paged", "uniform32"),
    "c08": lambda runs: 1e3 * runs.worst_gap_s("chunked"),
    "c09": lambda runs: 1e3 * runs.worst_gap_s("paged"),
    "c10": lambda runs: runs.median_gap_s("chunked") / runs.median_gap_s("paged"),
    "c11": lambda runs: 1e3 * runs.full_decode_step_s("chunked"),
    "c12": lambda runs: runs.attention_call_ms(),
    "c14": lambda runs: runs.wall_over(128),
    "c15": lambda runs: runs.wall_over(1024),
    "c16": lambda runs: 5440 / runs.wall_s("continuous", "mixed32"),
    "o01": lambda runs: runs.served_rate("chunked", 7.0),
    "o02": lambda runs: max(runs.served_rate("chunked", rate) for rate in (5.0, 6.0, 7.0)),
    "o03": lambda runs: runs.queue_wait_p50_s("chunked", 3.0),
    "o04": lambda runs: runs.served_rate("paged", 5.0),
    "o05": lambda runs: runs.served_rate("paged", 7.0),
    "o06": lambda runs: runs.queue_wait_p50_s("paged", 3.0),
    "o07": lambda runs: runs.served_rate("paged", 2.0, small=True),
    "o08": lambda runs: runs.served_rate("chunked", 2.0, small=True),
    "o09": lambda runs: runs.served_rate("paged", 3.0, small=True),
    "o10": lambda runs: runs.served_rate("chunked", 3.0, small=True),
    "p01": lambda runs: max(runs.faster_decode.served_rate("chunked", rate) for rate in (5.0, 6.0, 7.0, 9.0)),
    "p02": lambda runs: runs.served_rate("chunked", 7.0),
    "p03": lambda runs: runs.queue_wait_p50_s("chunked", 3.0),
    "p04": lambda runs: 1e3 * runs.worst_gap_s("chunked"),
    "p05": lambda runs: runs.wall_s("chunked", "mixed32"),
    "p06": lambda runs: runs.least_of_peak("chunked", (5.0, 6.0, 7.0)),
    "p07": lambda runs: runs.wall_s("chunked", "uniform32") / runs.wall_s("paged", "uniform32"),
    "p08": lambda runs: runs.served_rate("paged", 4.0),
    "p09": lambda runs: runs.decode_rate("paged", "mixed32"),
    "p10": lambda runs: runs.queue_wait_p50_s("paged", 2.0),
    "k01": lambda runs: 1.0 - runs.wall_s("chunked", "uniform32") / runs.wall_s("paged", "uniform32"),
    "k02": lambda runs: 1e3 * (runs.full_decode_step_s("chunked") - runs.model.weights_s),
    "k06": lambda runs: 1e3 * runs.worst_gap_s("whole"),
    "k09": lambda runs: runs.tpot_p95_s("whole", 3.0) / runs.tpot_p95_s("chunked", 3.0),
    "k10": lambda runs: 1e3 * runs.tpot_p95_s("chunked", 3.0),
}
"""Row id -> the simulated figure, in the row's unit, or as WORDS says.

Without one: c13 (a kernel that no engine here uses), k03, k07 and k08 (bytes and FLOPs, no times), k04 (rounding to
blocks is arithmetic on the draw, the same under any step times) and k05 (a step of a model and a device of another
size, which no price of this device speaks to).
"""
WORDS: dict[str, tuple[str, str]] = {
    "p06": ("served rate at rates 5 to 7 over its peak, least", "ratio"),
    "p07": ("total wall time over paged", "ratio"),
    "k09": ("tail TPOT (p95 at rate 3) over chunked", "ratio"),
    "k10": ("tail TPOT (p95 at rate 3; 400 requests support no p99)", "ms"),
}
"""Row id -> what is simulated, and its unit, where the row's own words name no number, or another one."""
