"""Two runs of one notebook beside each other: what was chosen otherwise, and which numbers moved.

Reads the `interleave` blocks of executed notebooks; runs nothing. `difference_text.py` puts it into words.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from interleave.report.freshness import STALE
from interleave.report.parameters import load_experiment
from interleave.report.runs import Page

RUN_FIELDS = ("profile", "measure")
WITHIN, BEYOND = "within", "beyond"


@dataclass(frozen=True)
class Moved:
    """One recorded number before and after; None where that run did not record it.

    A number is `{value, unit, text}`, with `low`, `high` and `digits` where it had repeats.
    """

    name: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None

    @property
    def size(self) -> float:
        """How far it moved, as a share of the larger value: 0 to 1, up to 2 across zero. Another word is the
        farthest; a number that only one run has cannot be ordered and is last."""
        if self.before is None or self.after is None:
            return -1.0
        a, b = self.before["value"], self.after["value"]
        if isinstance(a, str) or isinstance(b, str):
            return 0.0 if a == b else math.inf
        return abs(a - b) / max(abs(a), abs(b)) if a != b else 0.0

    @property
    def noise(self) -> str | None:
        """`within` if the ranges of repeats before and after overlap, else `beyond`; None without repeats."""
        sides = [side for side in (self.before, self.after) if side is not None]
        if len(sides) < 2 or not any("low" in side for side in sides):
            return None
        (low, high), (other_low, other_high) = map(_band, sides)
        return WITHIN if max(low, other_low) <= min(high, other_high) else BEYOND


@dataclass(frozen=True)
class Difference:
    """A notebook's page as it stands and as it was tried.

    parameters: those that differ, `{name: (before, after)}`; meanings: what these are, in the experiment's words;
    moved: every number, the farthest first; caveats: what else differs between the two runs, a sentence each.
    """

    before: Page
    after: Page
    parameters: dict[str, tuple[Any, Any]]
    meanings: dict[str, str]
    moved: list[Moved]
    caveats: list[str]


def difference(before: Page, after: Page) -> Difference:
    """Compare two pages of one notebook."""
    old, new = before.origin, after.origin
    changed = changed_parameters(old.get("parameters", {}), new.get("parameters", {}))
    return Difference(
        before,
        after,
        changed,
        meanings(new.get("experiment"), changed),
        moved_numbers(old.get("numbers", {}), new.get("numbers", {})),
        _caveats(before, after),
    )


def changed_parameters(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """`{name: (before, after)}` of the parameters that differ; the run's own fields are left out."""
    names = [name for name in {**new, **old} if name not in RUN_FIELDS]
    return {name: (old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)}


def meanings(experiment: str | None, names: Iterable[str]) -> dict[str, str]:
    """The description of each parameter, where the experiment still has it and gives one."""
    fields: Mapping[str, Any] = load_experiment(experiment).Params.model_fields if experiment else {}
    return {name: fields[name].description for name in names if name in fields and fields[name].description}


def moved_numbers(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Moved]:
    """Every number of either run; the farthest move first, equal ones in the order of the page."""
    moved = [Moved(name, old.get(name), new.get(name)) for name in {**new, **old}]
    return sorted(moved, key=lambda one: -one.size)


def _band(number: Mapping[str, Any]) -> tuple[float, float]:
    value = number["value"]
    return number.get("low", value), number.get("high", value)


def _caveats(before: Page, after: Page) -> list[str]:
    """Why a move may have another cause than the parameters."""
    old, new = before.origin, after.origin
    found = []
    if before.tier != after.tier:
        found.append(
            f"There is no published page of profile {after.tier}, so this compares with profile {before.tier}, "
            "which measures other sizes."
        )
    for name in ("device", "threads", "torch", "python"):
        if old.get(name) != new.get(name):
            found.append(f"Measured with another {name}: {old.get(name)} before, {new.get(name)} now.")
    if before.state.state == STALE:
        reasons = "; ".join(before.state.reasons)
        found.append(
            f"The page before is out of date ({reasons}), so not all that moved comes from the parameters."
        )
    return found
