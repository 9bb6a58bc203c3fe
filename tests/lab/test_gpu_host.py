"""The run on a borrowed GPU host, on the CPU with tiny sizes: what it stores, what it survives, what is filed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from interleave.lab.files import StorageError
from interleave.lab.gpu_host import ingest
from interleave.lab.gpu_host import run as gpu_run
from interleave.lab.gpu_host.ingest import file_archive
from interleave.lab.gpu_host.run import ARCHIVE, MANIFEST, SUMMARY, run_section, run_sections
from interleave.lab.gpu_host.sections import PROFILE, SECTIONS
from interleave.lab.gpu_host.summary import failures
from interleave.lab.results import PointStore

ROOT = Path(__file__).resolve().parents[2]
SERVED = ("closed", "closed-continuous", "disturbance", "sweep", "arrivals")


@pytest.fixture(autouse=True)
def _children_find_the_package(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("INTERLEAVE_TIMING_HELD", "cpu")  # nothing is timed, so nobody waits


def rows_of(out, experiment):
    return PointStore(out / "results", PROFILE, experiment).load_all()


@pytest.mark.parametrize("name", [s.name for s in SECTIONS if s.name != "kernels"])
def test_every_section_measures_and_stores(name, tmp_path):
    """All but the kernels, which need the interpreter and have a test of their own."""
    said = []
    run_section(name, tmp_path, "tiny", time.monotonic() + 300, say=said.append)
    section = next(s for s in SECTIONS if s.name == name)
    rows = rows_of(tmp_path, section.experiment_name)
    assert rows
    assert failures(rows) == 0
    planned = section.experiment().points(section.params("tiny"))
    assert sum("about" in line and "n = " in line for line in said) == len(planned)


def test_kernels_under_the_interpreter(tmp_path):
    pytest.importorskip("triton", reason="triton has wheels for Linux only")
    run_section("kernels", tmp_path, "tiny", time.monotonic() + 300, say=lambda _: None)
    rows = rows_of(tmp_path, "kernel_checks")
    layouts = ("separate", "union", "segmented")
    assert {row["kernel"] for row in rows} == {
        *("rms_norm", "swiglu", "rope_write", "argmax"),
        *layouts,
        *(f"{layout}, chunk of 33" for layout in layouts),
    }
    assert failures(rows) == 0, rows


def test_a_wrong_kernel_is_caught(tmp_path, monkeypatch):
    pytest.importorskip("triton", reason="triton has wheels for Linux only")
    from interleave.model.ops import triton as ops

    right = ops.swiglu
    monkeypatch.setattr(ops, "swiglu", lambda gate_up: right(gate_up) * 1.001)
    run_section("kernels", tmp_path, "tiny", time.monotonic() + 300, say=lambda _: None)
    assert [row["kernel"] for row in rows_of(tmp_path, "kernel_checks") if row["failed"]] == ["swiglu"]


def test_decode_steps_of_both_engines(tmp_path):
    run_section("decode", tmp_path, "tiny", time.monotonic() + 300, say=lambda _: None)
    rows = [row for row in rows_of(tmp_path, "recorded_decode") if row["kind"] == "step"]
    assert {(row["weights"], row["engine"], row["rows"]) for row in rows} == {
        (weights, engine, count)
        for weights in ("model", "narrow")
        for engine in ("chunked", "recorded")
        for count in (1, 3)
    }
    assert {row["compiled"] for row in rows} == {0}


def test_the_plan_fits_nine_minutes_and_the_gpu_profile():
    assert sum(section.seconds for section in SECTIONS) <= 540
    by_experiment = {}
    for section in SECTIONS:
        if section.module.startswith("experiments."):
            points = section.experiment().points(section.params("full"))
            by_experiment.setdefault(section.module, (section, []))[1].extend(p.config for p in points)
    for section, measured in by_experiment.values():
        experiment = section.experiment()
        profile = experiment.points(experiment.Params(**experiment.PROFILES[PROFILE]))
        text = [json.dumps(config, sort_keys=True) for config in measured]
        assert sorted(text) == sorted(json.dumps(point.config, sort_keys=True) for point in profile)


def test_a_deadline_keeps_what_was_measured(tmp_path):
    with pytest.raises(gpu_run.OutOfTime, match="out of time after 1 of 8 points"):
        run_section("decode", tmp_path, "tiny", time.monotonic(), say=lambda _: None)
    assert len(PointStore(tmp_path / "results", PROFILE, "recorded_decode").keys()) == 1


def test_a_section_that_hangs_is_killed_and_one_that_fails_is_told_apart(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_run, "KILL_AFTER_S", 0.0)
    entry = gpu_run._run_apart(SECTIONS[0], tmp_path, "cpu", "tiny", 0.2)
    assert entry["status"] == "killed: out of time"
    monkeypatch.setattr(gpu_run, "KILL_AFTER_S", 60.0)
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    kernels = next(section for section in SECTIONS if section.name == "kernels")
    entry = gpu_run._run_apart(kernels, tmp_path, "cpu", "tiny", 120.0)
    assert entry["status"].startswith("ended with exit code")
    assert entry["said"]


def test_no_budget_begins_nothing_and_another_device_is_said(tmp_path):
    said = []
    manifest = run_sections(
        tmp_path, device="cpu", size="tiny", budget_s=5.0, expected="NVIDIA H200", say=said.append
    )
    assert {entry["status"] for entry in manifest["sections"]} == {"not begun: out of time"}
    assert manifest["as_expected"] is False
    assert manifest["sound"] is False  # nothing was looked at
    assert any("expected NVIDIA H200" in line for line in said)
    assert "NOT the expected device" in (tmp_path / SUMMARY).read_text()


def test_dry_run_of_the_script_without_history(tmp_path):
    """The repository alone, started as on a borrowed GPU host; a dry run is not filed."""
    copy = tmp_path / "repo"
    for name in ("src", "kernels", "scripts", "data/corpus", "data/traces", "data/reference"):
        subprocess.run(["mkdir", "-p", str((copy / name).parent)], check=True)
        subprocess.run(["cp", "-r", str(ROOT / name), str(copy / name)], check=True)
    out = tmp_path / "out"
    command = [str(copy / "scripts/gpu_run.sh"), str(out), "--commit", "c0ffee", "--device", "cpu"]
    command += ["--size", "tiny", "--only", "decode"]
    environment = {**os.environ, "PYTHON": sys.executable}
    del environment["PYTHONPATH"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    manifest = json.loads((out / MANIFEST).read_text())
    assert manifest["git_commit"] == "c0ffee"
    assert manifest["sound"]
    assert "recorded_decode" in done.stdout
    assert (out / ARCHIVE).stat().st_size < gpu_run.MAX_ARCHIVE_BYTES
    with pytest.raises(ValueError, match="a dry run of size 'tiny'"):
        file_archive(out / ARCHIVE, tmp_path / "results")


def archive_of(out, tmp_path, **change):
    """The archive of a folder of points, with a manifest that says it was the real thing."""
    manifest = json.loads((out / MANIFEST).read_text()) | {"size": "full", "sound": True} | change
    (out / MANIFEST).write_text(json.dumps(manifest))
    gpu_run._pack(out)
    return out / ARCHIVE


@pytest.fixture
def measured(tmp_path):
    out = tmp_path / "out"
    run_section("decode", out, "tiny", time.monotonic() + 300, say=lambda _: None)
    run_sections(out, device="cpu", size="tiny", budget_s=0.0, say=lambda _: None)
    return out


def test_ingest_files_points_and_summary(measured, tmp_path):
    archive, root = archive_of(measured, tmp_path), tmp_path / "results"
    said = file_archive(archive, root)
    assert said[0] == "recorded_decode: 8 points filed"
    assert rows_of(measured, "recorded_decode") == PointStore(root, PROFILE, "recorded_decode").load_all()
    assert len(list((root / PROFILE / "runs").iterdir())) == 2
    assert file_archive(archive, root)[0] == "recorded_decode: 0 points filed, 8 known"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"sound": False}, "the run was not sound: its manifest says so; --unsound"),
        ({"sound": "yes"}, "manifest.json: sound: Input should be a valid boolean, got 'yes'"),
        ({"started_at": "../../x"}, "manifest.json: started_at: String should match pattern"),
        ({"device": ""}, "manifest.json: device: "),
        ({"sections": []}, "manifest.json: sections: "),
        ({"sections": [{"name": "decode"}]}, "manifest.json: sections.0.status: Field required"),
        (
            {
                "sections": [
                    {"name": "decode", "status": "killed: out of time", "experiment": "recorded_decode"}
                ]
            },
            "not sound: decode killed: out of time; --unsound",
        ),
    ],
)
def test_ingest_refuses_an_unsound_manifest(measured, tmp_path, change, says):
    root = tmp_path / "results"
    with pytest.raises(ValueError, match=re.escape(says)):
        file_archive(archive_of(measured, tmp_path, **change), root)
    assert not root.exists()


def test_ingest_takes_an_unsound_run_only_when_told(measured, tmp_path):
    archive, root = archive_of(measured, tmp_path, sound=False), tmp_path / "results"
    assert file_archive(archive, root, unsound=True)[0] == "recorded_decode: 8 points filed"


@pytest.mark.parametrize("fails_at", ["copy", "rename"])
def test_a_full_disk_leaves_nothing_filed(measured, tmp_path, monkeypatch, fails_at):
    """Neither while files are written beside their places, nor when some are in them already."""
    archive, root, done = archive_of(measured, tmp_path), tmp_path / "results", []
    earlier = PointStore(root, PROFILE, "recorded_decode")
    device = json.loads((measured / MANIFEST).read_text())["device"]
    earlier.save("0" * 16, [{"a": 1}], {"device": device})
    whole = ingest.shutil.copyfile if fails_at == "copy" else Path.rename

    def full(source, target):
        if len(done) == 5:
            raise OSError(28, "No space left on device")
        done.append(target)
        return whole(source, target)

    if fails_at == "copy":
        monkeypatch.setattr(ingest.shutil, "copyfile", full)
    else:
        monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(StorageError, match=r"No space left on device\. Nothing was filed"):
        file_archive(archive, root)
    monkeypatch.undo()
    assert len(done) == 5
    left = [path.name for path in root.rglob("*") if path.is_file()]
    assert sorted(left) == [f"{'0' * 16}.csv", f"{'0' * 16}.json"]
    assert not list(root.glob(".ingest-*"))
    assert file_archive(archive, root)[0] == "recorded_decode: 8 points filed"


def test_ingest_refuses_what_is_not_sound(measured, tmp_path):
    root = tmp_path / "results"
    broken = tmp_path / "broken.tar.gz"
    broken.write_bytes(archive_of(measured, tmp_path).read_bytes()[:2000])
    with pytest.raises(ValueError, match="cut short"):
        file_archive(broken, root)
    with pytest.raises(ValueError, match="the run of 'another'"):
        file_archive(archive_of(measured, tmp_path, device="another"), root)
    with pytest.raises(ValueError, match="schema version 9"):
        file_archive(archive_of(measured, tmp_path, schema_version=9), root)
    point = next((measured / "results" / PROFILE / "recorded_decode").glob("*.csv"))
    point.write_text(point.read_text().replace("e", "f", 1))
    device = json.loads(point.with_suffix(".json").read_text())["device"]
    with pytest.raises(ValueError, match=point.name):
        file_archive(archive_of(measured, tmp_path, schema_version=1, device=device), root)
    assert not root.exists() or not list(root.rglob("*.csv"))


def test_ingest_never_mixes_devices(measured, tmp_path):
    root = tmp_path / "results"
    other = PointStore(root, PROFILE, "recorded_decode")
    other.save("0" * 16, [{"a": 1}], {"device": "another card"})
    with pytest.raises(ValueError, match=r"holds points of 'another card'.*Nothing was filed"):
        file_archive(archive_of(measured, tmp_path), root)
    assert other.keys() == ["0" * 16]


def test_an_archive_cannot_write_outside(tmp_path):
    path = tmp_path / "bad.tar.gz"
    (tmp_path / "x").write_text("x")
    with tarfile.open(path, "w:gz") as tar:
        tar.add(tmp_path / "x", arcname="../x")
    with pytest.raises(ValueError, match="no plain file"):
        file_archive(path, tmp_path / "results")


def test_measuring_needs_no_notebook_tools():
    """Nor numba, gguf or psutil: what a GPU host may lack."""
    code = (
        "import sys\n"
        "for name in ('papermill', 'nbformat', 'numba', 'gguf', 'psutil', 'IPython', 'jsonschema'):\n"
        "    sys.modules[name] = None\n"
        "from interleave.lab.gpu_host.sections import SECTIONS\n"
        "import interleave.lab.gpu_host.run, interleave.cli.main\n"
        "for section in SECTIONS:\n"
        "    section.params('full')\n"
        "    section.experiment()\n"
        "sys.modules['pydantic'] = None\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
