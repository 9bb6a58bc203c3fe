"""Run one kind of test and keep what it found for the book's page on it: `python scripts/tested.py kills`.

Fuzzing and the soak keep theirs themselves (`tests/engine/long_run.py --record`, `tests/engine/soak.py --record`).
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import click
import pytest

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


if __name__ == "__main__":
    main()
