"""What the status page says of a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from nbformat.v4 import new_notebook

from interleave.lab.devices import place
from interleave.report.marks import measured_on, measured_with
from interleave.report.runs import Page, Run
from interleave.report.status import versions_table


def page(**origin: object) -> Page:
    notebook = new_notebook(metadata={"interleave": {"commit": "0123456789abcdef", **origin}})
    return Page(Run("01_toy", "toy", "A toy"), "cpu", Path("01_toy.ipynb"), notebook)


@pytest.mark.parametrize(("dirty", "shown"), [(True, "0123456789, with changes"), (False, "0123456789")])
def test_a_commit_that_does_not_tell_all_says_so(dirty: bool, shown: str) -> None:
    (row,) = versions_table([page(dirty=dirty, python="3.11.2")])["rows"]
    assert row == [{"text": "A toy", "page": "book/pages/01_toy"}, shown, "3.11.2", "–", "–", "–"]


@pytest.mark.parametrize(
    ("simulated", "driver", "mark"),
    [(False, None, "measured-cpu"), (False, "555", "measured-gpu"), (True, "555", "simulated")],
)
def test_a_page_says_where_its_numbers_come_from(simulated: bool, driver: str | None, mark: str) -> None:
    notebook = new_notebook(metadata={"interleave": {"driver": driver}})
    assert (
        Page(Run("01_toy", "toy", "A toy", simulated=simulated), "gpu", Path("01_toy.ipynb"), notebook).mark
        == mark
    )


@pytest.mark.parametrize(
    ("kind", "mark"), [("cpu", "measured-cpu"), *((gpu, "measured-gpu") for gpu in ("cuda", "cuda:1", "mps"))]
)
def test_a_device_and_its_driver_give_the_same_mark(kind: str, mark: str) -> None:
    assert measured_on(kind) == mark
    if kind == "cpu":
        assert measured_with(place(kind).driver) == mark
