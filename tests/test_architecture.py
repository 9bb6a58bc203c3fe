"""The house rules that import-linter does not express, as an AST walk and fresh interpreters."""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

from interleave.lab.code_hash import MEASURED_MODULES, SIMULATED_MODULES

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src" / "interleave"
LAB = SRC / "lab"
KEEPING = {
    "documents",
    *(f"lab/{name}" for name in ("choices", "code_hash", "devices", "files", "latency_fields", "latency_file",
                                 "machine_store", "measure", "paths", "point_table", "provenance", "results", "sidecar",
                                 "tables", "timing")),
}  # fmt: skip
"""What finds, keeps and describes points; none of it moves a number."""
KERNEL_USERS = {
    "src/interleave/model/attention/triton.py",
    "src/interleave/model/ops/triton.py",
    "src/interleave/lab/layout_calls.py",
    "src/interleave/lab/kernel_report.py",
}
TORCH_FREE = [
    *sorted(path for path in (SRC / "schedule").glob("*.py")),
    SRC / "engine" / "batched.py",
    SRC / "engine" / "loop.py",
    SRC / "engine" / "ladder.py",
    SRC / "engine" / "records.py",
    SRC / "lab" / "workload.py",
    SRC / "lab" / "metrics.py",
    SRC / "lab" / "results.py",
    SRC / "lab" / "latency_model.py",
    SRC / "lab" / "latency_file.py",
    SRC / "lab" / "simulator.py",
    SRC / "lab" / "simulate_serve.py",
    SRC / "lab" / "slo_capacity.py",
    SRC / "lab" / "timeline.py",
    SRC / "lab" / "published.py",
    SRC / "lab" / "validation.py",
    SRC / "lab" / "roofline.py",
    SRC / "lab" / "machine_store.py",
    SRC / "lab" / "peers" / "document.py",  # and so all that it is made from
    SRC / "cli" / "main.py",
]


def imported(source: str) -> set[str]:
    """Absolute module names that a source imports, wherever in it the import stands."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")


def closure(module: str, without: Collection[str] = ()) -> set[str]:
    """`module` and what it imports of the package, directly or not, as paths in it; `without` is not entered."""
    found: set[str] = set()
    todo = [module]
    while todo:
        name = todo.pop()
        path = SRC / f"{name}.py"
        if name in found or name in without or not path.is_file():
            continue
        found.add(name)
        names = (other.split(".") for other in imported(path.read_text()))
        todo += ["/".join(parts[1:]) for parts in names if parts[0] == "interleave"]
    return found


@pytest.mark.parametrize("module", [module_name(file) for file in TORCH_FREE])
def test_module_imports_no_torch(module: str) -> None:
    """Importing it, and all that it imports, leaves torch out: a simulation starts at once."""
    code = f"import sys, {module}; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'kernels'}", "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "False"


def test_every_module_that_can_move_a_simulated_number_is_hashed_with_it() -> None:
    """Of a sweep exactly its imports; of a timeline its own file too, without what reads and writes documents."""
    storage = {"lab/files", "lab/paths"}
    hashed = set(SIMULATED_MODULES) | {f"schedule/{path.stem}" for path in (SRC / "schedule").glob("*.py")}
    swept = closure("lab/sweep_point", storage)
    assert {name for name in swept if not name.startswith("schedule/")} == set(SIMULATED_MODULES)
    assert swept <= hashed
    documents = {*storage, "documents", "lab/code_hash", "lab/latency_file", "lab/provenance"}
    assert closure("lab/timeline", documents) <= hashed | {"lab/timeline"}


@pytest.mark.parametrize("name", sorted(path.stem for path in (LAB / "experiments").glob("[!_]*.py")))
def test_every_module_that_can_move_a_measured_number_is_hashed_with_it(name: str) -> None:
    """Of an experiment exactly its imports in the lab, less those that find, keep and describe points. `serving` is
    not entered: what only a target for the step needs is named where there is one."""
    experiment = importlib.import_module(f"interleave.lab.experiments.{name}")
    found = closure(f"lab/experiments/{name}", KEEPING | {"lab/serving"})
    own = {f"lab/experiments/{name}", *(f"lab/{module}" for module in MEASURED_MODULES)}
    wanted = {path for path in found - own if path.startswith("lab/")}
    assert {f"lab/{module}" for module in getattr(experiment, "MODULES", ())} == wanted


def test_kernels_have_few_users() -> None:
    """Only the Triton backends and the two things about kernels themselves import the kernels."""
    users = {
        str(path.relative_to(ROOT))
        for path in SRC.rglob("*.py")
        if any(name.split(".")[0] == "interleave_kernels" for name in imported(path.read_text()))
    }
    assert users <= KERNEL_USERS


def test_notebooks_import_lab_and_report_only() -> None:
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text())["cells"]
        source = "\n".join(
            "\n".join(
                line for line in "".join(cell["source"]).splitlines() if not line.startswith(("%", "!"))
            )
            for cell in cells
            if cell["cell_type"] == "code"
        )
        ours = {
            name for name in imported(source) if name.split(".")[0] in ("interleave", "interleave_kernels")
        }
        wrong = {
            name
            for name in ours - {"interleave"}
            if name.split(".")[:2] not in (["interleave", "lab"], ["interleave", "report"])
        }
        assert not wrong, f"{path.name} imports {sorted(wrong)}"


def test_package_inits_are_empty() -> None:
    """A package's name promises nothing; modules are imported by their own."""
    for package in (SRC, ROOT / "kernels" / "interleave_kernels"):
        for path in package.rglob("__init__.py"):
            body = ast.parse(path.read_text()).body
            docstring_only = all(
                isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) for node in body
            )
            assert docstring_only, f"{path.relative_to(ROOT)} holds code"


def test_imports_inside_the_package_are_absolute() -> None:
    """`from interleave.x import y` can be searched for; a relative import can't."""
    for path in SRC.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path.relative_to(ROOT)}:{node.lineno}"
