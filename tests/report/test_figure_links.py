"""Where a staged page's figures are, for prose to link to."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

from toys.booklet import toy_notebook

from interleave.report.figure_links import figure_links, name_figures, place_of
from interleave.report.pages import take_figure_texts
from interleave.report.runs import Page, Run

RUN = Run("99_toy", "toy", "A toy")


def test_a_figure_gets_a_place_and_its_csv_is_found() -> None:
    notebook = toy_notebook()
    (link,) = figure_links([Page(RUN, "cpu", Path("nowhere"), notebook)]).items()
    assert link == (
        "toy.square",
        {
            "title": "A toy",
            "page": "book/pages/99_toy",
            "place": "figure-toy-square",
            "csv": {"file": "toy-square.csv", "data": "data:text/csv;base64,eAox"},
        },
    )
    take_figure_texts(notebook)
    name_figures(notebook, "toy")
    assert notebook.cells[1].metadata.mystnb.figure.name == "figure-toy-square"
    assert "CSV</a>" in notebook.cells[1].metadata.mystnb.figure.caption


def test_a_second_figure_of_one_name_has_no_place() -> None:
    notebook = toy_notebook()
    notebook.cells.append(deepcopy(notebook.cells[1]))
    take_figure_texts(notebook)
    name_figures(notebook, "toy")
    assert [("name" in cell.metadata.get("mystnb", {}).get("figure", {})) for cell in notebook.cells] == [
        False,
        True,
        False,
        False,
    ]
    assert len(figure_links([Page(RUN, "cpu", Path("nowhere"), notebook)])) == 1


def test_a_place_is_an_id() -> None:
    assert place_of("closed_batches", "Wall time") == "figure-closed-batches-wall-time"
