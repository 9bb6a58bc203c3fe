"""Every file that somebody hands in, damaged in every way: it is taken, or refused in the project's own words.

`INTERLEAVE_FUZZ=5000 pytest tests/test_hostile_files.py` tries so many of each; the suite does fewer.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hostile import damaged, refuse_or_take, twisted
from interleave.lab.bench_config import BenchConfig
from interleave.lab.bench_run import run_bench
from interleave.lab.experiments import closed_batches
from interleave.lab.gpu_host.ingest import _manifest
from interleave.lab.latency_file import model_to_json, read_model
from interleave.lab.latency_model import LatencyModel
from interleave.lab.metrics import Limits
from interleave.lab.peers.workload_file import WorkloadFile
from interleave.lab.public_trace import read_public_trace
from interleave.lab.results import PointStore
from interleave.lab.step_traces import fit_steps, read_step_trace
from interleave.lab.sweep import Grid, SweepSetting, read_sweep, run_sweep
from interleave.lab.timeline import TimelineSetting, read_timeline, timeline_document, write_timeline
from interleave.lab.trace import read_csv
from interleave.report.parameters import notebook_model, read_parameter_file, read_source, validate
from interleave.report.run_list import load_runs

EXAMPLES = int(os.environ.get("INTERLEAVE_FUZZ", "60"))
ROOT = Path(__file__).resolve().parents[1]
MODEL = LatencyModel("additive", {"positions": 1e-4}, 0.01, 0.001, 0.0, {"positions": (1, 5)})
GRID = Grid(("whole", "chunked"), (128,), (0.5,), (0.4,))
SETTING = SweepSetting(MODEL, 120, Limits(2.0, None, 0.1), scale=4, max_rows=8)
ROWS: Any = [{"engine": "paged", "wall_s": 1.5, "n": 8, "warm": True, "gap_s": None}] * 2
ORIGIN = {"device": "cpu-a", "config": {"a": 1}, "versions": {"torch": "2"}, "driver": None, "threads": 2}


@dataclass
class Kind:
    """A kind of file: its name, a sound one, and whoever reads it."""

    name: str
    sound: bytes
    read: Callable[[Path], Any]


def all_workloads(path: Path) -> None:
    file = WorkloadFile(path)
    for name in file.names:
        file.workload(name)


def parameters(path: Path) -> None:
    values = read_parameter_file(path)
    try:
        validate(values, notebook_model(closed_batches), "05_closed_batches")
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error  # the command names what it was given


def point(path: Path) -> None:
    store = PointStore(path.parents[2], "quick", "closed")
    store.load("k1")
    found = store.load_provenance("k1")
    _ = found["started_at"], found["config"].items(), found["versions"].get("torch"), found["driver"]


def sweep(path: Path) -> None:
    read_sweep(path)
    copy = path.with_suffix(".copy.json")
    shutil.copy(path, copy)
    try:
        run_sweep(GRID, SETTING, copy, say=lambda _: None)
    except ValueError as error:
        assert copy.read_bytes() == path.read_bytes()  # somebody's points
        raise ValueError(f"{path}: {error}") from error


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Kind]:
    folder = tmp_path_factory.mktemp("sound")
    store = PointStore(folder, "quick", "closed")
    stored = store.save("k1", ROWS, ORIGIN | {"started_at": "2026-01-01T00:00:00Z"})
    bench = run_bench(
        BenchConfig(arrivals="closed", engine="chunked", workload="mixed32", model="tiny", scale=64,
                    num_requests=4, warmup=0)
    )  # fmt: skip
    write_timeline(folder / "t.json", timeline_document(TimelineSetting(MODEL, num_requests=3, scale=16)))
    run_sweep(GRID, SETTING, folder / "s.json", say=lambda _: None)
    manifest = {
        "schema_version": 1, "started_at": "2026-01-01T00:00:00Z", "device": "x", "size": "full", "git_commit": None,
        "sections": [{"name": "decode", "status": "done", "experiment": "recorded_decode"}], "sound": True,
    }  # fmt: skip
    fitted = {"schema_version": 1, "model_parameters": model_to_json(MODEL)}
    workloads = {
        "a": [{"prompt": [1, 2], "max_tokens": 3}],
        "b": {"rows": [[1, 2]], "late": [3], "after_steps": 2},
    }

    def a_manifest(path: Path) -> None:
        (path.parent / "summary.txt").touch()
        _manifest(path.parent / "gpu-run.tar.gz", path.parent)

    def run_list(path: Path) -> None:
        load_runs(path.parents[1])

    kinds = [
        Kind("trace.csv", b"due_s,prompt_tokens,new_tokens\n0.0,5,2\n0.5,1,1\n", read_csv),
        Kind("public.csv", b'TIMESTAMP,ContextTokens,"GeneratedTokens"\n2023-11-16 18:17:03.97,5,2\n1.9e9,1,1\n',
             read_public_trace),
        Kind("quick/closed/k1.csv", stored.read_bytes(), point),
        Kind("quick/closed/k1.json", stored.with_suffix(".json").read_bytes(), point),
        Kind("workload.json", json.dumps(workloads).encode(), all_workloads),
        Kind("fitted.json", json.dumps(fitted).encode(), read_model),
        Kind("bench.json", json.dumps(bench).encode(), lambda path: fit_steps(read_step_trace(path).steps)),
        Kind("again.json", (folder / "s.json").read_bytes(), sweep),
        Kind("timeline.json", (folder / "t.json").read_bytes(), read_timeline),
        Kind("manifest.json", json.dumps(manifest).encode(), a_manifest),
        Kind("values.yaml", b"rows: [8, 16]\nchunk_budget: 1e1\nengines: [paged]\nmodel: tiny  # small\n", parameters),
        Kind("values.json", b'{"rows": [8, 16], "scale": 4, "engines": ["paged"], "model": "tiny"}', parameters),
        Kind("book/runs.yml", b"- notebook: 01_a\n  experiment: a\n  title: A\n  headline: true\n", run_list),
        Kind("05_x.ipynb", (ROOT / "notebooks/05_closed_batches.ipynb").read_bytes(), read_source),
    ]  # fmt: skip
    return {kind.name: kind for kind in kinds}


NAMES = [
    "trace.csv", "public.csv", "quick/closed/k1.csv", "quick/closed/k1.json", "workload.json", "fitted.json",
    "bench.json", "again.json", "timeline.json", "manifest.json", "values.yaml", "values.json", "book/runs.yml",
    "05_x.ipynb",
]  # fmt: skip


def place(kind: Kind, sound: dict[str, Kind], folder: Path) -> Path:
    """Where the file of a kind goes, with what it needs beside it."""
    path = folder / kind.name
    path.parent.mkdir(parents=True, exist_ok=True)
    for suffix in (".csv", ".json"):
        if path.name.startswith("k1"):
            path.with_suffix(suffix).write_bytes(sound[f"quick/closed/k1{suffix}"].sound)
    return path


def fuzz(kind: Kind, path: Path, contents: st.SearchStrategy[bytes]) -> None:
    taken: list[bool] = []

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), database=None)
    @given(contents)
    def try_them(content: bytes) -> None:
        taken.append(refuse_or_take(kind.read, path, content))

    try_them()
    assert not all(taken)


@pytest.mark.parametrize("name", NAMES)
def test_a_sound_file_is_taken(name: str, sound: dict[str, Kind], tmp_path: Path) -> None:
    kind = sound[name]
    assert refuse_or_take(kind.read, place(kind, sound, tmp_path), kind.sound)


@pytest.mark.parametrize("name", NAMES)
def test_any_bytes_are_refused(name: str, sound: dict[str, Kind], tmp_path: Path) -> None:
    fuzz(sound[name], place(sound[name], sound, tmp_path), st.binary(max_size=200))


@pytest.mark.parametrize("name", NAMES)
def test_a_damaged_file(name: str, sound: dict[str, Kind], tmp_path: Path) -> None:
    fuzz(sound[name], place(sound[name], sound, tmp_path), damaged(sound[name].sound))


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith((".json", ".ipynb"))])
def test_a_document_with_other_values(name: str, sound: dict[str, Kind], tmp_path: Path) -> None:
    fuzz(sound[name], place(sound[name], sound, tmp_path), twisted(sound[name].sound))


def test_every_kind_is_tried(sound: dict[str, Kind]) -> None:
    assert list(sound) == NAMES
    assert nbformat.reads(sound["05_x.ipynb"].sound.decode(), as_version=4)
