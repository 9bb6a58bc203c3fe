"""Small real notebooks, built where a test wants them; the toys folder is importable like an experiment."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
DEFAULTS = """\
rows = 8
budget: int | None = None
loads = [0.5, 0.9]
sizes = [1, 2]
engines = ["paged"]
label = "a=b"
note = None
weights = {}
rate = 1.0
flag = True
profile = "quick"
measure = True"""


@pytest.fixture
def write_notebook(tmp_path: Path) -> Callable[..., Path]:
    """write_notebook(*code_cells, defaults=..., experiment=..., name=...) -> path of a template."""

    def write(
        *code: str,
        defaults: str = DEFAULTS,
        experiment: str = "toys.counting",
        name: str = "01_toy",
        kernel: str = "python3",
    ) -> Path:
        setup = f'from interleave.report.notebook import setup\nrun = setup("{experiment}", globals())'
        sources = [defaults, setup, *code]
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


@pytest.fixture(scope="session")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a copy of the book, built once with nothing wrong."""
    from toys.booklet import copy_of_the_book

    from interleave.report.book import build_site
    from interleave.report.runs import BOOK

    root = copy_of_the_book(tmp_path_factory.mktemp("book"))
    assert build_site(root, BOOK, say=lambda line: None) == root / "_build/html/index.html"
    return root
