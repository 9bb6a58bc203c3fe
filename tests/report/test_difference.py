"""What moved between two runs, and how it is said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest

from interleave.report.difference import Moved, changed_parameters, difference, moved_numbers
from interleave.report.difference_text import change, markdown_box, noise, number_text, terminal_lines
from interleave.report.runs import Page, Run


def number(value: float | str, band: tuple[float, float] | None = None, **more: Any) -> dict[str, Any]:
    repeats = {} if band is None else {"low": band[0], "high": band[1], "digits": 2}
    return {"name": "n", "value": value, "unit": "s", "text": f"{value} s", **repeats, **more}


@pytest.fixture
def page(tmp_path: Path) -> Callable[..., Page]:
    """page(tier, **origin) -> an executed notebook on disk."""

    def make(tier: str = "quick", **origin: Any) -> Page:
        block = {"device": "a small CPU", "threads": 2, "started": "2026-01-02T03:04:05", **origin}
        notebook = nbformat.v4.new_notebook(metadata={"interleave": block})
        path = tmp_path / f"{tier}.ipynb"
        nbformat.write(notebook, path)
        return Page(Run("01_toy", "toy", "A toy"), tier, path, notebook)

    return make


@pytest.mark.parametrize(
    ("before", "after", "said", "told"),
    [
        (number(2.0), number(1.5), "-25%", "unknown"),
        (number(2.0), number(2.5), "+25%", "unknown"),
        (number(2.0), number(7.0), "3.5 times", "unknown"),
        (number(2.0), number(2.0), "same", "–"),
        (number(0), number(3), "+3", "unknown"),
        (number(1.0), number(-1.0), "-2.0", "unknown"),
        (number("paged"), number("mixed"), "another", "–"),
        (number("paged"), number("paged"), "same", "–"),
        (number(2.0), None, "–", "–"),
        (number(2.0, (1.9, 2.1)), number(2.2, (2.05, 2.4)), "+10%", "within"),
        (number(2.0, (1.9, 2.1)), number(2.2, (2.15, 2.4)), "+10%", "beyond"),
        (number(2.0, (1.9, 2.1)), number(2.05), "+2.5%", "within"),
    ],
)
def test_a_move_in_words(before: Any, after: Any, said: str, told: str) -> None:
    one = Moved("n", before, after)
    assert (change(one), noise(one)) == (said, told)


def test_the_farthest_moves_come_first_and_what_has_no_pair_last() -> None:
    old = {"gone": number(1), "still": number(1), "up": number(1), "down": number(9), "word": number("a")}
    new = {"still": number(1), "up": number(2), "down": number(3), "word": number("b"), "fresh": number(1)}
    names = [one.name for one in moved_numbers(old, new)]
    assert names == ["word", "down", "up", "still", "fresh", "gone"]


def test_parameters_that_differ_less_those_of_the_run() -> None:
    old = {"rows": 8, "loads": [1], "profile": "cpu", "measure": True, "gone": 1}
    new = {"rows": 16, "loads": [1], "profile": "quick", "measure": False}
    assert changed_parameters(old, new) == {"rows": (8, 16), "gone": (1, None)}


def test_a_range_is_printed_as_its_number_is() -> None:
    assert number_text(number(2.0, (1.913, 2.144))) == "2.0 s [1.9 to 2.1]"
    assert number_text(None) == "–"


def test_the_terminal_and_the_page_say_the_same(page: Callable[..., Page]) -> None:
    before = page("quick", parameters={"budget": None}, numbers={"wall": number(2.0), "best": number("a|b")})
    after = page(
        "cpu",
        device="a large CPU",
        parameters={"budget": 8},
        numbers={"wall": number(1.0, mark="simulated"), "best": number("a|b")},
    )
    found = difference(before, after)
    lines = terminal_lines(found)
    assert lines[0] == "before: profile quick, a small CPU, 2026-01-02 03:04 UTC"
    assert "  budget: null -> 8" in lines
    assert lines.index("wall    2.0 s   1.0 s  -50%    unknown") < lines.index(
        "best    a|b s   a|b s  same    –"
    )
    box = markdown_box(found)
    assert box.startswith(":::{admonition} A try: `budget` `8` instead of `null`\n:class: note il-try\n")
    assert "| `wall` | 2.0 s {mark}`measured-cpu` | 1.0 s {mark}`simulated` | -50% | unknown |" in box
    assert r"a\|b s | a\|b s" in box
    for caveat in (
        "no published page of profile cpu, so this compares with profile quick",
        "another device: a small CPU before, a large CPU now",
    ):
        assert caveat in "\n".join(lines)
        assert caveat in box


def test_a_parameter_is_explained_in_the_words_of_its_experiment(page: Callable[..., Page]) -> None:
    usual = {"experiment": "closed_batches", "parameters": {"chunk_budget": None, "gone": 1}}
    found = difference(page(**usual), page(**usual | {"parameters": {"chunk_budget": 8}}))
    meaning = "prompt positions in a step; null takes 512 / scale"
    assert terminal_lines(found)[2:5] == [
        "  chunk_budget: null -> 8",
        f"    {meaning}",
        "  gone: 1 -> null",
    ]
    assert f"`chunk_budget`: {meaning}.\n" in markdown_box(found)


def test_nothing_changed_is_said_too(page: Callable[..., Page]) -> None:
    found = difference(page(), page())
    assert "  no parameter differs" in terminal_lines(found)
    assert "this notebook records no number" in terminal_lines(found)
    assert "no parameter differs" in markdown_box(found)
