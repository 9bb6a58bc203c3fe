"""The status page's tables: when, where and with which software each page was measured.

Reads what the runner recorded in the executed notebooks; measures nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from interleave.report.runs import Page

STATUS = {"profile": "profile", "device": "device", "measuring [s]": "duration_s", "begun": "started"}
VERSIONS = {
    "commit": "commit",
    "Python": "python",
    "torch": "torch",
    "threads": "threads",
    "driver": "driver",
}


def status_table(pages: Sequence[Page]) -> dict[str, Any]:
    """Page, profile, device, seconds spent measuring its points, when the first of them was begun."""
    return table(pages, STATUS)


def versions_table(pages: Sequence[Page]) -> dict[str, Any]:
    """Page, commit of the source, versions, threads, driver."""
    return table(pages, VERSIONS)


def table(pages: Sequence[Page], columns: dict[str, str]) -> dict[str, Any]:
    """A table for the extension: the page's title as a link, then one recorded field a column."""
    rows: list[list[Any]] = []
    for page in pages:
        link = {"text": page.run.title, "page": f"book/pages/{page.run.notebook}"}
        rows.append([link, *[spoken(field, page.origin.get(field)) for field in columns.values()]])
    align = ["left", *["right" if name.endswith("]") else "left" for name in columns]]
    return {"header": ["page", *columns], "align": align, "rows": rows}


def spoken(field: str, value: object) -> str:
    """A recorded field as a reader wants it: a short commit, an en dash for what there is none of."""
    if value is None:
        return "–"
    return str(value)[:10] if field == "commit" else str(value)
