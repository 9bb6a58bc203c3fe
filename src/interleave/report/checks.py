"""Judges an executed notebook by what it contains, never by what a tool's metadata says of it.

The runner asks before it publishes, the book before Sphinx. This half knows what a *run* must leave
(declared figures and numbers, no machine's paths); `pages.py` knows what a *page* may show.
"""

from __future__ import annotations

import json
import math
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from interleave.report.pages import page_faults
from interleave.report.source import literal_calls

_ROOTS = "home|Users|root|tmp|var|opt|mnt|media|srv|work|workspace|data|private|usr|content|kaggle|scratch"
ABSOLUTE_PATH = re.compile(
    rf"(?<![\w/.:~%-])(?:/(?:{_ROOTS})(?:/[\w.+@-]+)+|[A-Za-z]:\\[\w.+ -]+\\[\w.+\\ -]+)"
)


def faults(notebook: NotebookNode) -> list[str]:
    """Everything that keeps an executed notebook from being published; cells are counted from 1."""
    return [*page_faults(notebook), *run_faults(notebook)]


def run_faults(notebook: NotebookNode) -> list[str]:
    """Missing figures and numbers, numbers that are not finite, absolute paths in outputs."""
    return [*_declared_faults(notebook), *_path_faults(notebook)]


def numbers(notebook: NotebookNode) -> dict[str, NotebookNode]:
    """What `run.glue` recorded: `{name: {value, unit, text}}`, in order."""
    return {output["name"]: output for output in _recorded(notebook, "number")}


def _recorded(notebook: NotebookNode, kind: str) -> Iterator[Any]:
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            block = output.get("metadata", {}).get("interleave", {})
            if kind in block:
                yield block[kind]


def _declared_faults(notebook: NotebookNode) -> Iterator[str]:
    drawn = set(_recorded(notebook, "figure"))
    for name in literal_calls(notebook, "figure"):
        if name not in drawn:
            yield f"figure {name!r} is declared, but the run did not show it"
    found = numbers(notebook)
    for name in literal_calls(notebook, "glue"):
        if name not in found:
            yield f"number {name!r} is declared, but the run did not record it"
    for name, number in found.items():
        for value in (number["value"], number.get("low", 0), number.get("high", 0)):
            if not isinstance(value, str) and (value is None or not math.isfinite(value)):
                yield f"number {name!r} is {value}, which is not finite"


def _path_faults(notebook: NotebookNode) -> Iterator[str]:
    here = {str(Path.home()), sys.prefix, tempfile.gettempdir(), str(Path.cwd())} - {"/", ""}
    ours = re.compile(rf"(?<![\w~.-])(?:{'|'.join(map(re.escape, sorted(here)))})/[^\s'\"]*")
    for number, cell in enumerate(notebook.cells, 1):
        for output in cell.get("outputs", []):
            found = [
                match.group()
                for text in _texts(output)
                for pattern in (ABSOLUTE_PATH, ours)
                for match in pattern.finditer(text)
            ]
            if found:
                yield f"cell {number}: absolute path in the output: {found[0]}"


def _texts(output: NotebookNode) -> Iterator[str]:
    """Every text of an output; pictures are left out."""
    if output.output_type == "stream":
        yield output.text
    elif output.output_type == "error":
        yield "\n".join([output.evalue, *output.traceback])
    for mime, content in output.get("data", {}).items():
        if not mime.endswith(("image/png", "image/jpeg")):
            yield content if isinstance(content, str) else json.dumps(content)
