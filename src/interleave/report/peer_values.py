"""What the page on the peers shows, from the stored comparison of a site's tier. Measures nothing.

The newest stored comparison counts, with the parts that were run like it. Without one there is neither value nor table, and the page says that
it awaits a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interleave.lab.peers.document import EXPERIMENT, peers_code
from interleave.lab.peers.engines import OURS, PEERS
from interleave.lab.peers.measure import check_line
from interleave.lab.peers.ratios import QUANTITIES
from interleave.lab.results import PointStore
from interleave.report.layout import results_root
from interleave.report.marks import Value
from interleave.report.printed import MAX_COLUMNS, MISSING, spoken
from interleave.report.status import counted

TIERS = {"book": "cpu", "preview": "quick"}
AGREES = "the same"


@dataclass(frozen=True)
class Stored:
    """A stored comparison: its sidecar and where it lies, relative to the checkout."""

    sidecar: Mapping[str, Any]
    source: str


def stored_comparison(site: str, root: Path) -> Stored | None:
    """The newest completed comparison of a site's tier below `root`; None if there is none.

    What an earlier one alone has (another peer, another workload) is added to it, if it was made by the
    same code on the same machine with the same choices: a comparison may be run in parts.
    """
    tier = TIERS.get(site)
    if tier is None:
        return None
    store = PointStore(results_root(tier, root), tier, EXPERIMENT)
    keys = store.keys()
    sidecars = [store.load_provenance(key) for key in keys if store.load(key) is not None]  # also checks them
    complete = sorted(
        (sidecar for sidecar in sidecars if sidecar["status"] == "completed"),
        key=lambda sidecar: sidecar["started_at"],
    )
    if not complete:
        return None
    alike = [part for part in complete if _conditions(part) == _conditions(complete[-1])]
    ratios = {(r["workload"], r["column"], r["peer"]): r for part in alike for r in part["ratios"]}
    merged = {
        **complete[-1],
        "started_at": alike[0]["started_at"],
        "ratios": list(ratios.values()),
        "engines": {name: engine for part in alike for name, engine in part["engines"].items()},
        "checks": {name: tokens for part in alike for name, tokens in part["checks"].items()},
    }
    return Stored(merged, str(store.folder.relative_to(root)))


def _conditions(sidecar: Mapping[str, Any]) -> list[Any]:
    """What two parts of one comparison have in common: all but which peers, which work and how often."""
    chosen = {name: value for name, value in sidecar["config"].items() if name not in ("only", "runs")}
    return [sidecar["code"], sidecar["device"], sidecar["threads"], chosen]


def peer_values(stored: Stored | None) -> dict[str, Value]:
    """`peers.<name>`: where and when, which peers gave the same tokens, and each ratio."""
    if stored is None:
        return {}
    told, ratios = stored.sidecar, stored.sidecar["ratios"]
    texts = {
        "device": told["device"],
        "threads": counted(told["threads"], "thread"),
        "started": f"{told['started_at'][:16].replace('T', ' ')} UTC",
        "commit": (told["git_commit"] or "unknown")[:10],
    }
    texts |= _checks(told["checks"])
    if told["code"] != peers_code():
        texts["other_code"] = "changed"
    values = {name: Value(text, None, stored.source) for name, text in texts.items()}
    for ratio in ratios:
        slug = f"{ratio['workload'].removeprefix('peer-')}_{ratio['column'].removesuffix('_s')}"
        values[f"{slug}_{ratio['peer']}"] = Value(spoken(ratio["ratio"], 2), told["mark"], stored.source)
    return {f"peers.{name}": value for name, value in values.items()}


def peer_tables(stored: Stored | None) -> dict[str, Any]:
    """`peers-ratios`: work by peer; `peers-best`: the best peer of each work; `peers-engines`: versions, flags."""
    if stored is None:
        return {}
    ratios = stored.sidecar["ratios"]
    return {
        "peers-ratios": _ratio_table(ratios),
        "peers-best": _best_table(ratios),
        "peers-engines": _engine_table(stored.sidecar["engines"]),
    }


def _checks(checks: Mapping[str, Sequence[Sequence[int]]]) -> dict[str, str]:
    if OURS not in checks:
        return {"check_prompts": "no", "agreeing": "none; it was not checked"}
    said = {name: check_line(checks[OURS], theirs) for name, theirs in checks.items() if name != OURS}
    same = [_label(name) for name, line in said.items() if line.startswith(AGREES)]
    differing = [f"{_label(name)} ({line})" for name, line in said.items() if not line.startswith(AGREES)]
    texts = {"check_prompts": str(len(checks[OURS])), "agreeing": "; ".join(same) or "none"}
    return texts | ({"differing": "; ".join(differing)} if differing else {})


def _ratio_table(ratios: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    peers = [name for name in PEERS if any(ratio["peer"] == name for ratio in ratios)][: MAX_COLUMNS - 1]
    found = {(ratio["label"], ratio["peer"]): ratio for ratio in ratios}
    rows = []
    for label in _labels(ratios):
        cells = [found.get((label, peer)) for peer in peers]
        rows.append([label, *[MISSING if cell is None else _ratio_text(cell) for cell in cells]])
    return _table(["work", *map(_label, peers)], rows)


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
                _label(best["peer"]),
                f"{best['theirs_s'] * 1e3:,.0f}",
                f"{best['ours_s'] * 1e3:,.0f}",
                f"{best['ratio']:.2f}",
                reached,
            ]
        )
    return _table(["work", "best peer", "its time [ms]", "ours [ms]", "ratio", "of the possible"], rows, 2)


def _engine_table(engines: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    rows = []
    for name, engine in engines.items():
        versions = ", ".join(f"{package} {version}" for package, version in engine["versions"].items())
        flags = ", ".join(f"{flag} {value}" for flag, value in engine["flags"].items())
        rows.append([_label(name), versions, flags])
    return _table(["engine", "versions", "how it was run"], rows, 3)


def _labels(ratios: Sequence[Mapping[str, Any]]) -> list[str]:
    have = {ratio["label"] for ratio in ratios}
    return [quantity.label for quantity in QUANTITIES if quantity.label in have]


def _label(name: str) -> str:
    return "this engine" if name == OURS else PEERS[name].label if name in PEERS else name


def _table(header: list[str], rows: list[list[str]], num_left: int = 1) -> dict[str, Any]:
    align = ["left"] * num_left + ["right"] * (len(header) - num_left)
    return {"header": header, "align": align, "rows": rows}
