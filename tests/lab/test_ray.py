"""Runs on a real Ray cluster of two nodes on this machine: the same results, and a killed worker loses nothing."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

from interleave.lab.latency_model import LatencyModel
from interleave.lab.metrics import Limits
from interleave.lab.sweep import Grid, run_sweep
from interleave.lab.sweep_point import SweepPoint, SweepSetting, simulate_point
from interleave.lab.work_list import Needs, run_all

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install -e '.[ray]'")
pytestmark = pytest.mark.slow  # starting a cluster takes about twenty seconds

ROOT = Path(__file__).resolve().parents[2]
MODEL = LatencyModel("step_floor", {"positions": 6e-5, "decode_attended": 2e-7}, floor_s=0.03)
SETTING = SweepSetting(MODEL, 120, Limits(2.0, None, 0.1), scale=4, max_rows=8)
GRID = Grid(("whole", "chunked", "mixed"), (32, 128), (0.5, 1.0), (0.0, 0.4))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes with one CPU each; what is run on it finds this checkout and this file's folder."""
    from ray.cluster_utils import Cluster

    paths = [
        str(ROOT / "src"),
        str(ROOT / "kernels"),
        str(ROOT / "tests" / "report"),
        str(Path(__file__).parent),
    ]
    patched = pytest.MonkeyPatch()
    patched.setenv("PYTHONPATH", os.pathsep.join(paths))
    small: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
    nodes = Cluster(initialize_head=True, head_node_args={**small, "include_dashboard": False})
    nodes.add_node(**small)
    nodes.wait_for_nodes()
    patched.setenv("RAY_ADDRESS", nodes.address)
    # pytest imports this file under a name that no worker could.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield nodes
    ray.shutdown()
    nodes.shutdown()
    patched.undo()


def node_and_square(number: int) -> tuple[str, int]:
    import time

    time.sleep(0.5)
    return str(ray.get_runtime_context().get_node_id()), number**2


def test_every_node_gets_its_share(cluster: Any) -> None:
    said: list[str] = []
    found = dict(run_all("ray", node_and_square, list(range(8)), say=said.append))
    assert {number: square for number, (_, square) in found.items()} == {n: n**2 for n in range(8)}
    assert len({node for node, _ in found.values()}) == 2
    assert said == ["Ray: 8 runs on 2 nodes, 2 CPUs, 0 GPUs"]


def test_a_sweep_has_the_points_that_it_has_here(cluster: Any, tmp_path: Path) -> None:
    here = run_sweep(GRID, SETTING, tmp_path / "here.json", say=print)
    there = run_sweep(GRID, SETTING, tmp_path / "there.json", executor="ray", say=print)
    assert there["rows"] == here["rows"]
    assert json.loads((tmp_path / "there.json").read_text())["rows"] == here["rows"]


def die_once(task: tuple[str, SweepPoint]) -> dict[str, float]:
    """A point, whose worker is killed from outside while it computes, the first time."""
    folder, point = task
    marker = Path(folder) / f"{point.policy}-{point.load}"
    if point.policy == "mixed" and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return simulate_point((SETTING, point))


def test_killed_workers_lose_nothing(cluster: Any, tmp_path: Path) -> None:
    points = [
        point for point in GRID.points() if point.chunk_budget in (None, 32) and point.long_share == 0.4
    ]
    found = dict(run_all("ray", die_once, [(str(tmp_path), point) for point in points], say=print))
    assert len(list(tmp_path.iterdir())) == 2  # two workers died
    assert found == {number: simulate_point((SETTING, point)) for number, point in enumerate(points)}


def fail(number: int) -> int:
    if number == 2:
        raise ValueError("no point like this")
    return number


def test_what_a_run_raises_arrives_as_it_was(cluster: Any) -> None:
    with pytest.raises(ValueError, match="no point like this"):
        list(run_all("ray", fail, list(range(4)), say=print))


def test_a_run_that_no_node_can_hold_is_refused_and_not_waited_for(cluster: Any) -> None:
    with pytest.raises(ValueError, match="no node of the cluster has 1 CPUs and 1 GPUs"):
        list(run_all("ray", fail, [0], needs=lambda _task: Needs(1, 1), say=print))


def test_a_notebook_runs_on_a_node_and_its_page_and_points_come_back(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node writes to its own folder here, as it would without a shared file system."""
    from interleave.report import cluster as notebooks
    from interleave.report.cluster import NotebookTask, Returned, publish_files

    sys.path.insert(0, str(ROOT / "tests" / "report"))
    from toys import counting

    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_markdown_cell("# A toy\n\nDoes it run?", id="title"),
            nbformat.v4.new_code_cell(counting.PARAMETERS_CELL, id="parameters"),
            nbformat.v4.new_code_cell(
                'from interleave.report.notebook import setup\nrun = setup("toys.counting", globals())',
                id="setup",
            ),
            nbformat.v4.new_code_cell("points = run.points()", id="points"),
            nbformat.v4.new_code_cell("run.closing()", id="closing"),
        ]
    )
    notebook.cells[1].metadata["tags"] = ["parameters"]
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook.metadata["language_info"] = {"name": "python"}
    path = tmp_path / "01_toy.ipynb"
    nbformat.write(notebook, path)

    monkeypatch.setenv("INTERLEAVE_OUT", str(tmp_path / "node"))
    monkeypatch.setenv("INTERLEAVE_CACHE", str(tmp_path / "cache"))
    task = NotebookTask(str(path))
    ((_, returned),) = run_all("ray", notebooks.run_task, [task], needs=lambda _: Needs(1), say=print)
    assert isinstance(returned, Returned)
    assert returned.failure is None, returned.failure
    publish_files(returned.files, tmp_path / "driver")
    for root in ("node", "driver"):
        assert (tmp_path / root / "_build/executed/quick/01_toy.ipynb").is_file()
    stored = {
        name: sorted(file.name for file in (tmp_path / name / "_build/results").rglob("*.csv"))
        for name in ("node", "driver")
    }
    assert stored["node"] == stored["driver"] != []
