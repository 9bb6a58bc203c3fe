"""The machine's ceilings: measured for real on small sizes, kept by identity, absent without fuss."""

import json

import jsonschema
import pytest
import torch

from interleave.lab.bench import summary_lines
from interleave.lab.bench_config import BenchConfig
from interleave.lab.bench_run import run_bench
from interleave.lab.devices import place
from interleave.lab.linear_table import PATHS, chosen_paths, four_bit_matrix, save_paths
from interleave.lab.machine import machine_lines, measure_machine
from interleave.lab.machine_store import (
    ceilings_of,
    known_ceilings,
    known_roofline,
    load_machine,
    machine_identity,
    machine_path,
    save_machine,
)
from interleave.lab.paths import data_dir
from interleave.lab.timing import HELD_VARIABLE
from interleave.model.config_hf import shipped_config
from interleave.model.ops import simd
from interleave.model.simd.forms import NAMES
from interleave.model.sources import load_model

SCHEMA = json.loads((data_dir() / "schema" / "machine.schema.json").read_text())
HERE = place("cpu")


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch, tmp_path):
    """Nothing here is a timing to keep, so no lock is waited for."""
    monkeypatch.setenv(HELD_VARIABLE, "cpu")
    monkeypatch.setenv("INTERLEAVE_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def measured():
    threads = torch.get_num_threads()
    said = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(HELD_VARIABLE, "cpu")
        document = measure_machine("tiny", repeats=2, read_bytes=2**20, row_counts=(1, 3), say=said.append)
    torch.set_num_threads(threads)
    return document


def test_the_document_is_valid_and_whole(measured):
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(json.dumps(measured, allow_nan=False)))
    assert {(line["path"], line["rows"]) for line in measured["linear_paths"]} == {
        (path, rows) for path in PATHS for rows in (1, 3)
    }
    assert measured["chosen_paths"][-1]["up_to_rows"] is None
    lines = "\n".join(machine_lines(measured))
    assert "GB/s" in lines
    assert "GFLOP/s at 512 rows" in lines
    assert "3 rows" in lines


def test_it_is_found_again_by_processor_threads_and_versions(measured):
    assert known_ceilings(HERE.device, HERE.threads) is None
    path = save_machine(measured)
    assert path == machine_path(machine_identity(HERE.device, HERE.threads))
    assert known_ceilings(HERE.device, HERE.threads) == ceilings_of(measured)
    assert known_ceilings(HERE.device, HERE.threads + 1) is None
    assert known_ceilings("another processor", HERE.threads) is None


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace('"schema_version": 1', '"schema_version": 2'),
        lambda text: "[]",
        lambda text: text.replace('"read_bytes_per_s"', '"other"'),
    ],
)
def test_a_file_that_cannot_be_used_counts_as_none(measured, spoil):
    path = save_machine(measured)
    path.write_text(spoil(path.read_text()))
    assert load_machine(HERE.device, HERE.threads) is None
    assert known_roofline(load_model("tiny").decoder) is None


def test_figures_have_a_floor_only_where_the_machine_is_measured(measured):
    config = BenchConfig(
        arrivals="closed", engine="mixed", workload="mixed8", scale=64, model="tiny", warmup=0
    )
    without = run_bench(config)
    assert without["floor_s"] is without["roofline"] is None
    assert {(step["floor_s"], step["reached"]) for step in without["steps"]} == {(None, None)}
    assert "interleave machine" in "\n".join(summary_lines(without))
    save_machine(measured)
    found = run_bench(config)
    assert found["floor_s"] == pytest.approx(sum(step["floor_s"] for step in found["steps"]))
    assert min(step["floor_s"] for step in found["steps"]) > 0
    for step in found["steps"]:
        assert step["reached"] == pytest.approx(step["floor_s"] / (step["end_s"] - step["start_s"]))
    assert found["roofline"]["weight_bytes"] == load_model("tiny").decoder.step_weight_bytes
    assert "of the possible reached" in "\n".join(summary_lines(found))


def test_other_types_have_no_float32_roofline(measured):
    save_machine(measured)
    assert known_roofline(load_model("tiny").decoder) is not None
    assert known_roofline(load_model("tiny", "bf16").decoder) is None


def test_a_model_multiplies_as_the_table_says(measured):
    """By row count, for models of these shapes on so many threads only; the tokens stay the same."""
    fixed = load_model("tiny")
    assert fixed.linear.endswith("(fixed)")
    table = [
        # A neighbour may have come while the best one ran; its best time says what it can do.
        {**line, "seconds": {**line["seconds"], "median": 3.0, "min": 1.0 if line["path"] == best else 2.0}}
        for rows, best in ((1, "reference"), (3, "cpu"))
        for line in measured["linear_paths"]
        if line["rows"] == rows
    ]
    assert chosen_paths(table).limits == ((1, "reference"), (None, "cpu"))
    threads = torch.get_num_threads()
    assert save_paths(shipped_config("tiny"), threads + 1, table)
    assert load_model("tiny").linear == fixed.linear
    assert save_paths(shipped_config("tiny"), threads, table)
    assert not save_paths(shipped_config("tiny"), threads, table), "nothing changed the second time"
    found = load_model("tiny")
    assert found.linear == "reference to 1 rows, cpu beyond (measured)"
    assert load_model("tiny-gqa3").linear == load_model("tiny-gqa3", ops=None).linear
    assert load_model("tiny-gqa3").linear.endswith("(fixed)")
    config = BenchConfig(
        arrivals="closed", engine="mixed", workload="mixed8", scale=64, model="tiny", warmup=0
    )
    document = run_bench(config)
    assert document["config"]["linear_paths"] == found.linear
    assert document["engine"]["linear"] == "reference to 1 rows, cpu beyond"


@pytest.mark.parametrize("bad", [{"repeats": 0}, {"read_bytes": 0}, {"row_counts": (1, 0)}])
def test_counts_below_one_are_refused(bad):
    with pytest.raises(ValueError, match="must be at least 1, got 0"):
        measure_machine("tiny", **bad)


def test_weights_are_timed_in_the_form_that_the_embedded_model_has() -> None:
    """Else a path that keeps narrow weights narrow is timed on wide ones."""
    matrix = four_bit_matrix(40, 96, torch.Generator().manual_seed(1))
    assert NAMES[simd.pack(matrix).form] == "q4_1"
    assert matrix.std() == pytest.approx(96**-0.5, rel=0.2)
    assert abs(matrix.mean()) < 0.02
    odd = four_bit_matrix(40, 50, torch.Generator().manual_seed(1))
    assert odd.shape == (40, 50)


def test_what_runs_on_mps_is_not_taken_for_the_cpu(monkeypatch):
    """One chip, two processors: another name, and a driver, which is what makes a number one of a GPU."""
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ValueError, match="device 'mps': this machine has no MPS device"):
        place("mps")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    there = place("mps")
    assert there.device != HERE.device
    assert (there.driver or "").startswith("MPS, macOS")
    assert place("mps:0") == there
    assert HERE.driver is None
