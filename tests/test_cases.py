"""The list of known cases names tests that exist, each case once and in order."""

from __future__ import annotations

import ast
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
CASES = yaml.safe_load((ROOT / "tests/cases.yaml").read_text("utf8"))


def defined(path: Path) -> set[str]:
    """The functions of a file of tests, and the test classes that it makes of state machines."""
    found = set()
    for node in ast.parse(path.read_text("utf8")).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


def test_every_named_test_exists() -> None:
    named = sorted({test for case in CASES for test in case["tests"]})
    files = {test.partition("::")[0] for test in named}
    there = {f"{file}::{name}" for file in files if (ROOT / file).is_file() for name in defined(ROOT / file)}
    assert [test for test in named if test not in there or "::" not in test] == []


def test_cases_are_numbered_and_say_what_they_are() -> None:
    numbers = [case["case"] for case in CASES]
    assert numbers == [*map(str, range(1, 7)), "6b", *map(str, range(7, 35))]
    assert all(case["tests"] and case["says"].endswith(".") for case in CASES)
    assert {key for case in CASES for key in case} == {"case", "says", "tests", "without"}
    assert all(len(case["tests"]) == len(set(case["tests"])) for case in CASES)
