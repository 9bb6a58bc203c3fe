"""Records of what the tests did, one JSON file a kind of test, written by whoever ran them. Runs nothing."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interleave.documents import read_document
from interleave.lab.code_hash import code_hash
from interleave.lab.files import write_atomically
from interleave.lab.paths import repo_root
from interleave.lab.provenance import cpu_name, git_state, package_versions, utc_now

ENGINE = ("src/interleave/schedule", "src/interleave/model", "src/interleave/engine", "kernels")
EVERYTHING = ("src", "kernels", "tests")
# By record, in the order of the page: the folders whose code it is about.
RECORDS: dict[str, tuple[str, ...]] = {
    "cases": EVERYTHING,
    "fuzz": (*ENGINE, "tests/engine", "tests/schedule"),
    "soak": (*ENGINE, "tests/engine"),
    "kills": ("src/interleave/lab", "src/interleave/report", "tests/report"),
    "mutation": ("src/interleave/schedule", "tests/schedule"),
    "coverage": EVERYTHING,
}


def record_path(name: str, root: Path) -> Path:
    return root / "data" / "results" / "tests" / f"{name}.json"


def code_of(name: str, root: Path) -> str:
    """The hash of the code that a record is about, as it is now."""
    return code_hash((path for folder in RECORDS[name] for path in (root / folder).rglob("*.py")), root)


def begin_record(name: str, command: str) -> dict[str, Any]:
    """Where a record comes from, to be taken before the run: when, the code as it is now, the machine."""
    root = repo_root()
    commit, dirty = git_state(root)
    return {
        "date": utc_now(),
        "commit": commit,
        "dirty": dirty,
        "code": code_of(name, root),
        "device": cpu_name(),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": package_versions(("torch", "numba", "hypothesis", "pytest")),
        "command": command,
    }


def write_record(name: str, begun: Mapping[str, Any], found: Mapping[str, Any]) -> Path:
    """File what a run found, with where it came from; returns the file's path. Replaces an earlier record."""
    path = record_path(name, repo_root())
    write_atomically(path, json.dumps({**begun, **found}, indent=1, allow_nan=False) + "\n")
    return path


def read_records(root: Path) -> dict[str, dict[str, Any]]:
    """Every record that there is, by name. DocumentError names a file that is no JSON."""
    paths = {name: record_path(name, root) for name in RECORDS}
    return {name: read_document(path) for name, path in paths.items() if path.is_file()}
