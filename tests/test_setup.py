"""`make` and `.ci/setup` as a newcomer meets them, with stand-in interpreters and no network."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOOLS = "bash sh env cat cmp cp dirname grep head mkdir tail awk tee rm".split()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder, with a space in its name, that holds what set-up reads; `bin` beside it is all of PATH."""
    folder = tmp_path / "a clone"
    (folder / ".ci").mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / "setup", folder / ".ci" / "setup")
    (folder / "requirements.lock").write_text(
        "numpy==1.0\ntorch==2.13.0\ntransformers==5.24.0\ntriton==3.7.1\n"
    )
    (folder / "pyproject.toml").write_text("[project]\n")
    (tmp_path / "bin").mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found, tool
        (tmp_path / "bin" / tool).symlink_to(found)
    return folder


def stand_in(path: Path, *, version: str, recent: bool, has_torch: bool = True) -> None:
    """A python that answers set-up's questions, copies itself as a venv and writes down each pip call."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"""#!/usr/bin/env bash
case "$*" in
  --version) echo "Python {version}" ;;
  *version_info*) exit {0 if recent else 1} ;;
  *find_spec*) exit {0 if has_torch else 1} ;;
  "-m venv"*) for last; do :; done; mkdir -p "$last/bin" && cp "$0" "$last/bin/python" ;;
  "-m pip"*) echo "$*" >>pip-calls ;;
esac
""")
    path.chmod(0o755)


def run_setup(clone: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(clone / ".ci" / "setup"), *arguments],
        env={"PATH": str(clone.parent / "bin"), **environment},
        cwd=clone.parent,
        capture_output=True,
        text=True,
        check=False,
    )


def pip_calls(clone: Path) -> list[str]:
    calls = clone / "pip-calls"
    return calls.read_text().splitlines() if calls.exists() else []


def test_no_python_is_one_clear_message(clone: Path) -> None:
    done = run_setup(clone)
    assert done.returncode == 1
    assert "needs Python 3.11 or later; found: none" in done.stderr
    assert not (clone / ".venv").exists()


def test_an_old_python_is_named(clone: Path) -> None:
    stand_in(clone.parent / "bin" / "python3", version="3.9.2", recent=False)
    done = run_setup(clone)
    assert done.returncode == 1
    assert "found: python3 (Python 3.9.2)" in done.stderr


def test_an_unknown_mode_is_refused(clone: Path) -> None:
    done = run_setup(clone, "sytem")
    assert done.returncode == 1
    assert "TORCH=sytem is unknown; it is lock or system" in done.stderr


def test_a_recent_python_is_found_behind_an_old_one_and_a_second_call_does_nothing(clone: Path) -> None:
    stand_in(clone.parent / "bin" / "python3", version="3.9.2", recent=False)
    stand_in(clone.parent / "bin" / "python3.12", version="3.12.1", recent=True)
    first = run_setup(clone)
    assert first.returncode == 0, first.stderr
    assert "making .venv with python3.12 (Python 3.12.1)" in first.stdout
    assert "2 to 8 minutes" in first.stdout
    lock, project = pip_calls(clone)
    assert lock.endswith("-r requirements.lock")
    assert project.endswith("-e . --no-deps --no-build-isolation")
    second = run_setup(clone)
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")
    assert len(pip_calls(clone)) == 2


def test_a_changed_lock_is_installed_again(clone: Path) -> None:
    stand_in(clone.parent / "bin" / "python3.11", version="3.11.7", recent=True)
    run_setup(clone)
    with (clone / "requirements.lock").open("a") as lock:
        lock.write("pandas==3.1.1\n")
    done = run_setup(clone)
    assert "making .venv" not in done.stdout
    assert "installing 5 packages" in done.stdout
    assert len(pip_calls(clone)) == 4


def test_a_moved_folder_gets_a_new_environment(clone: Path) -> None:
    stand_in(clone.parent / "bin" / "python3.11", version="3.11.7", recent=True)
    run_setup(clone)
    moved = clone.rename(clone.parent / "moved")
    done = run_setup(moved)
    assert "another place or mode" in done.stdout
    assert len(pip_calls(moved)) == 4


def test_system_torch_leaves_its_packages_out_of_the_lock(clone: Path) -> None:
    stand_in(clone.parent / "bin" / "python3", version="3.12.1", recent=True)
    done = run_setup(clone, "system")
    assert done.returncode == 0, done.stderr
    assert (clone / ".venv" / "system.lock").read_text() == "numpy==1.0\n"
    assert pip_calls(clone)[0].endswith("-r .venv/system.lock")


def test_system_torch_without_torch_is_refused(clone: Path) -> None:
    stand_in(clone.parent / "bin" / "python3", version="3.12.1", recent=True, has_torch=False)
    done = run_setup(clone, "system")
    assert done.returncode == 1
    assert "has torch; found: python3 (Python 3.12.1)" in done.stderr


def test_a_failed_install_shows_its_end_and_is_tried_again(clone: Path) -> None:
    python = clone.parent / "bin" / "python3.11"
    stand_in(python, version="3.11.7", recent=True)
    python.write_text(
        python.read_text().replace('echo "$*" >>pip-calls', "echo no space left on device; exit 1")
    )
    done = run_setup(clone)
    assert done.returncode == 1
    assert "no space left on device" in done.stderr
    assert "install.log" in done.stderr
    assert "installing 4 packages" in run_setup(clone).stdout


def test_make_alone_shows_the_two_commands_first() -> None:
    # The suite may itself run under make, which would announce the folder first.
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))
    }
    done = subprocess.run(["make"], cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()[:2]
    assert first.startswith("make report ")
    assert second.startswith("make test ")


def test_a_named_interpreter_may_have_a_space_in_its_path(clone: Path) -> None:
    python = clone.parent / "my tools" / "python"
    stand_in(python, version="3.13.0", recent=True)
    done = run_setup(clone, PYTHON=str(python))
    assert done.returncode == 0, done.stderr
    assert f"making .venv with {python} (Python 3.13.0)" in done.stdout
