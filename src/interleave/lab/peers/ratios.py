"""Ratios of this engine to its peers from the rows of paired runs, and the floors of the work. Torch-free."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from interleave.lab.peers.engines import ADAPTIVE, OURS, PEERS
from interleave.lab.point_table import Row
from interleave.lab.roofline import Ceilings, batch_work, decode_work, floor_s
from interleave.model.config import ModelConfig

DECODE_CONTEXT = 256
"""Positions that a row of the decode workloads holds in the middle of its timed steps."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """One thing that is compared: a column of the rows of one workload.

    side: which of our engines. against: a fixed engine, None for every peer.
    """

    workload: str
    column: str
    label: str
    side: str = OURS
    against: str | None = None


QUANTITIES = (
    Quantity("peer-mixed32", "wall_s", "mixed batch of 32, wall"),
    Quantity("peer-uniform32", "wall_s", "uniform batch of 32, wall"),
    Quantity("peer-decode1", "step_s", "decode step, 1 row"),
    Quantity("peer-decode8", "step_s", "decode step, 8 rows"),
    Quantity("peer-decode32", "step_s", "decode step, 32 rows"),
    Quantity("peer-prefill", "wall_s", "long prompt alone, prefill"),
    Quantity("peer-disturb", "worst_gap_s", "long prompt arrives, worst gap"),
    Quantity("peer-disturb", "median_gap_s", "long prompt arrives, median gap"),
    Quantity("peer-disturb", "worst_gap_s", "the same, chunks by a target, worst gap", ADAPTIVE),
    Quantity("peer-disturb", "median_gap_s", "the same, chunks by a target, median gap", ADAPTIVE),
    Quantity("peer-disturb", "wall_s", "chunks by a target over fixed ones, wall", ADAPTIVE, OURS),
)


@dataclass(frozen=True, slots=True)
class Ratio:
    """This engine's value over a peer's: the median of the paired ratios, their range and number.

    peer: the engine below the line, one of ours where chunks by a target are set against fixed ones.
    ours_s, theirs_s: medians of each side; below 1 ours is faster. floor_s: of this work on this
    machine, None where it is not measured.
    """

    quantity: Quantity
    peer: str
    ratio: float
    low: float
    high: float
    n: int
    ours_s: float
    theirs_s: float
    floor_s: float | None = None


def ratios(rows: Sequence[Row], floors: Mapping[Quantity, float] | None = None) -> list[Ratio]:
    """Every ratio that the rows support, quantity by quantity, peers in the order of PEERS."""
    found = []
    for quantity in QUANTITIES:
        for peer in PEERS if quantity.against is None else (quantity.against,):
            pairs = _pairs(rows, quantity, peer)
            if not pairs:
                continue
            each = [a / b for a, b in pairs]
            found.append(
                Ratio(
                    quantity,
                    peer,
                    statistics.median(each),
                    min(each),
                    max(each),
                    len(each),
                    statistics.median(a for a, _ in pairs),
                    statistics.median(b for _, b in pairs),
                    (floors or {}).get(quantity),
                )
            )
    return found


def _pairs(rows: Sequence[Row], quantity: Quantity, peer: str) -> list[tuple[float, float]]:
    """(our value, the peer's) of every run in which both took part; of all pairs, where both are ours."""
    chosen = [r for r in rows if r["workload"] == quantity.workload and r[quantity.column] is not None]
    if quantity.against is None:
        chosen = [r for r in chosen if r["pair"] == peer]
    ours = {(r["pair"], r["run"]): r[quantity.column] for r in chosen if r["engine"] == quantity.side}
    theirs = {(r["pair"], r["run"]): r[quantity.column] for r in chosen if r["engine"] == peer}
    return [(float(ours[run] or 0), float(theirs[run] or 0)) for run in ours if run in theirs]


def floors(
    lengths: Mapping[str, Sequence[tuple[int, int]]],
    config: ModelConfig,
    ceilings: Ceilings,
    weight_bytes: int | None = None,
) -> dict[Quantity, float]:
    """The floors of walls and decode steps; a gap has none, since it depends on what shares the step.

    lengths: (prompt, new tokens) of each workload's requests, all there from the start. weight_bytes: of
    what a step of this engine reads, as stored; None takes float32. The cache is float32.
    """
    found = {}
    for quantity in QUANTITIES:
        rows = lengths.get(quantity.workload) if quantity.against is None else None
        if rows and quantity.column == "wall_s":
            found[quantity] = floor_s(batch_work(rows), config, ceilings, weight_bytes=weight_bytes)
        elif rows and quantity.column == "step_s":
            work = decode_work(len(rows), DECODE_CONTEXT)
            found[quantity] = floor_s(work, config, ceilings, weight_bytes=weight_bytes)
    return found
