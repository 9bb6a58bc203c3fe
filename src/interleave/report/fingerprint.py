"""Whether a published page still says what the sources say.

Two keys. A point key (made by `lab.results`) covers what a measurement depends on; the page key adds
what only its presentation depends on: the notebook's code and the code that draws. A page whose page
key alone differs is rendered again from stored points; one whose points differ is stale.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from interleave.report.source import INJECTED_TAG, PARAMETERS_TAG, parsed

DRAWING_PACKAGES = ("interleave.report", "interleave.lab")
NOTEBOOK_MODULE = "interleave.report.notebook"


KEY_PARTS = ("code", "parameters", "figures_code", "point_keys")


def page_key(block: Mapping[str, Any]) -> str:
    """One hash over everything that a page is made from: the KEY_PARTS of its `interleave` block."""
    return _hash(json.dumps([block[part] for part in KEY_PARTS], sort_keys=True))


def notebook_code_hash(notebook: NotebookNode) -> str:
    """The code cells, less the two parameter cells (parameters are hashed as values).

    Prose, tags, outputs and trailing white space make no difference.
    """
    sources = []
    for cell in notebook.cells:
        is_parameters = {PARAMETERS_TAG, INJECTED_TAG} & set(cell.metadata.get("tags", []))
        if cell.cell_type == "code" and not is_parameters and cell.source.strip():
            sources.append("\n".join(line.rstrip() for line in cell.source.strip().splitlines()))
    return _hash(json.dumps(sources))


def figures_code_hash(notebook: NotebookNode) -> str:
    """The modules that draw a notebook's figures and tables, with what those import to draw."""
    contents = {
        name: _hash(path.read_text("utf8")) for name, path in sorted(imported_modules(notebook).items())
    }
    return _hash(json.dumps(contents, sort_keys=True))


def imported_modules(notebook: NotebookNode) -> dict[str, Path]:
    """`{module name: file}` of the modules that a notebook's cells import, directly or through modules
    of `report` that draw; what `report.notebook` and `lab` import to do their work draws nothing."""
    found: dict[str, Path] = {}
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    while sources:
        for name in _imported_names(sources.pop()):
            path = _module_file(name) if name.startswith(DRAWING_PACKAGES) and name not in found else None
            if path is not None:
                found[name] = path
                draws = name.startswith("interleave.report") and name != NOTEBOOK_MODULE
                sources += [path.read_text("utf8")] if draws else []
    return found


def _imported_names(source: str) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def _module_file(name: str) -> Path | None:
    """The file of a module, None for a package or for a name inside a module."""
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:  # `from module import function`: the longer name is no module
        return None
    if spec is None or spec.origin is None or spec.submodule_search_locations is not None:
        return None
    return Path(spec.origin)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
