"""SIGKILL at seeded instants of a sweep: what is published is whole, what was measured stays, the sweep goes on.

`INTERLEAVE_KILLS=50 pytest tests/report/test_killed_runs.py` kills so often; the suite does a few times. What was
counted stands in each test's properties.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest
from toys import steady

from interleave.lab.results import PointStore
from interleave.report.checks import faults
from interleave.report.fingerprint import page_key
from interleave.report.layout import failed_folder

pytestmark = pytest.mark.slow

NUM_KILLS = int(os.environ.get("INTERLEAVE_KILLS", "5"))
PAGES = 2
SHOWN = """\
# Measure
found = run.points()
print(len(found), found.share.sum())"""
NUMBER = "run.glue('share', float(found.share.mean()), band=(0.0, 1.0))\nrun.closing()"
PR_SET_CHILD_SUBREAPER = 36
Note = Callable[[str, object], None]
VARIES = {"started_at", "wall_s", "started", "duration_s"}


@pytest.fixture
def sweep(write_notebook: Callable[..., Path]) -> list[str]:
    """The command that runs every notebook of the sweep; each measures points of its own."""
    paths = [
        write_notebook(
            SHOWN,
            NUMBER,
            defaults=steady.PARAMETERS_CELL,
            before=f"first = {6 * number}",
            experiment="toys.steady",
            name=f"0{number + 1}_steady",
        )
        for number in range(PAGES)
    ]
    return [sys.executable, "-m", "interleave", "run", *map(str, paths), "--profile", "cpu"]


def result_of(out: Path) -> dict[str, Any]:
    """Everything below the output root, without moments and durations, and without what is kept of failed runs."""
    files: dict[str, Any] = {}
    for path in sorted(path for path in out.rglob("*") if path.is_file()):
        if failed_folder(out) in path.parents:
            continue
        name, text = path.relative_to(out).as_posix(), path.read_text()
        if path.suffix == ".csv":
            files[name] = text
        elif path.suffix == ".json":
            files[name] = {key: value for key, value in json.loads(text).items() if key not in VARIES}
        else:
            files[name] = json.loads(text)
            block = files[name]["metadata"]["interleave"]
            files[name]["metadata"]["interleave"] = {k: v for k, v in block.items() if k not in VARIES}
            files[name]["cells"][-1]["outputs"] = []  # closing: how long it took
    return files


def check_whole(out: Path) -> Counter[str]:
    """Every page is a page and every point can be read; how many there are of each."""
    pages = list((out / "book/executed/cpu").glob("*.ipynb"))
    for page in pages:
        notebook = nbformat.read(page, as_version=4)
        assert faults(notebook) == []
        assert notebook.metadata.interleave.page_key == page_key(notebook.metadata.interleave)
    store = PointStore(out / "data/results", "cpu", "steady")
    keys = store.keys()
    for key in keys:
        assert len(store.load(key) or []) == 5000
    return Counter(pages=len(pages), points=len(keys))


def started(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        return subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True)


def wait_for(process: subprocess.Popen[bytes], out: Path, draw: random.Random, usual_s: float) -> None:
    """Until a drawn instant, or until a drawn one of the files that come and go is seen; less if it ends."""
    deadline = time.monotonic() + draw.uniform(0, usual_s)
    wanted = draw.randrange(1, 12) if draw.random() < 0.5 else None
    if wanted is not None:
        deadline = time.monotonic() + 60
    seen, known = 0, names_in(out)
    while process.poll() is None and time.monotonic() < deadline and (wanted is None or seen < wanted):
        now = names_in(out)
        seen, known = seen + len(now - known), now
        time.sleep(0.0005)


def names_in(out: Path) -> set[str]:
    folders = (out / "data/results/cpu/steady", out / "book/executed/cpu")
    return {name for folder in folders if folder.is_dir() for name in os.listdir(folder)}


def kernels_of(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    with suppress(psutil.Error):
        return [child for child in psutil.Process(process.pid).children() if "-f" in child.cmdline()]
    return []


def kills(sweep: list[str], out: Path, tmp_path: Path, kill: Callable[..., None]) -> Counter[str]:
    """Sweeps that are killed and begun again; each that ends is compared with an undisturbed one, then another
    begins. Ends after NUM_KILLS and one last sweep; what was found whole, and sweeps with equal results."""
    log, draw = tmp_path / "log", random.Random(0)
    begun = time.monotonic()
    assert started(sweep, log).wait(300) == 0, log.read_text()
    usual_s = time.monotonic() - begun
    undisturbed = result_of(out)
    assert len(undisturbed) == PAGES + 2 * 6 * PAGES
    clear(out)
    counts, held = Counter[str](), 0
    while counts["kills"] < NUM_KILLS:
        process = started(sweep, log)
        wait_for(process, out, draw, usual_s)
        if process.poll() is None:
            kill(process)
            whole = check_whole(out)
            assert whole.total() >= held
            held = whole.total()
            counts += whole + Counter(kills=1)
        if process.wait(60) == 0:
            assert result_of(out) == undisturbed
            counts["equal"] += 1
            clear(out)
            held = 0
    assert started(sweep, log).wait(300) == 0, log.read_text()
    assert result_of(out) == undisturbed
    return counts + Counter(equal=1)


def clear(out: Path) -> None:
    for path in sorted(out.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


def kill_runner(process: subprocess.Popen[bytes]) -> None:
    """Its kernel has to end too."""
    kernels = kernels_of(process)
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    assert psutil.wait_procs(kernels, timeout=20)[1] == []


def test_a_killed_runner(sweep: list[str], out: Path, tmp_path: Path, record_property: Note) -> None:
    """Its kernel ends too, and the next sweep removes what was half-written."""
    counts = kills(sweep, out, tmp_path, kill_runner)
    assert counts["kills"] == NUM_KILLS
    record_property("counts", dict(counts))


def test_a_killed_runner_that_measures_again(
    sweep: list[str], out: Path, tmp_path: Path, record_property: Note
) -> None:
    """With --force each point stays, is replaced, or at worst one is missing; a plain sweep measures that."""
    log, draw, counts = tmp_path / "log", random.Random(1), Counter[str]()
    begun = time.monotonic()
    assert started(sweep, log).wait(300) == 0, log.read_text()
    usual_s = time.monotonic() - begun
    undisturbed, all_of_it = result_of(out), Counter(pages=PAGES, points=6 * PAGES)
    while counts["kills"] < NUM_KILLS:
        process = started([*sweep, "--force"], log)
        wait_for(process, out, draw, usual_s)
        if process.poll() is None:
            kill_runner(process)
            whole = check_whole(out)
            assert (all_of_it - whole).total() <= 1
            counts += whole + Counter(kills=1)
        else:
            assert process.returncode == 0, log.read_text()
        assert started(sweep, log).wait(300) == 0, log.read_text()
        assert check_whole(out) == all_of_it
    assert started([*sweep, "--force"], log).wait(300) == 0, log.read_text()
    assert result_of(out) == undisturbed
    record_property("counts", dict(counts + Counter(equal=1)))


@pytest.mark.skipif(sys.platform != "linux", reason="another process than 1 adopts orphans on Linux only")
def test_an_orphan_ends_whoever_adopts_it(tmp_path: Path) -> None:
    """As under a service manager: ipykernel alone would wait for process 1 to become its parent."""
    starter = (
        "import subprocess, sys, time\n"
        f"command = [sys.executable, '-m', 'interleave.report.kernel_process', '-f', {str(tmp_path / 'kernel.json')!r}]\n"
        "print(subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL).pid, flush=True)\n"
        "time.sleep(600)"
    )
    adopt = ctypes.CDLL(None).prctl
    assert adopt(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    try:
        runner = subprocess.Popen([sys.executable, "-c", starter], stdout=subprocess.PIPE, text=True)
        assert runner.stdout is not None
        kernel = psutil.Process(int(runner.stdout.readline()))
        deadline = time.monotonic() + 60
        while not (tmp_path / "kernel.json").exists():  # it is up
            assert time.monotonic() < deadline
            time.sleep(0.05)
        runner.kill()
        runner.communicate()
        assert psutil.wait_procs([kernel], timeout=20)[1] == []
    finally:
        adopt(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def test_a_killed_kernel(sweep: list[str], out: Path, tmp_path: Path, record_property: Note) -> None:
    """The runner says so, goes on to the next notebook, and exits 1."""

    def kill(process: subprocess.Popen[bytes]) -> None:
        killed = False
        for kernel in kernels_of(process):
            with suppress(psutil.NoSuchProcess):
                kernel.kill()
                killed = True
        if process.wait(300) == 0:
            assert not killed or "published" in (tmp_path / "log").read_text()
        else:
            assert "killed by SIGKILL" in (tmp_path / "log").read_text()

    counts = kills(sweep, out, tmp_path, kill)
    assert counts["kills"] == NUM_KILLS
    record_property("counts", dict(counts))
