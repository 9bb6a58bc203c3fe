"""Real kernels, small notebooks: what is published, what is kept apart, what a person is told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest

from interleave.lab.files import StorageError
from interleave.report.parameters import ParameterError
from interleave.report.runner import RunFailed, estimate_lines, run_notebook

Writer = Callable[..., Path]
MEASURE = "# Measure\npoints = run.points()\nprint(len(points))\nprint(points.area.sum())"
DRAW = """\
# Draw
from matplotlib.figure import Figure
figure = Figure(figsize=(3, 2))
figure.subplots().plot(points["size"], points["area"])
run.figure("areas", figure, alt="a rising line", caption="It rises.", data=points)"""
NUMBERS = "run.glue('mean_area', float(points.area.mean()), unit='x')\nrun.closing()"


def page(out: Path, profile: str = "quick") -> Path:
    folder = "book/executed" if profile in ("cpu", "gpu") else "_build/executed"
    return out / folder / profile / "01_toy.ipynb"


def failed(path: Path, **options: Any) -> str:
    with pytest.raises(RunFailed) as caught:
        run_notebook(path, say=lambda _: None, **options)
    return str(caught.value)


def test_a_run_publishes_a_normalised_page_and_repeats_byte_for_byte(
    write_notebook: Writer, out: Path
) -> None:
    lines: list[str] = []
    path = write_notebook(MEASURE, DRAW, NUMBERS, kernel="some-other-kernel")
    options: dict[str, Any] = {
        "profile": "cpu",
        "overrides": {"sizes": "[1, 3]", "label": "x=y"},
        "say": lines.append,
    }
    result = run_notebook(path, **options)
    assert result.path == page(out, "cpu")
    first = result.path.read_bytes()
    text = "\n".join(lines)
    assert "2/2  size 3" in text  # a line a point
    assert "[ 4/6] Measure" in text  # a line a cell

    notebook = nbformat.read(result.path, as_version=4)
    assert [cell.get("id") for cell in notebook.cells[:3]] == ["title", "cell-0", "injected-parameters"]
    assert notebook.metadata.kernelspec.name == "python3"
    assert "papermill" not in json.dumps(notebook.metadata)
    assert not any("papermill" in cell.metadata for cell in notebook.cells)
    measured = notebook.cells[4]
    assert [output.text for output in measured.outputs] == ["4\n128\n"]  # rows is 16 at cpu: 2 x (1 + 3) x 16
    block = notebook.metadata.interleave
    assert block.parameters["sizes"] == [1, 3]
    assert block.parameters["label"] == "x=y"
    assert block.parameters["rows"] == 16
    assert block.command == "interleave run 01_toy --profile cpu -p sizes '[1, 3]' -p label x=y"
    assert block.numbers["mean_area"] == {"name": "mean_area", "value": 32.0, "unit": "x", "text": "32 x"}
    assert block.started
    assert len(block.point_keys) == 2
    stored = sorted((out / "data/results/cpu/counting").glob("*.csv"))
    assert {path.stem for path in stored} == set(block.point_keys)
    picture = notebook.cells[5].outputs
    assert len(picture) == 1  # the caption output is for JupyterLab only
    assert picture[0].metadata["image/png"]["alt"] == "a rising line"
    assert "data:text/csv;base64," in picture[0].metadata["image/png"]["caption"]

    lines.clear()
    again = run_notebook(path, **options)
    assert again.path.read_bytes() == first
    assert not any("size 3" in line for line in lines)  # stored points are read, not measured


def test_a_failing_cell_is_named_and_the_page_stays(write_notebook: Writer, out: Path) -> None:
    page(out).parent.mkdir(parents=True)
    page(out).write_text("as it was")
    said = failed(write_notebook(before="# Divide\nprint('so far')\nvalue = 1 / 0"))
    assert "01_toy failed: cell 2 (Divide) raised ZeroDivisionError" in said
    assert "value = 1 / 0" in said
    assert "ZeroDivisionError: division by zero" in said
    assert "\x1b" not in said
    assert "_build/failed/01_toy.ipynb" in said
    kept = nbformat.read(out / "_build/failed/01_toy.ipynb", as_version=4)
    assert any(output.get("text") == "so far\n" for cell in kept.cells for output in cell.get("outputs", []))
    assert page(out).read_text() == "as it was"
    assert list(page(out).parent.iterdir()) == [page(out)]


def test_a_killed_kernel_is_noticed(write_notebook: Writer, out: Path) -> None:
    said = failed(
        write_notebook(before="# Overreach\nimport os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    )
    assert "cell 2 (Overreach): the kernel was killed by SIGKILL; peak memory 0." in said
    assert "to use less memory: lower `rows`" in said
    assert (out / "_build/failed/01_toy.ipynb").is_file()
    assert not page(out).exists()


def test_a_time_limit_ends_the_kernel(write_notebook: Writer, out: Path, tmp_path: Path) -> None:
    wait = f"# Wait\nimport os, time\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)"
    said = failed(write_notebook(before=wait), time_limit_s=3.0)
    assert "was still running after the time limit of 3 s" in said
    assert not page(out).exists()
    if (tmp_path / "pid").exists():  # a slow machine may spend the three seconds on starting the kernel
        assert gone(int((tmp_path / "pid").read_text()))


def test_a_run_to_the_end_is_still_judged_by_content(write_notebook: Writer, out: Path) -> None:
    path = write_notebook(
        "import sys\nprint('oops', file=sys.stderr)",
        "print('/home/someone/project')",
        "if False:\n    run.figure('never', None, alt='', caption='')\n    run.glue('nothing', 1)",
    )
    said = failed(path)
    assert "not fit to publish" in said
    for problem in (
        "stderr",
        "/home/someone/project",
        "figure 'never' is declared",
        "number 'nothing' is declared",
    ):
        assert problem in said
    assert not page(out).exists()


def test_bad_parameters_are_refused_before_a_kernel_starts(write_notebook: Writer, out: Path) -> None:
    path = write_notebook(MEASURE)
    start = time.monotonic()
    for overrides in ({"row": 3}, {"rows": 0}, {"rows": "x"}):
        with pytest.raises(
            ParameterError, match="rows: type int, default 8, range >= 1 and <= 64, unit requests"
        ):
            run_notebook(path, overrides=overrides)
    with pytest.raises(ValueError, match="--profile"):
        run_notebook(path, overrides={"profile": "cpu"})
    with pytest.raises(ValueError, match="no profile 'full'; it has: quick, cpu, gpu"):
        run_notebook(path, profile="full")
    assert time.monotonic() - start < 60
    assert not out.exists()


def test_a_folder_that_cannot_be_written_is_refused_first(write_notebook: Writer, out: Path) -> None:
    page(out).parent.parent.mkdir(parents=True)
    page(out).parent.write_text("a file where the folder should be")
    with pytest.raises(StorageError, match=r"cannot write to .*quick: .*; nothing was run"):
        run_notebook(write_notebook(MEASURE))


def test_estimate_lists_points_and_runs_nothing(write_notebook: Writer, out: Path) -> None:
    lines = estimate_lines(write_notebook(), "quick", {"sizes": "[100, 300]"})
    assert "2 points, about 4 s" in lines[0]
    assert "size 300" in lines[2]
    assert lines[2].endswith("3.0 s")
    assert not out.exists()


def test_ctrl_c_leaves_everything_as_it_was(write_notebook: Writer, out: Path, tmp_path: Path) -> None:
    page(out).parent.mkdir(parents=True)
    page(out).write_text("as it was")
    pids = tmp_path / "pids"
    path = write_notebook(
        before=f"# Wait\nimport os, subprocess, time\nchild = subprocess.Popen(['sleep', '600'])\n"
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}\\n')\ntime.sleep(600)"
    )
    command = [sys.executable, "-m", "interleave", "run", str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 90
    while not (pids.exists() and pids.read_text().endswith("\n")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert [line for line in errors.splitlines() if line] == [
        "interleave: interrupted; measured points are stored and finished pages published; the same command goes "
        "on from there"
    ]
    assert all(gone(int(pid)) for pid in pids.read_text().split())
    assert page(out).read_text() == "as it was"
    assert not (out / "_build/failed").exists()


def test_the_stock_command_validates_and_types_parameters(
    write_notebook: Writer, out: Path, tmp_path: Path
) -> None:
    path = write_notebook(MEASURE)
    done = papermill(
        path, tmp_path / "stock.ipynb", "-p", "sizes", "[3]", "-p", "note", "null", "-p", "rows", "1e1"
    )
    assert done.returncode == 0, done.stderr
    notebook = nbformat.read(tmp_path / "stock.ipynb", as_version=4)
    assert notebook.cells[-1].outputs[0].text == "2\n60\n"


def papermill(path: Path, output: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The stock command, from a folder of the checkout that is not its root."""
    command = [sys.executable, "-m", "papermill", str(path), str(output), *arguments]
    folder = Path(__file__).resolve().parents[1]
    return subprocess.run(command, cwd=folder, env=os.environ, capture_output=True, text=True, check=False)


def gone(pid: int) -> bool:
    """Whether a process ends within a moment."""
    for _ in range(50):
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.1)
    return False
