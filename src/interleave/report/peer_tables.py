"""The tables of the page on the peers, from the stored comparison of a site's tier. Measures nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from interleave.lab.peers.engines import OURS, PEERS, engine_label
from interleave.lab.peers.ratios import QUANTITIES
from interleave.lab.peers.report_lines import amount
from interleave.lab.peers.targets import grades
from interleave.report.peer_values import StoredComparison
from interleave.report.printed import MAX_COLUMNS, MISSING
from interleave.report.status import aligned


def peer_tables(stored: StoredComparison | None) -> dict[str, Any]:
    """`peers-targets`: what was asked for; `peers-ratios`: work by peer; `peers-best`: the best peer of each
    work; `peers-engines`: versions, flags."""
    if stored is None:
        return {}
    told = stored.sidecar
    return {
        "peers-targets": _target_table(told["ratios"], told["own"]),
        "peers-ratios": _ratio_table(told["ratios"]),
        "peers-best": _best_table(told["ratios"]),
        "peers-engines": _engine_table(told["engines"]),
    }


def _target_table(ratios: Sequence[Mapping[str, Any]], own: Mapping[str, Any]) -> dict[str, Any]:
    rows = []
    for grade in grades(ratios, own):
        sign = "≥" if grade.bound.at_least else "≤"
        against = MISSING if grade.against is None else _against(grade.against)
        bounds = [f"{sign} {amount(bound, grade.unit)}" for bound in (grade.bound.must, grade.bound.aim)]
        rows.append([grade.label, against, amount(grade.value, grade.unit), *bounds, grade.verdict])
    return aligned(["work", "against", "measured", "must", "aim", "verdict"], rows, 2)


def _ratio_table(ratios: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    peers = [name for name in PEERS if any(ratio["peer"] == name for ratio in ratios)][: MAX_COLUMNS - 1]
    found = {(ratio["label"], ratio["peer"]): ratio for ratio in ratios if ratio["peer"] in PEERS}
    rows = []
    for label in _labels(found.values()):
        cells = [found.get((label, peer)) for peer in peers]
        rows.append([label, *[MISSING if cell is None else _ratio_text(cell) for cell in cells]])
    return aligned(["work", *map(engine_label, peers)], rows)


def _ratio_text(ratio: Mapping[str, Any]) -> str:
    return f"{ratio['ratio']:.2f} ({ratio['low']:.2f}–{ratio['high']:.2f}; {ratio['n']})"


def _best_table(ratios: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    rows = []
    for label in _labels(ratios):
        best = min((r for r in ratios if r["label"] == label), key=lambda r: r["theirs_s"])
        floor = best["floor_s"]
        reached = MISSING if floor is None else f"{floor / best['ours_s']:.0%}"
        rows.append(
            [
                label,
                _against(best["peer"]),
                f"{best['theirs_s'] * 1e3:,.0f}",
                f"{best['ours_s'] * 1e3:,.0f}",
                f"{best['ratio']:.2f}",
                reached,
            ]
        )
    return aligned(["work", "best peer", "its time [ms]", "ours [ms]", "ratio", "of the possible"], rows, 2)


def _engine_table(engines: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    rows = []
    for name, engine in engines.items():
        versions = ", ".join(f"{package} {version}" for package, version in engine["versions"].items())
        flags = ", ".join(f"{flag} {value}" for flag, value in engine["flags"].items())
        rows.append([engine_label(name), versions, flags])
    return aligned(["engine", "versions", "how it was run"], rows, 3)


def _labels(ratios: Iterable[Mapping[str, Any]]) -> list[str]:
    have = {ratio["label"] for ratio in ratios}
    return [quantity.label for quantity in QUANTITIES if quantity.label in have]


def _against(name: str) -> str:
    return "its own fixed chunks" if name == OURS else engine_label(name)
