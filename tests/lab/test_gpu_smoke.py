"""The smoke run for GPU hosts, on the CPU with tiny sizes: what it stores, and what it survives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from interleave.engine.records import RunLog, StepRecord
from interleave.lab import gpu_smoke
from interleave.lab.gpu_smoke import SECTIONS, main, passed, run_apart, run_section
from interleave.lab.smoke_sections import agreement, step_summary


@pytest.fixture(autouse=True)
def _children_find_the_package(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))


def run_tiny(name, tmp_path, seconds=300.0):
    run_section(name, tmp_path / "part.json", "cpu", "tiny", time.monotonic() + seconds)
    return json.loads((tmp_path / "part.json").read_text())


def test_all_sections_fit_in_five_minutes():
    assert sum(seconds + gpu_smoke.KILL_AFTER_S for seconds, _ in SECTIONS.values()) <= 300


def test_agreement_with_transformers(tmp_path):
    section = run_tiny("agreement", tmp_path)
    assert passed(section), section
    assert [(r["config"], r["dtype"]) for r in section["results"]] == [
        ("tiny-gqa4-bias", "fp32"),
        ("tiny-gqa4-bias", "fp16"),
        ("tiny-wide", "fp32"),
        ("tiny-wide", "fp16"),
    ]
    for result in section["results"]:
        if result["dtype"] == "fp32":
            assert result["ours_from_hf"] == result["ours_from_fp32"] < 1e-5
            assert result["hf_from_fp32"] == 0.0
        else:
            # Half precision is off by its own rounding, in theirs as in ours.
            assert 1e-5 < result["ours_from_fp32"] < 2 * result["hf_from_fp32"]


def test_parity_in_both_dtypes(tmp_path):
    section = run_tiny("parity-reference", tmp_path)
    assert passed(section), section
    assert [result["dtype"] for result in section["results"]] == ["float32", "float16"]
    assert all(result["checked"] > 100 for result in section["results"])
    assert all("untied" in result["model"] for result in section["results"])


def test_closed_batch(tmp_path):
    section = run_tiny("closed-reference", tmp_path)
    assert passed(section), section
    assert [result["engine"] for result in section["results"]] == ["chunked", "paged"]
    for result in section["results"]:
        assert result["completed"] == 32
        assert result["backend"] == "reference"
        assert result["wall_s"] > result["fullest_decode_step_median_s"] > 0
        assert result["peak_bytes"] is None or result["peak_bytes"] >= 0
        assert sum(result["parts_s"].values()) == pytest.approx(result["wall_s"], rel=0.2)


def test_a_deadline_keeps_what_was_measured(tmp_path):
    section = run_tiny("closed-reference", tmp_path, seconds=0.0)
    assert section["status"] == "OutOfTime: out of time"
    assert not passed(section)
    section = run_tiny("parity-reference", tmp_path, seconds=0.0)
    assert section["status"] == "OutOfTime: out of time"


def test_a_section_that_cannot_run_here_is_told_apart(tmp_path, monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    section = run_tiny("parity-triton", tmp_path)
    assert "needs a CUDA device" in section["status"]
    assert section["results"] == []


def test_a_section_that_hangs_is_killed(monkeypatch):
    monkeypatch.setitem(SECTIONS, "agreement", (1 - gpu_smoke.KILL_AFTER_S, agreement))
    section = run_apart("agreement", "cpu", "tiny")
    assert section["status"] == "killed: out of time"
    assert not passed(section)


def test_a_failed_gate_does_not_pass():
    assert not passed({"status": "done", "results": [{"failed": 0}, {"failed": 1}]})
    assert passed({"status": "done", "results": [{"failed": 0}, {"engine": "paged"}]})


def test_whole_run_in_processes_of_their_own(tmp_path):
    out = tmp_path / "new" / "smoke.json"
    done = CliRunner().invoke(
        main, ["--json", str(out), "--device", "cpu", "--size", "tiny", "--only", "agreement"]
    )
    assert done.exit_code == 0, done.output
    document = json.loads(out.read_text())
    assert list(document["sections"]) == ["agreement"]
    assert document["sections"]["agreement"]["status"] == "done"
    assert len(document["sections"]["agreement"]["results"]) == 4
    assert document["versions"]["torch"]
    refused = CliRunner().invoke(main, ["--json", str(out), "--device", "cpu", "--only", "everything"])
    assert refused.exit_code == 2


def test_it_needs_no_notebook_tools():
    """Nor numba, gguf or a tokenizer of the weights: what a GPU host may lack."""
    code = (
        "import sys\n"
        "for name in ('papermill', 'nbformat', 'numba', 'gguf', 'matplotlib', 'IPython', 'jsonschema'):\n"
        "    sys.modules[name] = None\n"
        "import interleave.lab.gpu_smoke\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_step_summary():
    def step(decode_rows, prefill_tokens, took):
        return StepRecord(0, 0.0, took, 1, prefill_tokens, decode_rows, 0, 0, 0, 0, 0, {"decode": took})

    log = RunLog(steps=[step(0, 9, 5.0), step(2, 0, 2.0), step(3, 4, 7.0), step(1, 0, 1.0)], wall_s=15.0)
    found = step_summary(log)
    assert found["decode_step_median_s"] == 1.5
    assert (found["most_decode_rows"], found["fullest_decode_step_median_s"]) == (2, 2.0)
    assert found["parts_s"] == {"decode": 15.0}
    assert step_summary(RunLog())["decode_step_median_s"] is None
