"""What the page on the peers says, from the stored comparison of a site's tier. Measures nothing.

The newest stored comparison counts, with the parts that were run like it. Without one there is no value,
and the page says that it awaits a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interleave.lab.peers.document import EXPERIMENT, peers_code
from interleave.lab.peers.engines import OURS, engine_label
from interleave.lab.peers.run_rows import check_line
from interleave.lab.results import PointStore
from interleave.report.layout import results_root
from interleave.report.marks import Value
from interleave.report.printed import spoken
from interleave.report.status import counted

TIERS = {"book": "cpu", "preview": "quick"}
AGREES = "the same"


@dataclass(frozen=True)
class StoredComparison:
    """A stored comparison: its sidecar and where it lies, relative to the checkout."""

    sidecar: Mapping[str, Any]
    source: str


def stored_comparison(site: str, root: Path) -> StoredComparison | None:
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
        (sidecar for sidecar in sidecars if sidecar["status"] == "completed" and "own" in sidecar),
        key=lambda sidecar: sidecar["started_at"],
    )
    if not complete:
        return None
    alike = [part for part in complete if _conditions(part) == _conditions(complete[-1])]
    ratios = {(r["label"], r["peer"]): r for part in alike for r in part["ratios"]}
    merged = {
        **complete[-1],
        "started_at": alike[0]["started_at"],
        "ratios": list(ratios.values()),
        "engines": {name: engine for part in alike for name, engine in part["engines"].items()},
        "checks": {name: tokens for part in alike for name, tokens in part["checks"].items()},
        "own": _newest([part["own"] for part in alike]),
        "target": _newest([{"target": part["target"]} for part in alike])["target"],
    }
    return StoredComparison(merged, str(store.folder.relative_to(root)))


def _newest(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Each entry's newest value, among parts that all have the same entries; None where no part has one."""
    found: dict[str, Any] = dict.fromkeys(parts[0])
    for part in parts:
        found |= {name: value for name, value in part.items() if value is not None}
    return found


def _conditions(sidecar: Mapping[str, Any]) -> list[Any]:
    """What two parts of one comparison have in common: all but which peers, which work and how often."""
    chosen = {name: value for name, value in sidecar["config"].items() if name not in ("only", "runs")}
    return [sidecar["code"], sidecar["device"], sidecar["threads"], chosen]


def peer_values(stored: StoredComparison | None) -> dict[str, Value]:
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
    if told["machine"] is None:
        texts["no_ceilings"] = "unmeasured"
    if told["target"] is not None:
        texts |= _target(told["target"])
    if told["code"] != peers_code():
        texts["other_code"] = "changed"
    values = {name: Value(text, None, stored.source) for name, text in texts.items()}
    for ratio in ratios:
        slug = f"{ratio['workload'].removeprefix('peer-')}_{ratio['column'].removesuffix('_s')}"
        slug = slug if ratio["engine"] == OURS else f"adaptive_{slug}"
        values[f"{slug}_{ratio['peer']}"] = Value(spoken(ratio["ratio"], 2), told["mark"], stored.source)
    return {f"peers.{name}": value for name, value in values.items()}


def _checks(checks: Mapping[str, Sequence[Sequence[int]]]) -> dict[str, str]:
    if OURS not in checks:
        return {"check_prompts": "no", "agreeing": "none; it was not checked"}
    said = {name: check_line(checks[OURS], theirs) for name, theirs in checks.items() if name != OURS}
    same = [engine_label(name) for name, line in said.items() if line.startswith(AGREES)]
    differing = [
        f"{engine_label(name)} ({line})" for name, line in said.items() if not line.startswith(AGREES)
    ]
    texts = {"check_prompts": str(len(checks[OURS])), "agreeing": "; ".join(same) or "none"}
    return texts | ({"differing": "; ".join(differing)} if differing else {})


def _target(target: Mapping[str, Any]) -> dict[str, str]:
    """How the chunks of the adaptive engine were chosen; without a fit, where its model was fitted before."""
    texts = {
        "target_ms": f"{spoken(target['tpot_target_s'] * 1e3, 3)} ms",
        "target_steps": spoken(target["tpot_target_s"] / target["decode_step_s"], 2),
        "decode_step_ms": f"{spoken(target['decode_step_s'] * 1e3, 3)} ms",
    }
    if target["num_steps"] is not None:
        texts |= {"fit_steps": f"{target['num_steps']:,}", "fit_error": f"{target['rms_error']:.1%}"}
    return texts
