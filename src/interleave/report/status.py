"""What the book says about its runs: the line under a page's title, its badge, the status page's tables.

Reads what the runner recorded in the executed notebooks; measures nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from interleave.report.freshness import FRESH
from interleave.report.runs import Page

BADGE = "il-stale"  # the class of the box that says that a page is out of date

STATUS = {
    "measured on": "device",
    "profile": "profile",
    "measuring [s]": "duration_s",
    "begun [UTC]": "started",
}
VERSIONS = {
    "commit": "commit",
    "Python": "python",
    "torch": "torch",
    "threads": "threads",
    "driver": "driver",
}


def notice(page: Page) -> str:
    """Markdown to stand under the title: the mark of the page's numbers, and a badge unless it is fresh."""
    origin, state = page.origin, page.state
    lines = []
    if origin:
        lines += [
            ":::{container} il-origin",
            f"Numbers on this page, unless marked otherwise: {{mark}}`{page.mark}`, {origin.get('device')}, "
            f"{counted(origin.get('threads'), 'thread')}, profile `{page.tier}`; [when and how](../status.md).",
            ":::\n",
        ]
    if state.state != FRESH:
        reasons = [f"- {reason}" for reason in state.reasons]
        lines += [f":::{{admonition}} This page is not up to date: {state.state}", f":class: warning {BADGE}"]
        lines += [*reasons, ":::\n"]
    return "\n".join(lines)


def out_of_date(pages: Sequence[Page]) -> dict[str, dict[str, str]]:
    """By experiment, the pages that are not fresh, for those that quote them: title, document, state."""
    return {
        page.run.experiment: {
            "title": page.run.title,
            "page": f"book/pages/{page.run.notebook}",
            "state": page.state.state,
        }
        for page in pages
        if page.state.state != FRESH
    }


def status_table(pages: Sequence[Page]) -> dict[str, Any]:
    """Page, device, profile, seconds spent measuring its points, when the first was begun, freshness."""
    status = table(pages, STATUS)
    for page, row in zip(pages, status["rows"], strict=True):
        row[1] = {"text": row[1], "mark": page.mark}
        row.append(page.state.state)
    return status | {"header": [*status["header"], "state"], "align": [*status["align"], "left"]}


def versions_table(pages: Sequence[Page]) -> dict[str, Any]:
    """Page, commit of the source, versions, threads, driver."""
    return table(pages, VERSIONS)


def aligned(header: Sequence[str], rows: Sequence[Sequence[Any]], num_left: int = 1) -> dict[str, Any]:
    """A table for the extension: the first columns read from the left, the others, numbers, from the right."""
    return {
        "header": list(header),
        "align": ["left"] * num_left + ["right"] * (len(header) - num_left),
        "rows": list(rows),
    }


def table(pages: Sequence[Page], columns: dict[str, str]) -> dict[str, Any]:
    """A table for the extension: the page's title as a link, then one recorded field a column."""
    rows: list[list[Any]] = []
    for page in pages:
        link = {"text": page.run.title, "page": f"book/pages/{page.run.notebook}"}
        rows.append([link, *[spoken(field, page.origin) for field in columns.values()]])
    align = ["left", *["right" if field == "duration_s" else "left" for field in columns.values()]]
    return {"header": ["page", *columns], "align": align, "rows": rows}


def counted(number: int | None, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def spoken(field: str, origin: Mapping[str, Any]) -> str:
    """A recorded field as a reader wants it: a short commit, minutes of UTC, a dash for what there is none of."""
    value = origin.get(field)
    if value is None:
        return "–"
    if field == "started":
        return str(value)[:16].replace("T", " ")
    if field == "commit":
        return f"{str(value)[:10]}, with changes" if origin.get("dirty") else str(value)[:10]
    return str(value)
