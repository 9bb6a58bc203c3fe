"""Figures of the published engines that nobody printed: what the calibrated simulator says of them.

`paged` and `continuous` (and `chunked` where it is the natural partner): queue waits, decode rates, wall
times relative to each other, admission groups and their padding, spikes by group size, few rows, small
pool. The published value of each is null.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import NamedTuple

from interleave.lab.metrics import incumbent_gaps, spikes
from interleave.lab.published_runs import BLOCK_TOKENS, SMALL_POOL_BLOCKS, PublishedRuns
from interleave.lab.workload import workload

ENGINES = ("continuous", "paged")
WITH_CHUNKED = (*ENGINES, "chunked")


class Figure(NamedTuple):
    engine: str
    workload: str
    quantity: str
    unit: str
    simulated: float | None


def unmeasured(runs: PublishedRuns) -> Iterator[Figure]:
    """Every figure, in a fixed order; what was added later comes last, since a place is an id."""
    yield from _open(runs)
    yield from _closed(runs)
    yield from _spikes(runs)
    yield _slots(runs)


def _open(runs: PublishedRuns) -> Iterator[Figure]:
    for engine in ENGINES:
        for rate in (2.0, 3.0, 4.0):
            where = f"400 Poisson arrivals rate {rate:g}"
            table = runs.open(engine, rate)
            yield Figure(engine, where, "queue wait p50", "s", runs.queue_wait_p50_s(engine, rate))
            yield Figure(engine, where, "served rate", "requests/s", runs.served_rate(engine, rate))
            admissions = sum(table.groups.values())
            yield Figure(
                engine, where, "admission group, mean size", "requests", table.num_requests / admissions
            )
            yield Figure(engine, where, "admission group, largest", "requests", float(max(table.groups)))
            yield Figure(
                engine,
                where,
                "padded positions per useful prompt token",
                "ratio",
                table.padded_tokens / table.prefill_tokens,
            )


def _closed(runs: PublishedRuns) -> Iterator[Figure]:
    for engine in ENGINES:
        for name, where in (
            ("mixed32", "closed mixed 32 rows"),
            ("uniform32", "closed uniform 256 x 32 rows"),
        ):
            yield Figure(engine, where, "decode rate", "tokens/s", runs.decode_rate(engine, name))
            over = runs.wall_s(engine, name) / runs.wall_s("chunked", name)
            yield Figure(engine, where, "total wall time over chunked", "ratio", over)
    for engine in WITH_CHUNKED:
        yield Figure(
            engine, "closed 64 requests through 8 rows", "total wall time", "s",
            runs.wall_s(engine, "disturbance64", max_rows=8),
        )  # fmt: skip
    for engine in ("paged", "chunked"):
        yield Figure(
            engine, "closed 64 requests in a pool of 0.5 GiB", "total wall time", "s",
            runs.wall_s(engine, "disturbance64", small=True),
        )  # fmt: skip


def _slots(runs: PublishedRuns) -> Figure:
    """`continuous` in the memory of the small pool: it has no blocks, so fewer slots of the longest request's width."""
    name = "disturbance64"
    longest = max(row.prompt_tokens + row.new_tokens for row in workload(name).rows)
    slots = SMALL_POOL_BLOCKS * BLOCK_TOKENS // longest
    return Figure(
        "continuous", f"closed 64 requests, 0.5 GiB in {slots} slots", "total wall time", "s",
        runs.wall_s("continuous", name, max_rows=slots),
    )  # fmt: skip


def _spikes(runs: PublishedRuns) -> Iterator[Figure]:
    """Gaps above three times the baseline, by the size of the group admitted in or before that step."""
    for engine in ENGINES:
        log = runs.closed(engine, "disturbance64")
        admitted = {step.step: step.admitted for step in log.steps}
        gaps = incumbent_gaps(log)
        baseline = statistics.median(gap.gap_s for gap in gaps)
        yield Figure(engine, "disturbance 64 requests through 32 rows", "baseline gap", "ms", 1e3 * baseline)
        by_group: dict[int, list[float]] = {}
        for gap in spikes(gaps):
            by_group.setdefault(admitted.get(gap.step - 1, 0), []).append(gap.gap_s)
        for size in sorted(by_group):
            yield Figure(
                engine,
                "disturbance 64 requests through 32 rows",
                f"spike after a group of {size}, median",
                "ms",
                1e3 * statistics.median(by_group[size]),
            )
