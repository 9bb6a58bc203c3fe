"""What a page shows, for tests that look for a sentence or a cell in it."""

from __future__ import annotations

from pathlib import Path

import nbformat


def shown_on(page: Path) -> str:
    """All outputs of an executed notebook, as one text."""
    notebook = nbformat.read(page, as_version=4)
    return "".join(str(output) for cell in notebook.cells for output in cell.get("outputs", []))
