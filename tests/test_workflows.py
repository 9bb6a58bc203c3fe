"""The workflows for GitHub call what this repository has: Make targets, commands and scripts."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from interleave.cli.main import main
from interleave.report.download import FOLDER
from interleave.report.runs import BOOK

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def steps(path: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(path.read_text())["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


def commands(path: Path) -> list[list[str]]:
    lines = [line for step in steps(path) for line in step.get("run", "").splitlines()]
    return [shlex.split(line) for line in lines]


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_command_exists(path: Path) -> None:
    assert commands(path)
    for program, *arguments in commands(path):
        if program == "make":
            assert set(arguments) <= targets()
        elif program == ".venv/bin/interleave":
            name, *rest = arguments
            with click.Context(main) as context:
                main.commands[name].make_context(name, rest, parent=context)  # refuses unknown options
        else:
            assert os.access(ROOT / program, os.X_OK), program
            assert arguments == []


def test_the_tests_are_the_script_that_runs_anywhere() -> None:
    assert commands(ROOT / ".github/workflows/tests.yml") == [[".ci/run"]]


def test_the_published_book_is_built_from_what_is_committed() -> None:
    """No workflow runs a notebook, and what is uploaded is what the build leaves."""
    path = ROOT / ".github/workflows/pages.yml"
    assert not {"run", "try", "report"} & {word for command in commands(path) for word in command}
    uploaded = {
        step["uses"].split("@")[0]: step["with"]["path"]
        for step in steps(path)
        if "path" in step.get("with", {})
    }
    assert uploaded == {
        "actions/upload-artifact": f"_build/{FOLDER}.zip",
        "actions/upload-pages-artifact": BOOK.output,
    }
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"^download: setup\n\t\$\(BIN\)/interleave book --zip$", makefile, re.MULTILINE)
