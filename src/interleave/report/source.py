"""Reads a notebook template: its one parameters cell and the experiment that it meets.

Everything is parsed with `ast`; nothing is executed. What the values mean is `parameters.py`'s
business, whether the outputs are fit to publish is `checks.py`'s.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbformat import NotebookNode

PARAMETERS_TAG = "parameters"
INJECTED_TAG = "injected-parameters"
NOT_PYTHON = (SyntaxError, ValueError, RecursionError, MemoryError)  # all that the parser answers with
CAPTION_ROLE = "caption"  # an output that only JupyterLab needs: in the book the figure carries it


class NotebookError(ValueError):
    """A notebook that is not laid out as the runner needs it; the message names the file."""


@dataclass(frozen=True)
class NotebookSource:
    """A template as read from disk.

    defaults: the literals of the parameters cell, in order.
    experiment_name: first argument of the notebook's `setup(...)` call.
    """

    path: Path
    notebook: NotebookNode
    defaults: dict[str, Any]
    experiment_name: str


def read_source(path: Path) -> NotebookSource:
    """Read and check the layout of the template at `path`.

    Raises NotebookError when it is not a notebook, when its first code cell is not the only cell
    tagged `parameters`, when that cell holds anything but literals, or when no `setup(...)` follows.
    """
    notebook = load_notebook(path)
    defaults = literals(parameters_cell(notebook, path.name).source, path.name)
    return NotebookSource(path, notebook, defaults, _experiment_name(notebook, path.name))


def load_notebook(path: Path) -> NotebookNode:
    """Parse and validate a notebook file of format 4."""
    import nbformat  # takes a second that a running notebook need not wait for

    try:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
    except OSError as error:
        raise NotebookError(f"cannot read {path}: {error.strerror}") from error
    except Exception as error:  # nbformat raises its own, jsonschema's and json's errors alike
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise NotebookError(f"{path} is not a valid notebook: {reason}") from error
    return notebook


def parameters_cell(notebook: NotebookNode, name: str) -> NotebookNode:
    """The first code cell, which must be the one and only cell tagged `parameters`."""
    tagged = [cell for cell in notebook.cells if PARAMETERS_TAG in cell.metadata.get("tags", [])]
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if len(tagged) != 1:
        raise NotebookError(f"{name}: {len(tagged)} cells are tagged 'parameters'; there must be exactly one")
    if not code or code[0] is not tagged[0]:
        raise NotebookError(f"{name}: the cell tagged 'parameters' must be the first code cell")
    return tagged[0]


def literals(code: str, name: str) -> dict[str, Any]:
    """The assignments of a parameters cell, as `{name: value}`.

    Accepts `x = 1` and `x: int | None = None`; anything that is not the assignment of a literal to
    one name is a NotebookError (values derived from parameters belong to a later cell, because
    injected values land after the tagged one).
    """
    values: dict[str, Any] = {}
    try:
        body = ast.parse(code).body
    except NOT_PYTHON as error:
        raise NotebookError(f"{name}: the parameters cell is not Python: {error}") from error
    for statement in body:
        target, value = _assignment(statement)
        if target is None or value is None:
            raise NotebookError(
                f"{name}: parameters cell, line {statement.lineno}: only `name = literal` is allowed there; "
                "put anything else in the cell after it"
            )
        if target in values:
            raise NotebookError(
                f"{name}: parameters cell, line {statement.lineno}: {target!r} is assigned twice"
            )
        try:
            values[target] = ast.literal_eval(value)
        except (ValueError, TypeError, RecursionError) as error:
            raise NotebookError(
                f"{name}: parameters cell, line {statement.lineno}: the value of {target!r} is not a literal"
            ) from error
    return values


def literal_calls(notebook: NotebookNode, function: str) -> list[str]:
    """First arguments, where they are string literals, of calls `function(...)` or `x.function(...)`."""
    found = []
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        for node in ast.walk(parsed(cell.source)):
            if isinstance(node, ast.Call) and _called_name(node) == function and node.args:
                first = node.args[0]
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    found.append(first.value)
    return found


def parsed(code: str) -> ast.Module:
    """The tree of a cell; an empty one of what is no plain Python, such as IPython's magics."""
    try:
        return ast.parse(code)
    except NOT_PYTHON:
        return ast.Module([], [])


def _experiment_name(notebook: NotebookNode, name: str) -> str:
    found = literal_calls(notebook, "setup")
    if len(found) != 1:
        raise NotebookError(
            f'{name}: {len(found)} calls of setup("<experiment>", globals()); there must be exactly one, '
            "in the cell after the parameters"
        )
    return found[0]


def _assignment(statement: ast.stmt) -> tuple[str | None, ast.expr | None]:
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return statement.target.id, statement.value
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
        if isinstance(target, ast.Name):
            return target.id, statement.value
    return None, None


def _called_name(call: ast.Call) -> str | None:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else None
