"""The four marks that say where a number comes from, and a number with its mark. Knows no results.

Every number that the report shows carries exactly one. The colours are in `book/_static/interleave.css`,
under the class `il-mark-<name>`.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from interleave.schedule.names import nearest


@dataclass(frozen=True)
class Mark:
    """`label` is what the badge shows, `meaning` what a pointer or a screen reader gets."""

    name: str
    label: str
    meaning: str


MARKS: dict[str, Mark] = {
    mark.name: mark
    for mark in (
        Mark("measured-gpu", "GPU", "measured on a GPU"),
        Mark("measured-cpu", "CPU", "measured on a CPU"),
        Mark("simulated", "sim", "simulated, not measured"),
        Mark("published-elsewhere", "pub", "published elsewhere, not measured here"),
    )
}


def find_mark(name: str) -> Mark:
    """The mark called `name`; ValueError with the nearest valid name otherwise."""
    if name in MARKS:
        return MARKS[name]
    raise ValueError(nearest("mark", name, MARKS))


def measured_on(device: str) -> str:
    """The mark of what is measured on a device of torch: whatever is no CPU has a driver."""
    return measured_with(None if device == "cpu" else device)


def measured_with(driver: str | None) -> str:
    """The mark of what a run measured that recorded this driver; a CPU has none (see `lab.devices.place`)."""
    return "measured-gpu" if driver else "measured-cpu"


def badge_html(name: str) -> str:
    """The badge as one HTML element, for tables and cell outputs."""
    mark = find_mark(name)
    return f'<abbr class="il-mark il-mark-{mark.name}" title="{escape(mark.meaning)}">{mark.label}</abbr>'


@dataclass(frozen=True)
class Value:
    """A text to print as it stands, the mark beside it (None: exact) and where it comes from."""

    text: str
    mark: str | None
    source: str

    def __post_init__(self) -> None:
        if self.mark is not None:
            find_mark(self.mark)
