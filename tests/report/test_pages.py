"""The gate before Sphinx: each thing that must not reach a page is refused, naming its cell."""

from __future__ import annotations

from typing import Any

import nbformat
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from interleave.report.pages import insert_below_title, page_faults, take_figure_texts

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8Dwn4EIwDiqEAADAAH/AIKqtKoAAAAASUVORK5CYII="
)


def code(*outputs: NotebookNode, **metadata: Any) -> NotebookNode:
    return new_code_cell("1", outputs=list(outputs), execution_count=1, metadata=metadata)


def display(data: dict[str, str], **metadata: Any) -> NotebookNode:
    return new_output("display_data", data=data, metadata=metadata)


def page(*cells: NotebookNode) -> NotebookNode:
    return new_notebook(cells=[new_markdown_cell("# A page\n\n## A part"), *cells])


def table(columns: int) -> str:
    return f"<table><tr>{'<th>x</th>' * columns}</tr></table>"


def test_a_clean_page_has_no_fault() -> None:
    figure = code(display({"image/png": PNG, "text/plain": "<Figure>"}), mystnb={"image": {"alt": "a line"}})
    text = code(new_output("stream", name="stdout", text="done"), display({"text/html": table(6)}))
    assert page_faults(page(figure, text, new_code_cell(""))) == []


@pytest.mark.parametrize(
    ("cell", "fault"),
    [
        (new_code_cell("1"), "cell 2: code cell was not executed"),
        (code(new_output("error", ename="KeyError", evalue="'x'")), "cell 2: stored error KeyError: 'x'"),
        (code(new_output("stream", name="stderr", text="Warning: old")), "cell 2: text on stderr"),
        (code(display({"application/vnd.jupyter.widget-view+json": "{}"})), "cell 2: output of type"),
        (code(display({"application/javascript": "alert(1)"})), "cell 2: output of type"),
        (code(display({"image/png": PNG})), "cell 2: figure without alt text"),
        (code(display({"text/markdown": "## Result"})), "cell 2: output holds a heading"),
        (code(display({"text/html": "<h2>Result</h2>"})), "cell 2: output holds a heading"),
        (code(display({"text/html": table(7)})), "cell 2: table of 7 columns; at most 6"),
        (new_markdown_cell("#### Deep"), "cell 2: heading jumps from level 2 to 4"),
        (new_markdown_cell("# Second"), "has 2, in cells [1, 2]"),
    ],
)
def test_each_fault_names_its_cell(cell: NotebookNode, fault: str) -> None:
    faults = page_faults(page(cell))
    assert len(faults) == 1
    assert fault in faults[0]


def test_two_figures_in_a_cell_are_refused() -> None:
    texts = {"image/png": {"alt": "a line"}}
    cell = code(display({"image/png": PNG}, **texts), display({"image/png": PNG}, **texts))
    assert page_faults(page(cell)) == [
        "cell 2: shows 2 figures; one a cell, since a cell has one alt text and one caption"
    ]


def test_a_page_needs_its_title_first() -> None:
    faults = page_faults(new_notebook(cells=[new_markdown_cell("## Part\n\n# Title")]))
    assert any("needs one first-level heading, before any other" in fault for fault in faults)


def test_fenced_text_is_no_heading() -> None:
    assert page_faults(page(new_markdown_cell("```\n# a comment\n```"))) == []


def test_texts_computed_with_a_figure_reach_the_cell() -> None:
    texts = {"alt": "two lines cross at 4 requests/s", "caption": "They cross."}
    notebook = page(code(display({"image/png": PNG}, **{"image/png": texts})))
    assert page_faults(notebook) == []
    take_figure_texts(notebook)
    assert notebook.cells[1].metadata["mystnb"] == {
        "image": {"alt": texts["alt"]},
        "figure": {"caption": texts["caption"]},
    }
    nbformat.validate(notebook)


def test_a_notice_stands_under_the_title() -> None:
    notebook = page()
    insert_below_title(notebook, "Measured here.")
    assert notebook.cells[0].source == "# A page\n\nMeasured here.\n\n## A part"
    insert_below_title(notebook, "")
    assert notebook.cells[0].source == "# A page\n\nMeasured here.\n\n## A part"


def test_a_notice_is_never_left_out() -> None:
    """Whatever form the title has; a page without one is refused instead."""
    notebook = new_notebook(cells=[new_markdown_cell("A page\n======\n\nText.")])
    insert_below_title(notebook, "Measured here.")
    assert notebook.cells[0].source == "A page\n======\n\nMeasured here.\n\nText."
    with pytest.raises(ValueError, match="no first-level heading"):
        insert_below_title(new_notebook(cells=[new_markdown_cell("Text.")]), "Measured here.")
