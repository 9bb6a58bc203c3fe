"""The stored simulations that pages draw: where they lie, and whether today's code would make them. Draws nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interleave.lab.sweep import read_sweep, sweep_code
from interleave.lab.timeline import read_timeline, timeline_code
from interleave.report.freshness import BROKEN, FRESH, STALE, PageState

SIMULATED = Path("data/results/simulated")


@dataclass(frozen=True)
class Simulation:
    """One document, by the name of its drawing.

    verb: of `interleave simulate`, which makes it. read: ValueError naming the file for what is none. code: the
    hash of all code that its numbers depend on, as it is now.
    """

    name: str
    verb: str
    read: Callable[[Path], dict[str, Any]]
    code: Callable[[], str]

    @property
    def path(self) -> Path:
        """Relative to the checkout."""
        return SIMULATED / f"{self.name}.json"

    @property
    def command(self) -> str:
        return f"interleave simulate {self.verb} --json {self.path.as_posix()}"

    def stored(self, root: Path) -> dict[str, Any] | None:
        """The document below `root`, None where there is none."""
        return self.read(root / self.path) if (root / self.path).is_file() else None

    def stale(self, code: object) -> str | None:
        """The command that makes it anew, where a document that says it was made by `code` is not today's."""
        return None if code == self.code() else self.command


EXPLORER = Simulation("explorer", "sweep", read_sweep, sweep_code)
TIMELINE = Simulation("timeline", "timeline", read_timeline, timeline_code)


def simulation_states(root: Path) -> list[PageState]:
    """Of each document that is stored: fresh, stale (its drawing carries a badge) or broken."""
    found = []
    for simulation in (EXPLORER, TIMELINE):
        try:
            document = simulation.stored(root)
        except ValueError as error:
            found.append(PageState(simulation.name, "simulated", BROKEN, [str(error)]))
            continue
        if document is not None:
            command = simulation.stale(document.get("code"))
            reasons = [f"other code made it; `{command}` makes it anew"] if command else []
            found.append(PageState(simulation.name, "simulated", STALE if command else FRESH, reasons))
    return found
