"""The command line: helpful, light to start, one line and a documented exit code when it refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from interleave.cli import OneLineErrors, main

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'kernels'}"}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "interleave", *arguments]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)


def test_help_shows_examples_and_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom interleave.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print([m for m in ('torch', 'pandas', 'papermill', 'matplotlib', 'pydantic') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    assert "Examples:" in done.stdout
    assert done.stdout.rstrip().endswith("[]")


@pytest.mark.parametrize("name", sorted(main.commands))
def test_every_command_has_help_with_an_example(name: str) -> None:
    result = CliRunner().invoke(main, [name, "--help"])
    assert result.exit_code == 0
    assert "Example" in result.output


def test_version() -> None:
    assert run("--version").stdout.startswith("interleave ")


def test_refusals_take_one_line_and_exit_2() -> None:
    done = run("params", "nonesuch")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "no notebook 'nonesuch'" in done.stderr
    done = run("parms")
    assert done.returncode == 2
    assert "params" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (ValueError("rows must be positive"), 2, "interleave: rows must be positive\n"),
        (OSError(28, "No space left on device"), 1, "No space left on device"),
        (RuntimeError("the run failed"), 1, "interleave: the run failed\n"),
        (KeyError("rows"), 1, "interleave: KeyError: 'rows'\n"),
        (KeyboardInterrupt(), 130, "interleave: interrupted"),
    ],
)
def test_errors_become_one_line(raised: BaseException, code: int, said: str) -> None:
    group = OneLineErrors("group")

    @group.command()
    def fail() -> None:
        raise raised

    result = CliRunner().invoke(group, ["fail"])
    assert result.exit_code == code
    assert said in result.output
    assert result.output.count("\n") <= 2  # click ends the interrupted line first


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERLEAVE_DEBUG", "1")
    group = OneLineErrors("group")

    @group.command()
    def fail() -> None:
        raise ValueError("rows")

    result = CliRunner().invoke(group, ["fail"])
    assert isinstance(result.exception, ValueError)


def test_exit_codes_of_commands_pass_through() -> None:
    group = OneLineErrors("group")

    @group.command()
    @click.pass_context
    def stale(context: click.Context) -> None:
        context.exit(1)

    assert CliRunner().invoke(group, ["stale"]).exit_code == 1
