"""The status page's tables: when, where and with which software each page was measured.

Reads the provenance that the runner leaves in an executed notebook (`metadata.interleave`); measures nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import nbformat

from interleave.report.runs import Page

STATUS_HEADER = ["page", "profile", "device", "run time [s]", "started", "state"]
VERSIONS_HEADER = ["page", "commit", "Python", "torch", "threads", "driver"]


def provenance(page: Page) -> dict[str, Any]:
    """What the runner recorded about this execution; empty where it recorded nothing."""
    return dict(nbformat.read(page.path, as_version=4).metadata.get("interleave", {}))


def link(page: Page) -> dict[str, str]:
    return {"text": page.run.title, "page": f"book/pages/{page.run.notebook}"}


def status_table(pages: Sequence[Page]) -> dict[str, Any]:
    rows: list[list[Any]] = []
    for page in pages:
        known = provenance(page)
        row = [known.get(key) for key in ("device", "duration_s", "started", "state")]
        rows.append([link(page), page.tier, *["" if cell is None else str(cell) for cell in row]])
    align = ["left", "left", "left", "right", "left", "left"]
    return {"header": STATUS_HEADER, "align": align, "rows": rows}


def versions_table(pages: Sequence[Page]) -> dict[str, Any]:
    rows: list[list[Any]] = []
    for page in pages:
        known = provenance(page)
        row = [known.get(key) for key in ("commit", "python", "torch", "threads", "driver")]
        rows.append([link(page), *["" if cell is None else str(cell) for cell in row]])
    return {"header": VERSIONS_HEADER, "align": ["left"] * 6, "rows": rows}
