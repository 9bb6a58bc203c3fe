"""Run one kind of test and keep what it found for the book's page on it: `python scripts/tested.py kills`.

Fuzzing and the soak keep theirs themselves (`tests/engine/long_run.py --record`, `tests/engine/soak.py --record`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import pytest
import yaml

from interleave.report.tested import begin_record, write_record

ROOT = Path(__file__).resolve().parents[1]


class Outcomes:
    """A plugin of pytest: what became of each test, why it was skipped and what it noted."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}
        self.reasons: dict[str, str] = {}
        self.noted: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            self.outcomes[report.nodeid] = report.outcome
        if report.skipped and isinstance(report.longrepr, tuple):
            self.reasons[report.nodeid] = report.longrepr[2].removeprefix("Skipped: ")
        if report.when == "teardown":
            self.noted[report.nodeid] = dict(report.user_properties)


def run(*arguments: str) -> Outcomes:
    found = Outcomes()
    pytest.main(["-q", "-p", "no:cacheprovider", *arguments], plugins=[found])
    return found


@click.group()
def main() -> None:
    os.chdir(ROOT)


@main.command()
def cases() -> None:
    """The tests that hold the engine to the cases of `tests/cases.yaml`, and what became of each."""
    listed = yaml.safe_load((ROOT / "tests/cases.yaml").read_text("utf8"))
    begun = begin_record("cases", "python scripts/tested.py cases")
    ran = run(*dict.fromkeys(test for case in listed for test in case["tests"]))
    outcomes: dict[str, Counter[str]] = defaultdict(Counter)
    reasons: dict[str, set[str]] = defaultdict(set)
    for name, outcome in ran.outcomes.items():
        test = "::".join(name.partition("[")[0].split("::")[:2])
        outcomes[test][outcome] += 1
        reasons[test] |= {ran.reasons[name]} if name in ran.reasons else set()
    found = [
        case | {"tests": {t: {**outcomes[t], "reasons": sorted(reasons[t])} for t in case["tests"]}}
        for case in listed
    ]
    write_record("cases", begun, {"cases": found})
    sys.exit("failed" in ran.outcomes.values())


@main.command()
@click.option("--count", type=click.IntRange(1), default=50, show_default=True)
def kills(count: int) -> None:
    """SIGKILL at random instants of a sweep of notebooks, so often to the runner and to its kernel."""
    os.environ["INTERLEAVE_KILLS"] = str(count)
    begun = begin_record("kills", f"python scripts/tested.py kills --count {count}")
    found = run("tests/report/test_killed_runs.py")
    tests = {
        name.rpartition("::")[2]: {"outcome": outcome, **found.noted[name]}
        for name, outcome in found.outcomes.items()
    }
    write_record("kills", begun, {"tests": tests})
    sys.exit(Counter(found.outcomes.values())["failed"] > 0)


@main.command()
@click.argument("folders", nargs=-1)
def coverage(folders: tuple[str, ...]) -> None:
    """Which lines of each package the fast tests in FOLDERS execute, in this process and in those they start."""
    folders = folders or tuple(f"tests/{layer}" for layer in ("schedule", "engine", "lab", "report"))
    begun = begin_record("coverage", " ".join(["python scripts/tested.py coverage", *folders]))
    with TemporaryDirectory() as kept:
        os.environ["COVERAGE_FILE"] = f"{kept}/coverage"
        tool = [sys.executable, "-m", "coverage"]
        tests = [*tool, "run", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", *folders]
        code = subprocess.run(tests, check=False).returncode
        subprocess.run([*tool, "combine", "--quiet"], check=True)
        subprocess.run([*tool, "json", "--quiet", "-o", f"{kept}/lines.json"], check=True)
        files = json.loads(Path(f"{kept}/lines.json").read_text("utf8"))["files"]
    packages: dict[str, Counter[str]] = defaultdict(Counter)
    for name, file in files.items():
        package = "kernels" if name.startswith("kernels/") else name.split("/")[2].removesuffix(".py")
        packages[package].update(
            files=1, lines=file["summary"]["num_statements"], covered=file["summary"]["covered_lines"]
        )
    found = {"tests": folders, "all_passed": code == 0, "packages": {k: dict(v) for k, v in packages.items()}}
    write_record("coverage", begun, found | {"coverage_version": metadata.version("coverage")})
    sys.exit(code)


if __name__ == "__main__":
    main()
