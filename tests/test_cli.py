"""The command line: helpful, light to start, one line and a documented exit code when it refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from interleave.cli.errors import OneLineErrors
from interleave.cli.main import main

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'kernels'}"}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "interleave", *arguments]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)


def test_help_shows_examples_and_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom interleave.cli.main import main\n"
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
    assert "unknown notebook 'nonesuch'" in done.stderr
    done = run("parms")
    assert done.returncode == 2
    assert "params" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run"], "name the notebooks to run or give --all, one of the two"),
        (["run", "05", "--all"], "name the notebooks to run or give --all, one of the two"),
        (["run", "05", "-p", "scale", "true"], "true and false are no numbers"),
        (["run", "05", "-p", "model", "nope", "--estimate"], "unknown model 'nope'"),
        (["run", "05", "-p", "rows", "[8, 8]", "--estimate"], "holds 8 twice"),
        (["run", "05_closed"], "did you mean '05_closed_batches'"),
        (["run", "05", "-p", "scal", "4"], "did you mean 'scale'"),
        (["run", "05", "-p", "scale", "3"], "'scale' = 3: input should be 1, 2, 4, 8 or 16"),
        (["run", "05", "-p", "seed", "1", "-p", "seed", "2"], "'seed' is given twice"),
        (["run", "05", "-p", "profile", "cpu"], "--profile"),
        (["run", "05", "--profile", "cpy"], "'cpy' is not one of"),
        (["run", "05", "--params-file", "nothing.yaml"], "cannot read nothing.yaml: "),
        (["params", "99"], "unknown notebook '99'"),
        (["try", "05_closed"], "did you mean '05_closed_batches'"),
        (["try", "05", "-p", "scal", "4"], "did you mean 'scale'"),
        (["try", "05", "-p", "seed", "1", "-p", "seed", "2"], "'seed' is given twice"),
        (["try", "05", "-p", "profile", "cpu"], "--profile"),
        (["try", "05", "--params-file", "nothing.yaml"], "cannot read nothing.yaml: "),
        (["publish", "99"], "unknown notebook '99'"),
    ],
)
def test_bad_runs_are_refused_before_anything_starts(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert said in result.output
    assert "Traceback" not in result.output


def test_estimate_reads_a_parameter_file_and_runs_nothing(tmp_path: Path) -> None:
    (tmp_path / "few.yaml").write_text("engines: [paged]\nbatches: [uniform]\nrecorded_runs: 100\n")
    chosen = ["--params-file", str(tmp_path / "few.yaml"), "-p", "recorded_runs", "2"]
    result = CliRunner().invoke(main, ["run", "05", "--estimate", *chosen])
    assert result.exit_code == 0, result.output
    assert "1 point, about" in result.output
    assert "paged, uniform8" in result.output


def test_params_alone_lists_the_notebooks() -> None:
    result = CliRunner().invoke(main, ["params"])
    assert result.exit_code == 0
    assert "05_closed_batches        Closed batches" in result.output.splitlines()


def test_params_lists_a_notebooks_parameters() -> None:
    result = CliRunner().invoke(main, ["params", "closed_batches"])
    assert result.exit_code == 0
    assert "05_closed_batches.ipynb: experiment closed_batches" in result.output
    assert "1 | 2 | 4 | 8 | 16" in result.output


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (ValueError("rows must be positive"), 2, "interleave: rows must be positive\n"),
        (OSError(28, "No space left on device"), 1, "No space left on device"),
        (RuntimeError("the run failed"), 1, "interleave: the run failed\n"),
        (KeyError("rows"), 1, "interleave: KeyError: 'rows'\n"),
        (KeyboardInterrupt(), 130, "interleave: interrupted; no result was written\n"),
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


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


def test_each_command_says_what_its_interruption_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that keep something, by what they keep; the others write at their end, if at all."""
    kept = {name: getattr(command.callback, "kept", None) for name, command in commands(main)}
    says = {name: what for name, what in kept.items() if what is not None}
    assert {name for name, what in says.items() if "goes on from there" in what} == {
        *("run", "report", "simulate sweep"),
    }
    assert {name for name, what in says.items() if "was measured by then is printed" in what} == {
        *("bench closed", "bench open", "bench peers"),
    }
    assert says.keys() - {"run", "report", "simulate sweep", "bench closed", "bench open", "bench peers"} == {
        *("weights", "generate", "book", "check", "gpu-run"),
    }

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("interleave.lab.sweep.run_sweep", interrupted)
    monkeypatch.setattr("interleave.lab.published.published_document", interrupted)
    done = CliRunner().invoke(main, ["simulate", "sweep", "--json", "never.json"])
    assert (done.exit_code, done.stderr) == (130, f"\ninterleave: interrupted; {says['simulate sweep']}\n")
    done = CliRunner().invoke(main, ["simulate", "published"])
    assert (done.exit_code, done.stderr) == (130, "\ninterleave: interrupted; no result was written\n")


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


def test_sigterm_ends_a_process_that_swallowed_it_once() -> None:
    """Python drops what is raised inside a destructor; the command asks again."""
    code = (
        "import os, signal, time\n"
        "from interleave.cli.terminal import unwind_on_sigterm\n"
        "unwind_on_sigterm(again_s=0.2)\n"
        "class Deaf:\n"
        "    def __del__(self):\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "        time.sleep(0.01)\n"
        "Deaf()\n"
        "print('swallowed', flush=True)\n"
        "time.sleep(60)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert (done.stdout, done.returncode) == ("swallowed\n", 143)


def test_sigterm_ends_a_process_whose_sleep_it_did_not_interrupt() -> None:
    """As one that arrives just before the sleep: here another thread receives it."""
    code = (
        "import signal, threading, time\n"
        "from interleave.cli.terminal import unwind_on_sigterm\n"
        "unwind_on_sigterm()\n"
        "def receive():\n"
        "    time.sleep(0.5)\n"
        "    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)\n"
        "threading.Thread(target=receive).start()\n"
        "time.sleep(300)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, check=False, timeout=50)
    assert done.returncode == 143


def test_an_unknown_config_is_refused_before_anything_is_measured() -> None:
    done = CliRunner().invoke(main, ["machine", "--config", "smollm"])
    assert done.exit_code == 2
    assert "smollm2-135m" in done.output
