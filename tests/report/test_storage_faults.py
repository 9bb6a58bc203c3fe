"""A disk that fills up, or a folder that is closed, while a notebook measures: what is kept, and what is said."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import papermill
import pytest
from toys import filling

from interleave.lab.results import PointStore
from interleave.report.runner import RunFailed, run_notebook

Writer = Callable[..., Path]


@pytest.fixture
def open_out(out: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An output root that other users can reach: pytest's own folders are closed to them."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    monkeypatch.setenv("INTERLEAVE_OUT", str(folder))
    yield folder
    for inside in folder.rglob("*"):
        if inside.is_dir():
            inside.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.parametrize(("fault", "says"), [("full", "File too large"), ("closed", "Permission denied")])
def test_measured_points_survive_and_the_message_says_where(
    write_notebook: Writer, open_out: Path, monkeypatch: pytest.MonkeyPatch, fault: str, says: str
) -> None:
    path = write_notebook(
        "print(len(run.points()))", experiment="toys.filling", defaults=filling.PARAMETERS_CELL
    )
    command = [sys.executable, "-m", "interleave", "run", str(path), "--profile", "cpu"]
    monkeypatch.setenv(filling.FAULT_VARIABLE, fault)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    store = PointStore(open_out / "data/results", "cpu", "filling")
    kept = {key: store.load(key) for key in store.keys()}  # noqa: SIM118
    assert len(kept) == 2
    assert f"{says}; 2 measured points are kept in {store.folder}" in done.stderr
    assert "the published page is as it was" in done.stderr
    assert not (open_out / "book").exists() or not list((open_out / "book").rglob("*.ipynb"))

    monkeypatch.delenv(filling.FAULT_VARIABLE)
    store.folder.chmod(0o755)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "number 1 " not in done.stdout  # read, not measured again
    assert "2/2  number 3" in done.stdout
    assert {key: store.load(key) for key in kept} == kept


def test_points_that_were_to_be_measured_again_survive(
    write_notebook: Writer, open_out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third of four finds no room: two are new, two old, and the page and all of them can still be read."""
    path = write_notebook(
        "print(len(run.points()))", experiment="toys.filling", defaults=filling.PARAMETERS_CELL
    )
    command = [sys.executable, "-m", "interleave", "run", str(path), "--profile", "cpu"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    store, page = PointStore(open_out / "data/results", "cpu", "filling"), open_out / "book/executed/cpu"
    before = {key: store.load(key) for key in store.keys()}  # noqa: SIM118
    (published,) = (file.read_bytes() for file in page.iterdir())

    monkeypatch.setenv(filling.FAULT_VARIABLE, "full")
    done = subprocess.run([*command, "--force"], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"File too large; 4 measured points are kept in {store.folder}" in done.stderr
    after = {key: store.load(key) for key in store.keys()}  # noqa: SIM118
    assert after.keys() == before.keys()
    assert sum(after[key] == before[key] for key in before) == 2
    assert [file.read_bytes() for file in page.iterdir()] == [published]

    monkeypatch.delenv(filling.FAULT_VARIABLE)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "number " not in done.stdout  # all are read, none is measured again


def test_a_page_that_cannot_be_written(write_notebook: Writer, out: Path) -> None:
    page = out / "book/executed/cpu/01_toy.ipynb"
    page.mkdir(parents=True)
    with pytest.raises(
        RunFailed, match=r"cannot write .*01_toy\.ipynb: .*2 points are stored in .*/cpu/counting"
    ):
        run_notebook(write_notebook("points = run.points()"), profile="cpu", say=lambda _: None)
    assert list(page.parent.iterdir()) == [page]


def test_a_scratch_folder_that_is_full(
    write_notebook: Writer, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(papermill, "execute_notebook", full)
    with pytest.raises(RunFailed, match=r"No space left on device, in the scratch folder .*interleave-"):
        run_notebook(write_notebook(), say=lambda _: None)
