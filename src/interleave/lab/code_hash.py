"""A hash of source code that only code moves: not comments, docstrings, layout or the Python version.

Knows which folders and modules decide what a measured point is, and a simulated one. Does not know about points.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

# What a measurement depends on, relative to the checkout; the experiment's own file comes on top.
MEASURED_FOLDERS = (
    "src/interleave/schedule",
    "src/interleave/model",
    "src/interleave/engine",
    "kernels/interleave_kernels",
)
# Modules of the lab that make the numbers or the requests.
MEASURED_MODULES = ("arrivals", "corpus", "metrics", "quantiles", "serving", "trace", "workload")
# How torch's threads wait for each other, and data that is neither code nor configuration.
MEASURED_FILES = ("src/interleave/openmp.py",)
MEASURED_DATA = ("src/interleave/model/configs/*.json", "data/corpus/*.txt")
# What a point of a sweep depends on, relative to the package, with all of `schedule`: `lab/sweep_point` and what it
# imports, directly or not, less where files lie and how they are written. tests/test_architecture.py holds it to that.
SIMULATED_MODULES = (
    *(f"engine/{name}" for name in ("batched", "ladder", "log_recorder", "loop", "records")),
    *(f"lab/{name}" for name in ("arrivals", "corpus", "deployment", "disaggregation", "fleet", "gap_histogram",
                                 "latency_model", "metrics", "nnls", "plan_features", "published_calibration",
                                 "published_runs", "quantiles", "reference", "replica", "request_table", "routing",
                                 "simulate_serve", "simulated_executor", "simulator", "slo_capacity", "step_fit",
                                 "step_prediction", "sweep_point", "tables", "token_times", "trace", "virtual_clock",
                                 "workload")),
)  # fmt: skip


def measured_sources(root: Path, *more: Path) -> list[Path]:
    """Every file that a measured point depends on, with `more` (experiment files), sorted.

    Raises ValueError naming a folder that holds no Python file or a file that does not exist.
    """
    found = {path.resolve() for path in more}
    for folder in MEASURED_FOLDERS:
        files = list((root / folder).rglob("*.py"))
        if not files:
            raise ValueError(f"no Python files under {root / folder}: cannot tell which code was measured")
        found.update(path.resolve() for path in files)
    found.update((root / f"src/interleave/lab/{name}.py").resolve() for name in MEASURED_MODULES)
    found.update((root / name).resolve() for name in MEASURED_FILES)
    for pattern in MEASURED_DATA:
        found.update(path.resolve() for path in root.glob(pattern))
    for path in more:
        if not path.is_file():
            raise ValueError(f"no source file {path}: cannot tell which code was measured")
    return sorted(found)


def simulation_code(root: Path, *more: str) -> str:
    """The hash of all code that a simulated number depends on; more: modules on top, named as in SIMULATED_MODULES.

    Raises ValueError as `code_hash` does.
    """
    package = root / "src/interleave"
    files = [package / f"{name}.py" for name in (*SIMULATED_MODULES, *more)]
    return code_hash([*files, *(package / "schedule").glob("*.py")], root)


def code_hash(paths: Iterable[Path], root: Path) -> str:
    """SHA-256 over the files' names relative to `root` and their syntax trees (bytes, if not Python).

    Raises ValueError naming a file that is missing or does not parse.
    """
    digest = hashlib.sha256()
    root = root.resolve()
    for path in sorted(path.resolve() for path in paths):
        try:
            content = path.read_bytes()
            pieces = _pieces(ast.parse(content, filename=str(path))) if path.suffix == ".py" else None
        except (OSError, SyntaxError) as error:
            raise ValueError(f"cannot hash the code in {path}: {error}") from error
        name = path.relative_to(root) if path.is_relative_to(root) else path.name
        digest.update(f"{name}\n".encode())
        if pieces is None:
            digest.update(content)
        else:
            for piece in pieces:
                digest.update(piece.encode())
        digest.update(b"\n")
    return digest.hexdigest()


def _pieces(node: ast.AST) -> Iterator[str]:
    """The tree as text, without docstrings, empty fields, contexts and string prefixes.

    `ast.dump` would do, but what it prints for an empty field changes with the Python version.
    """
    yield f"({type(node).__name__}"
    for name, value in ast.iter_fields(node):
        if name in ("ctx", "kind", "type_comment") or value is None or value == []:
            continue
        if name == "body" and isinstance(value, list) and _is_docstring(node, value[0]):
            value = value[1:]
        yield f" {name}="
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, ast.AST):
                yield from _pieces(item)
            else:
                yield repr(item)
    yield ")"


def _is_docstring(node: ast.AST, first: ast.AST) -> bool:
    return (
        isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        and isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    )
