"""Ratios of this engine to its peers from the rows of paired runs, and the lines that print them. Torch-free."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from interleave.lab.peers.engines import OURS, PEERS
from interleave.lab.peers.measure import check_line
from interleave.lab.point_table import Row
from interleave.lab.roofline import Ceilings, batch_work, decode_work, floor_s
from interleave.model.config import ModelConfig

DECODE_CONTEXT = 256
"""Positions that a row of the decode workloads holds in the middle of its timed steps."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """One thing that is compared: a column of the rows of one workload."""

    workload: str
    column: str
    label: str


QUANTITIES = (
    Quantity("peer-mixed32", "wall_s", "mixed batch of 32, wall"),
    Quantity("peer-uniform32", "wall_s", "uniform batch of 32, wall"),
    Quantity("peer-decode1", "step_s", "decode step, 1 row"),
    Quantity("peer-decode8", "step_s", "decode step, 8 rows"),
    Quantity("peer-decode32", "step_s", "decode step, 32 rows"),
    Quantity("peer-disturb", "worst_gap_s", "long prompt arrives, worst gap"),
    Quantity("peer-disturb", "median_gap_s", "long prompt arrives, median gap"),
)


@dataclass(frozen=True, slots=True)
class Ratio:
    """This engine's value over a peer's: the median of the paired ratios, their range and number.

    ours_s, theirs_s: medians of each side; below 1 this engine is faster. floor_s: of this work on this
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
        for peer in PEERS:
            of_pair = [r for r in rows if r["pair"] == peer and r["workload"] == quantity.workload]
            ours = {r["run"]: r[quantity.column] for r in of_pair if r["engine"] == OURS}
            theirs = {r["run"]: r[quantity.column] for r in of_pair if r["engine"] == peer}
            pairs = [
                (float(ours[run] or 0), float(theirs[run] or 0))
                for run in ours
                if ours[run] is not None and theirs.get(run) is not None
            ]
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


def floors(
    lengths: Mapping[str, Sequence[tuple[int, int]]], config: ModelConfig, ceilings: Ceilings
) -> dict[Quantity, float]:
    """The floors of walls and decode steps; a gap has none, since it depends on what shares the step.

    lengths: (prompt, new tokens) of each workload's requests. Weights and cache in float32.
    """
    found = {}
    for quantity in QUANTITIES:
        rows = lengths.get(quantity.workload)
        if rows and quantity.column == "wall_s":
            found[quantity] = floor_s(batch_work(rows), config, ceilings)
        elif rows and quantity.column == "step_s":
            found[quantity] = floor_s(decode_work(len(rows), DECODE_CONTEXT), config, ceilings)
    return found


def report_lines(document: Mapping[str, Any]) -> list[str]:
    """The ratio table, then versions, flags, checks, absences and failures of a peers document."""
    lines = [
        f"{document['device']}, {document['threads']} threads; this engine: {_described(document['engines'][OURS])}"
        if OURS in document["engines"]
        else f"{document['device']}, {document['threads']} threads; no peer was run",
        "",
    ]
    if document["ratios"]:
        lines.append(
            f"{'work':34} {'peer':12} {'ours':>9} {'peer':>9} {'ratio':>6} {'range':>13} {'n':>3} {'reached':>9}"
        )
    for ratio in document["ratios"]:
        reached = "-" if ratio["floor_s"] is None else f"{ratio['floor_s'] / ratio['ours_s']:.0%}"
        lines.append(
            f"{ratio['label']:34} {ratio['peer']:12} {_time(ratio['ours_s']):>9} {_time(ratio['theirs_s']):>9} "
            f"{ratio['ratio']:6.2f} {ratio['low']:6.2f}-{ratio['high']:.2f} {ratio['n']:3} {reached:>9}"
        )
    if any(ratio["floor_s"] is not None for ratio in document["ratios"]):
        lines.append("reached: what this machine needs at least for the work in float32, over our time")
    lines.append("")
    checks = document["checks"]
    for name, engine in document["engines"].items():
        if name == OURS:
            continue
        lines.append(f"{name}: {_described(engine)}")
        if name in checks and OURS in checks:
            lines.append(f"{name}: {check_line(checks[OURS], checks[name])}")
    lines += [f"{name}: failed: {reason}" for name, reason in document["failures"].items()]
    lines += [f"{name}: absent: {reason}" for name, reason in document["absent"].items()]
    return lines


def _described(engine: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in engine["versions"].items())
    flags = ", ".join(f"{name}={value}" for name, value in engine["flags"].items())
    return f"{versions} ({flags})"


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 2 else f"{seconds * 1e3:.1f} ms"
