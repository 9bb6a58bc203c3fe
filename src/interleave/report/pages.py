"""The gate that an executed notebook passes before it becomes a page, and the little that staging adds.

MyST-NB renders stored outputs as they are, errors included, when execution is off. So this looks first:
it reads one notebook as data and says what is wrong, cell by cell. It runs nothing and knows no results.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from markdown_it import MarkdownIt
from nbformat import NotebookNode

from interleave.report.tables import tidy_tables

# Everything else (widgets, scripts, remote players) needs a network, a kernel or a script to show.
MIME_TYPES = ("text/plain", "text/html", "text/markdown", "image/png", "image/svg+xml")
IMAGE_TYPES = ("image/png", "image/svg+xml")
GLUE_PREFIX = "application/papermill.record/"  # values kept for another place, shown nowhere else
MAX_COLUMNS = 6
TABLE = re.compile(r"<table.*?</table>", re.S | re.I)
ROW = re.compile(r"<tr.*?(?=<tr|</table>)", re.S | re.I)
CELL = re.compile(r"<t[hd][\s>]", re.I)
HTML_HEADING = re.compile(r"<h[1-6][\s>]", re.I)


def heading_levels(markdown: str) -> list[int]:
    """Levels of the headings in one Markdown text, in order; fenced code holds none."""
    return [int(token.tag[1]) for token in MarkdownIt().parse(markdown) if token.type == "heading_open"]


def mime_types(data: NotebookNode) -> list[str]:
    """The types that a page would show; values glued for elsewhere are not."""
    return [mime for mime in data if not mime.startswith(GLUE_PREFIX)]


def image_alt(cell: NotebookNode, output: NotebookNode) -> str:
    """Alt text from the output (computed with the figure) or from the cell's metadata."""
    for mime in IMAGE_TYPES:
        if alt := output.get("metadata", {}).get(mime, {}).get("alt"):
            return str(alt)
    return str(cell.metadata.get("mystnb", {}).get("image", {}).get("alt", ""))


def output_faults(cell: NotebookNode, output: NotebookNode) -> Iterator[str]:
    """What is wrong with one output of `cell`."""
    if output.output_type == "error":
        yield f"stored error {output.ename}: {str(output.evalue)[:120]}"
    elif output.output_type == "stream":
        if output.name == "stderr":
            yield f"text on stderr: {output.text.strip()[:120]!r}"
    else:
        shown = mime_types(output.data)
        if unknown := [mime for mime in shown if mime not in MIME_TYPES]:
            yield f"output of type {', '.join(unknown)}; allowed: {', '.join(MIME_TYPES)}"
        if any(mime in IMAGE_TYPES for mime in shown) and not image_alt(cell, output).strip():
            yield "figure without alt text (metadata mystnb.image.alt: what is seen in it)"
        if "text/markdown" in shown and heading_levels(output.data["text/markdown"]):
            yield "output holds a heading; headings belong in Markdown cells"
        if "text/html" in shown:
            yield from html_faults(output.data["text/html"])


def html_faults(html: str) -> Iterator[str]:
    """Headings and over-wide tables in an HTML output."""
    if HTML_HEADING.search(html):
        yield "output holds a heading; headings belong in Markdown cells"
    for table in TABLE.findall(html):
        if (widest := max((len(CELL.findall(row)) for row in ROW.findall(table)), default=0)) > MAX_COLUMNS:
            yield f"table of {widest} columns; at most {MAX_COLUMNS} fit a page"


def code_faults(cell: NotebookNode) -> Iterator[str]:
    if cell.source.strip() and cell.execution_count is None:
        yield "code cell was not executed"
    figures = sum(any(mime in IMAGE_TYPES for mime in mime_types(o.get("data", {}))) for o in cell.outputs)
    if figures > 1:
        yield f"shows {figures} figures; one a cell, since a cell has one alt text and one caption"
    for output in cell.outputs:
        yield from output_faults(cell, output)


def heading_faults(notebook: NotebookNode) -> Iterator[str]:
    """One first-level heading, at the start, and no level skipped on the way down."""
    levels = [
        (level, number)
        for number, cell in enumerate(notebook.cells, 1)
        if cell.cell_type == "markdown"
        for level in heading_levels(cell.source)
    ]
    first = [number for level, number in levels if level == 1]
    if len(first) != 1 or levels[0][0] != 1:
        yield f"needs one first-level heading, before any other; has {len(first)}, in cells {first}"
    for (above, _), (below, number) in pairwise(levels):
        if below > above + 1:
            yield f"cell {number}: heading jumps from level {above} to {below}"


def page_faults(notebook: NotebookNode) -> list[str]:
    """Everything that keeps this executed notebook from being a page; cells are counted from 1."""
    faults = list(heading_faults(notebook))
    for number, cell in enumerate(notebook.cells, 1):
        if cell.cell_type == "code":
            faults += [f"cell {number}: {fault}" for fault in code_faults(cell)]
    return faults


def take_figure_texts(notebook: NotebookNode) -> None:
    """Move alt texts and captions that a cell computed to where MyST-NB looks for them, in place."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            for mime in IMAGE_TYPES:
                texts = output.get("metadata", {}).get(mime, {})
                mystnb = cell.metadata.setdefault("mystnb", NotebookNode()) if texts else None
                if mystnb is not None and "alt" in texts:
                    mystnb.setdefault("image", NotebookNode())["alt"] = texts["alt"]
                if mystnb is not None and "caption" in texts:
                    mystnb.setdefault("figure", NotebookNode())["caption"] = texts["caption"]


def dress_tables(notebook: NotebookNode) -> None:
    """Give every table of the outputs the book's look, in place."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if "text/html" in output.get("data", {}):
                output.data["text/html"] = tidy_tables(output.data["text/html"])


def insert_below_title(notebook: NotebookNode, markdown: str) -> None:
    """Put `markdown` right under the first-level heading, in place. ValueError without such a heading."""
    if not markdown:
        return
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and (end := _title_end(cell.source)) is not None:
            lines = cell.source.split("\n")
            cell.source = "\n".join([*lines[:end], "", markdown, *lines[end:]])
            return
    raise ValueError("the page has no first-level heading to put a note under")


def _title_end(markdown: str) -> int | None:
    """The number of lines up to the end of the first first-level heading; it may be underlined with `=`."""
    for token in MarkdownIt().parse(markdown):
        if token.type == "heading_open" and token.tag == "h1" and token.map:
            return int(token.map[1])
    return None
