"""What the parity gate found: counts, one entry per trial, near tie and failure; as JSON and as text.

Does not know how anything was run or judged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from interleave.lab.devices import place
from interleave.lab.parity import NEAR_TIE_STEPS, Difference
from interleave.lab.provenance import provenance
from interleave.model.sources import LoadedModel
from interleave.schedule.request import Request

SHOWN_FAILURES = 20


@dataclass(slots=True)
class GateReport:
    """Counts compared requests: checked = exact + near_ties + failed.

    distinct_tokens: among all that `cached` answered; the fewer, the less the gate can see.
    """

    checked: int = 0
    exact: int = 0
    near_ties: int = 0
    failed: int = 0
    distinct_tokens: int = 0
    ties: list[dict[str, Any]] = field(default_factory=list)
    failures: list[dict[str, Any]] = field(default_factory=list)
    trials: list[dict[str, Any]] = field(default_factory=list)

    def add(self, where: Mapping[str, Any], judged: Sequence[tuple[Request, Difference | None]]) -> str:
        """Count one comparison per request; the result in words, for the progress line."""
        counts = {"exact": 0, "near_ties": 0, "failed": 0}
        for request, difference in judged:
            if difference is None:
                counts["exact"] += 1
                continue
            entry = {**where, "request": request.request_id, "prompt_tokens": request.prompt_len}
            entry |= {name: _finite(value) for name, value in asdict(difference).items()}
            if entry.pop("near_tie"):
                counts["near_ties"] += 1
                self.ties.append(entry)
            else:
                counts["failed"] += 1
                self.failures.append(entry)
        self.checked += len(judged)
        self.exact += counts["exact"]
        self.near_ties += counts["near_ties"]
        self.failed += counts["failed"]
        self.trials.append({**where, "requests": len(judged), **counts})
        return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count)


def gate_document(report: GateReport, model: LoadedModel, conditions: Mapping[str, Any]) -> dict[str, Any]:
    """Strict JSON: the integers checked, exact, near_ties, failed; the lists ties, failures, trials;
    the model, and where and with which versions it ran (`data/schema/gate.schema.json`).

    conditions: what the gate was asked to do.
    """
    decoder = model.decoder
    here = place(str(decoder.device))
    origin = provenance(conditions, device=here.device, driver=here.driver, threads=here.threads)
    names = ("git_commit", "git_dirty", "versions", "device", "driver", "threads", "system", "started_at")
    return {
        "checked": report.checked,
        "exact": report.exact,
        "near_ties": report.near_ties,
        "failed": report.failed,
        "ties": report.ties,
        "failures": report.failures,
        "distinct_tokens": report.distinct_tokens,
        "model": model.description,
        "dtype": str(decoder.dtype).removeprefix("torch."),
        "near_tie_steps": NEAR_TIE_STEPS[decoder.dtype],
        "conditions": dict(conditions),
        **{name: origin[name] for name in names},
        "trials": report.trials,
    }


def report_lines(document: Mapping[str, Any]) -> Iterable[str]:
    """The result for a terminal: counts, every near tie with its position, the first failures."""
    yield f"{document['model']}, {document['dtype']} on {document['device']}"
    for backend, why in document["conditions"]["refused_backends"].items():
        yield f"backend {backend} not run: {why}"
    yield (
        f"checked {document['checked']}, exact {document['exact']}, near ties {document['near_ties']}, "
        f"failed {document['failed']} ({document['distinct_tokens']} distinct tokens in the answers)"
    )
    for entry in document["ties"]:
        yield f"near tie: {_entry(entry)}"
    for entry in document["failures"][:SHOWN_FAILURES]:
        yield f"FAILED: {_entry(entry)}"
    if len(document["failures"]) > SHOWN_FAILURES:
        yield f"and {len(document['failures']) - SHOWN_FAILURES} more failures; --json FILE has all of them"


def _entry(entry: Mapping[str, Any]) -> str:
    backend = f" through {entry['backend']}" if entry["backend"] else ""
    conditions = f" ({entry['conditions']})" if entry["conditions"] else ""
    gap = "" if entry["gap_steps"] is None else f"; gap {entry['gap_steps']:.1f} steps"
    if entry["behind_steps"] is not None and entry["behind_steps"] != entry["gap_steps"]:
        gap += f", the lower token {entry['behind_steps']:.1f} behind"
    reason = "" if entry["reason"] == "near tie" else f"; {entry['reason']}"
    return (
        f"{entry['engine']}{backend}, {entry['workload']}{conditions}, request {entry['request']}: position "
        f"{entry['position']} (new token {entry['token_index']}) is {entry['got']}, against {entry['against']}'s "
        f"{entry['expected']}{gap}{reason}"
    )


def _finite(value: Any) -> Any:
    """JSON has no infinity and no NaN."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
