"""Where the figures of the staged pages are, and what they draw as CSV: the evidence that prose links to.

A cell says which figure it shows (`NotebookRun.figure`); here it gets a place on its page. Draws nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from nbformat import NotebookNode

from interleave.report.pages import IMAGE_TYPES
from interleave.report.runs import Page

CSV_LINK = re.compile(r'<a download="(?P<file>[^"]+)" href="(?P<data>data:text/csv;base64,[^"]*)">')


def place_of(experiment: str, figure: str) -> str:
    """The id of a figure in its page's HTML: letters, digits and hyphens, as docutils would make it."""
    return re.sub(r"[^a-z0-9]+", "-", f"figure-{experiment}-{figure}".lower()).strip("-")


def name_figures(notebook: NotebookNode, experiment: str) -> None:
    """Give every figure its place, in place; captions must have been taken (`pages.take_figure_texts`)."""
    for cell, figure, _ in _figures(notebook):
        cell.metadata.mystnb.setdefault("figure", NotebookNode())["name"] = place_of(experiment, figure)


def figure_links(pages: Sequence[Page]) -> dict[str, dict[str, Any]]:
    """By `<experiment>.<figure>`: title of the page, document, place, and the CSV as an address with its file's
    name; None where the figure offers none."""
    links = {}
    for page in pages:
        for _, figure, caption in _figures(page.notebook):
            csv = CSV_LINK.search(caption)
            links[f"{page.run.experiment}.{figure}"] = {
                "title": page.run.title,
                "page": f"book/pages/{page.run.notebook}",
                "place": place_of(page.run.experiment, figure),
                "csv": csv.groupdict() if csv else None,
            }
    return links


def _figures(notebook: NotebookNode) -> Iterator[tuple[NotebookNode, str, str]]:
    """(cell, name, caption) of each named figure; of two with one name, the first."""
    seen: set[str] = set()
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            metadata = output.get("metadata", {})
            name = metadata.get("interleave", {}).get("figure")
            if name is not None and name not in seen:
                seen.add(name)
                captions = (metadata[mime].get("caption", "") for mime in IMAGE_TYPES if mime in metadata)
                yield cell, str(name), next(captions, "")
