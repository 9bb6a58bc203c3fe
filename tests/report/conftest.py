"""Small real notebooks, built where a test wants them; the toys folder is importable like an experiment."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))  # before the import of a toy

from toys import counting  # noqa: E402


@pytest.fixture
def write_notebook(tmp_path: Path) -> Callable[..., Path]:
    """write_notebook(*code_cells, before=..., defaults=..., experiment=..., name=...) -> path of a template.

    `before` comes ahead of the setup cell, for notebooks that end before they need the package.
    """

    def write(
        *code: str,
        before: str = "",
        defaults: str = counting.PARAMETERS_CELL,
        experiment: str = "toys.counting",
        name: str = "01_toy",
        kernel: str = "python3",
    ) -> Path:
        setup = f'from interleave.report.notebook import setup\nrun = setup("{experiment}", globals())'
        sources = [defaults, *filter(None, [before]), setup, *code]
        cells = [nbformat.v4.new_markdown_cell("# A toy\n\nDoes it run?", id="title")]
        cells += [nbformat.v4.new_code_cell(text, id=f"cell-{i}") for i, text in enumerate(sources)]
        cells[1].metadata["tags"] = ["parameters"]
        notebook = nbformat.v4.new_notebook(cells=cells)
        notebook.metadata["kernelspec"] = {"name": kernel, "display_name": "Python 3", "language": "python"}
        notebook.metadata["language_info"] = {"name": "python"}
        path = tmp_path / f"{name}.ipynb"
        nbformat.write(notebook, path)
        return path

    return write


@pytest.fixture
def checkout(tmp_path: Path, write_notebook: Callable[..., Path]) -> Path:
    """A committed checkout whose only experiment is the counting toy."""
    from toys.clone import DRAW, NAME, NUMBERS, make_clone

    return make_clone(tmp_path / "checkout", write_notebook(DRAW, NUMBERS, experiment="counting", name=NAME))


@pytest.fixture(scope="session")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a copy of the book, built once with nothing wrong."""
    from toys.booklet import copy_of_the_book

    from interleave.report.book import build_site
    from interleave.report.runs import BOOK

    root = copy_of_the_book(tmp_path_factory.mktemp("book"))
    assert build_site(root, BOOK, say=lambda line: None) == root / "_build/html/index.html"
    return root


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where runs of this test publish and store; its own cache folder and an importable toys folder."""
    folder = tmp_path / "out"
    monkeypatch.setenv("INTERLEAVE_OUT", str(folder))
    monkeypatch.setenv("INTERLEAVE_CACHE", str(tmp_path / "cache"))
    paths = [HERE, ROOT / "src", ROOT / "kernels"]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, paths)))
    return folder
