"""What this engine has set itself, as bounds on ratios and on figures of its own, and who meets them. Torch-free.

`must` is what a serious engine owes its reader; `aim` is what this one tries for. Both were fixed before
anything was measured against them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from interleave.lab.peers.engines import ADAPTIVE, OURS

WALLS_AND_STEPS = ("peer-mixed32", "peer-uniform32", "peer-decode8", "peer-decode32")
OTHERS = ("vllm", "llamacpp", "hf-batching", "hf-generate")
OTHERS_MUST = 0.75
"""Against each of these, in wall time and in the steps of 8 and 32 rows."""


@dataclass(frozen=True, slots=True)
class Bound:
    """must, aim: the value may not lie beyond; at_least: whether more is better."""

    must: float
    aim: float
    at_least: bool = False

    def verdict(self, value: float) -> str:
        """`aim met`, `met` or `missed`."""
        met = [value >= bound if self.at_least else value <= bound for bound in (self.aim, self.must)]
        return "aim met" if met[0] else "met" if met[1] else "missed"


RATIOS: dict[tuple[str, str, str], Bound] = {
    ("peer-mixed32", "wall_s", OURS): Bound(0.95, 0.80),
    ("peer-uniform32", "wall_s", OURS): Bound(1.0, 0.80),
    ("peer-decode1", "step_s", OURS): Bound(1.1, 0.65),
    ("peer-decode8", "step_s", OURS): Bound(1.0, 0.65),
    ("peer-decode32", "step_s", OURS): Bound(1.0, 0.65),
    ("peer-disturb", "worst_gap_s", OURS): Bound(1.0, 0.85),
    ("peer-disturb", "median_gap_s", OURS): Bound(1.0, 0.85),
    ("peer-disturb", "worst_gap_s", ADAPTIVE): Bound(0.35, 0.20),
    ("peer-disturb", "wall_s", ADAPTIVE): Bound(1.05, 1.05),
}
"""(workload, column, which of our engines) -> the bound on its ratio to the fastest peer there is; the last
one's is to our own fixed chunks."""
PREFILL_FRACTION = Bound(0.80, 0.90, at_least=True)
FIRST_TOKEN_S = Bound(10.0, 5.0)
EXCESS_BYTES = Bound(400e6, 150e6)


@dataclass(frozen=True, slots=True)
class Grade:
    """A figure beside what was asked of it. unit: x (a ratio), % (of a fraction), s, or MB (of bytes).

    against: the engine below the line of a ratio, None for a figure of its own.
    """

    label: str
    value: float
    unit: str
    bound: Bound
    against: str | None = None

    @property
    def verdict(self) -> str:
        return self.bound.verdict(self.value)


def grades(ratios: Sequence[Mapping[str, Any]], own: Mapping[str, Any]) -> Iterator[Grade]:
    """Every target that the ratios and own figures of a peers document can answer."""
    for (workload, column, engine), bound in RATIOS.items():
        asked = (workload, column, engine)
        found = [r for r in ratios if (r["workload"], r["column"], r["engine"]) == asked]
        if found:
            best = min(found, key=lambda r: r["theirs_s"])
            yield Grade(best["label"], best["ratio"], "x", bound, best["peer"])
    yield from _others(ratios)
    alone = [r for r in ratios if r["workload"] == "peer-prefill" and r["floor_s"] is not None]
    if alone:
        best = min(alone, key=lambda r: r["ours_s"])
        yield Grade(
            "long prompt alone, share of the limit", best["floor_s"] / best["ours_s"], "%", PREFILL_FRACTION
        )
    if own["first_token_s"]:
        yield Grade(
            "start to first token, weights cached", own["first_token_s"]["median"], "s", FIRST_TOKEN_S
        )
    if own["excess_bytes"] is not None:
        yield Grade("memory beyond imports, weights, pool", own["excess_bytes"], "MB", EXCESS_BYTES)


def _others(ratios: Sequence[Mapping[str, Any]]) -> Iterator[Grade]:
    """Against each other peer, the worst of the ratios that have a bound there."""
    for peer in OTHERS:
        counted = [r for r in ratios if r["peer"] == peer and r["workload"] in WALLS_AND_STEPS]
        if counted:
            worst = max(counted, key=lambda r: r["ratio"])
            bound = Bound(OTHERS_MUST, OTHERS_MUST)
            yield Grade(f"worst of walls and steps: {worst['label']}", worst["ratio"], "x", bound, peer)
