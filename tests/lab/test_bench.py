"""The bench document: valid against its schema for every engine, also when a run does not end well."""

import csv
import json
import os
import re
import subprocess
import sys

import jsonschema
import pytest

from interleave.engine.batched import EngineFault
from interleave.engine.build import ENGINES
from interleave.engine.records import RunLog, StepRecord
from interleave.lab.bench import bench_document, median_run, summary_lines, write_document
from interleave.lab.bench_config import BenchConfig, bench_trace
from interleave.lab.bench_run import run_bench
from interleave.lab.corpus import byte_tokens, read_corpus
from interleave.lab.files import StorageError, check_writable
from interleave.lab.latency_file import model_to_json
from interleave.lab.latency_model import LatencyModel
from interleave.lab.paths import data_dir
from interleave.lab.provenance import provenance
from interleave.lab.serving import model_corpus
from interleave.lab.summary import summary
from interleave.lab.timing import HELD_VARIABLE
from interleave.lab.trace import Trace, TraceRow, write_csv
from interleave.lab.workload import workload
from interleave.model.decoder import Decoder
from interleave.model.sources import load_model

SCHEMA = json.loads((data_dir() / "schema" / "bench.schema.json").read_text())
SMALL = {"workload": "mixed8", "scale": 64, "model": "tiny", "warmup": 0}


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    """Nothing here is a timing, so a real timing run on this machine need not be waited for."""
    monkeypatch.setenv(HELD_VARIABLE, "cpu")


def validated(document):
    """The document as a reader gets it, checked against the schema; NaN would not survive the dump."""
    again = json.loads(json.dumps(document, allow_nan=False))
    jsonschema.Draft202012Validator(SCHEMA).validate(again)
    return again


def test_the_schema_is_a_schema_and_allows_nothing_else():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    document = run_bench(BenchConfig(arrivals="closed", engine="cached", **SMALL))
    for spoil in ({"extra": 1}, {"wall_s": None}, {"status": "fine"}, {"schema_version": 2}):
        with pytest.raises(jsonschema.ValidationError):
            validated(document | spoil)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("arrivals", ["closed", "open"])
def test_every_engine(engine, arrivals):
    rate = 200.0 if arrivals == "open" else None
    config = BenchConfig(arrivals=arrivals, engine=engine, rate=rate, **SMALL)
    found = validated(run_bench(config))
    trace = bench_trace(config)
    assert found["status"] == "completed"
    assert found["trace_sha256"] == trace.sha256
    assert found["config"]["block_tokens"] == 1
    assert found["config"]["chunk_budget"] == 8
    assert [(r["due_s"], r["prompt_tokens"], len(r["tokens"])) for r in found["requests"]] == list(trace.rows)
    assert {r["finish_reason"] for r in found["requests"]} == {"length"}
    assert found["summary"]["steps"]["n"] == len(found["steps"])
    assert (found["memory"]["pool_bytes"] is None) == (engine in ("nocache", "cached"))


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        (
            "cached",
            {
                "max_rows": 1,
                "chunk_budget": None,
                "num_blocks": None,
                "block_tokens": None,
                "attention": None,
            },
        ),
        ("continuous", {"max_rows": 4, "chunk_budget": None, "num_blocks": 4, "attention": "reference"}),
        ("mixed", {"max_rows": 4, "chunk_budget": 5, "block_tokens": 2, "attention": "reference"}),
    ],
)
def test_what_an_engine_makes_of_the_options_is_recorded(engine, expected):
    options = {"max_rows": 4, "chunk_budget": 5, "block_tokens": 2, "backend": "reference"}
    found = validated(run_bench(BenchConfig(arrivals="closed", engine=engine, **options, **SMALL)))
    assert {name: found["engine"][name] for name in expected} == expected
    assert {name: found["config"][name] for name in options} == options


def test_chunks_chosen_by_a_target_and_a_fitted_model(tmp_path):
    """The tokens stay; a target of a few positions a step takes more steps than the usual budget."""
    usual = run_bench(BenchConfig(arrivals="closed", engine="mixed", chunk_budget=64, **SMALL))
    model = model_to_json(LatencyModel("additive", {"positions": 1.0}))
    (tmp_path / "latency.json").write_text(json.dumps({"schema_version": 1, "model_parameters": model}))
    small = {"tpot_target_s": 9.0, "latency": str(tmp_path / "latency.json"), "chunk_budget": 64}
    found = validated(run_bench(BenchConfig(arrivals="closed", engine="mixed", **small, **SMALL)))
    assert [r["tokens"] for r in found["requests"]] == [r["tokens"] for r in usual["requests"]]
    busy = [s for s in found["steps"] if s["decode_rows"] and s["prefill_tokens"]]
    assert busy
    assert max(s["prefill_tokens"] + s["decode_rows"] for s in busy) <= 9
    assert len(found["steps"]) > len(usual["steps"])


def test_a_pool_that_runs_dry(tmp_path):
    """Fewer blocks than the batch needs: the same tokens, preemptions in steps and summary, a line for a reader."""
    write_csv(Trace(tuple(TraceRow(0.0, 5 + n, 20) for n in range(6))), tmp_path / "t.csv")
    common = {"arrivals": "closed", "engine": "chunked", "trace": str(tmp_path / "t.csv"), "model": "tiny",
              "warmup": 0, "block_tokens": 4}  # fmt: skip
    usual = validated(run_bench(BenchConfig(**common)))
    config = load_model("tiny").config
    block_bytes = 4 * 4 * config.kv_bytes_per_token_factor
    small = {"allocation": "progressive", "pool_gib": 16 * block_bytes / 2**30}
    found = validated(run_bench(BenchConfig(**common, **small)))
    assert found["engine"]["num_blocks"] == 16
    assert [r["tokens"] for r in found["requests"]] == [r["tokens"] for r in usual["requests"]]
    assert found["engine"]["allocation"] == found["config"]["allocation"] == "progressive"
    counted = found["summary"]["steps"]
    assert counted["preempted"] == sum(s["preempted"] for s in found["steps"]) > 0
    assert counted["recomputed_tokens"] == sum(s["recomputed_tokens"] for s in found["steps"]) > 0
    held = found["summary"]["occupancy"]
    assert (
        0 < held["mean_cached_tokens"] < 4 * held["mean_used_blocks"] <= 4 * held["mean_owned_blocks"] <= 64
    )
    (line,) = [line for line in summary_lines(found) if line.startswith("pool")]
    assert f"16 blocks, progressive: {held['mean_owned_blocks'] / 16:.0%} owned" in line
    assert f"{counted['preempted']} preemptions" in line


def test_occupancy_is_weighted_with_time():
    steps = [StepRecord(n, n, n + length, 1, 0, 1, 0, 0, 0, 1, 0, rows=rows, owned_blocks=4, used_blocks=3, cached_tokens=9)
             for n, length, rows in ((0, 1.0, 2), (1, 3.0, 6))]  # fmt: skip
    held = summary(RunLog(steps=steps))["occupancy"]
    assert held == {
        "mean_rows": 5.0,
        "mean_owned_blocks": 4.0,
        "mean_used_blocks": 3.0,
        "mean_cached_tokens": 9.0,
    }
    assert set(summary(RunLog())["occupancy"].values()) == {None}


def test_an_option_without_use_is_said_aloud():
    said = []
    options = {"chunk_budget": 5, "max_rows": 4, "block_tokens": 2}
    run_bench(BenchConfig(arrivals="closed", engine="cached", **options, **SMALL), say=said.append)
    notes = [line for line in said if line.startswith("note")]
    assert notes == [
        f"note: engine cached makes no use of {name} {options[name]}"
        for name in ("max_rows", "chunk_budget", "block_tokens")
    ]
    said.clear()
    run_bench(BenchConfig(arrivals="closed", engine="mixed", **options, **SMALL), say=said.append)
    assert not [line for line in said if line.startswith("note")]


def test_a_request_that_can_never_fit_is_named_before_prompts_are_cut(tmp_path):
    write_csv(Trace((TraceRow(0.0, 5, 2), TraceRow(0.0, 99_999_999, 3))), tmp_path / "huge.csv")
    config = BenchConfig(arrivals="closed", engine="chunked", trace=str(tmp_path / "huge.csv"), model="tiny")
    with pytest.raises(ValueError, match=r"huge\.csv:3: 99999999 prompt and 3 new tokens can never fit"):
        run_bench(config)


def test_a_trace_serves_no_more_than_it_holds(tmp_path):
    write_csv(Trace((TraceRow(0.0, 5, 2),)), tmp_path / "t.csv")
    config = BenchConfig(arrivals="closed", engine="chunked", trace=str(tmp_path / "t.csv"), num_requests=5)
    with pytest.raises(ValueError, match="num_requests 5 is more than the 1 of "):
        bench_trace(config)


def test_goodput_counts_requests_within_the_limits():
    limits = {"ttft_limit_s": 100.0, "gap_limit_s": 1e-9}
    found = validated(run_bench(BenchConfig(arrivals="closed", engine="chunked", **limits, **SMALL)))
    single = sum(len(request["tokens"]) == 1 for request in found["requests"])  # no gap to be too long
    goodput = found["summary"]["goodput"]
    assert goodput["limits"] == {"ttft_s": 100.0, "tpot_s": None, "max_gap_s": 1e-9}
    assert goodput["rate"] == pytest.approx(single / found["summary"]["span_s"])
    assert "within ttft_s 100, max_gap_s 1e-09" in "\n".join(summary_lines(found))


def test_engines_agree_on_tokens():
    documents = [run_bench(BenchConfig(arrivals="closed", engine=engine, **SMALL)) for engine in ENGINES]
    tokens = [[request["tokens"] for request in document["requests"]] for document in documents]
    assert all(found == tokens[0] for found in tokens)


def test_several_runs_list_the_median_one():
    found = validated(
        run_bench(BenchConfig(arrivals="closed", engine="chunked", runs=3, **SMALL | {"warmup": 1}))
    )
    walls = sorted(run["wall_s"] for run in found["runs"])
    assert len(walls) == 3
    assert found["wall_s"] == walls[1]
    assert f"({walls[0]:.3f} to {walls[2]:.3f}, 3 runs)" in "\n".join(summary_lines(found))


def test_median_run():
    logs = [RunLog(wall_s=wall) for wall in (3.0, 1.0, 2.0, 4.0)]
    assert median_run(logs).wall_s == 2.0
    assert median_run(logs[:3]).wall_s == 2.0
    assert median_run(logs[:1]).wall_s == 3.0


def test_a_fault_keeps_what_was_measured(monkeypatch):
    """A run's forward fails: what the runs before it measured is published, then the fault goes on."""
    forward, published, armed = Decoder.forward, [], []

    def failing(self, *arguments):
        if armed:
            raise MemoryError("no memory")
        return forward(self, *arguments)

    def fail_in(run):
        armed.clear()
        published.clear()
        config = BenchConfig(arrivals="closed", engine="chunked", runs=2, **SMALL)
        with pytest.raises(EngineFault, match="no memory"):
            run_bench(
                config, say=lambda line: armed.append(1) if run in line else None, publish=published.append
            )
        return validated(published[0])

    monkeypatch.setattr(Decoder, "forward", failing)
    found = fail_in("run 2")
    assert (found["status"], len(found["runs"])) == ("failed", 1)
    assert found["summary"]["num_completed"] == 8
    found = fail_in("run 1")
    assert found["summary"]["num_completed"] == 0
    assert found["summary"]["served_rate"] is None
    assert found["summary"]["finish_reasons"] == {"error": 8}
    assert "0 completed of 8" in "\n".join(summary_lines(found))


def test_an_interrupt_keeps_what_was_measured():
    published = []

    def interrupt(line):
        if "run 2" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_bench(
            BenchConfig(arrivals="closed", engine="paged", runs=3, **SMALL),
            say=interrupt,
            publish=published.append,
        )
    found = validated(published[0])
    assert (found["status"], len(found["runs"])) == ("interrupted", 1)


def test_the_device_is_held_while_it_measures(monkeypatch, tmp_path):
    monkeypatch.delenv(HELD_VARIABLE)
    monkeypatch.setenv("INTERLEAVE_CACHE", str(tmp_path))
    held = []
    run_bench(
        BenchConfig(arrivals="closed", engine="cached", **SMALL),
        say=lambda line: held.append((line, os.environ.get(HELD_VARIABLE))),
    )
    assert held == [("run 1 of 1: 8 requests", "cpu")]
    assert HELD_VARIABLE not in os.environ


def test_a_trace_is_replayed(tmp_path):
    trace = Trace((TraceRow(0.001, 5, 2), TraceRow(0.002, 3, 1), TraceRow(0.003, 4, 3)))
    write_csv(trace, tmp_path / "t.csv")
    replay = {"engine": "mixed", "trace": str(tmp_path / "t.csv"), "model": "tiny", "warmup": 0}
    found = run_bench(BenchConfig(arrivals="open", **replay))
    assert found["trace_sha256"] == trace.sha256
    assert [request["due_s"] for request in found["requests"]] == [0.001, 0.002, 0.003]
    closed = bench_trace(BenchConfig(arrivals="closed", num_requests=2, **replay))
    assert closed.rows == (TraceRow(0.0, 5, 2), TraceRow(0.0, 3, 1))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"engine": "chunkd"}, "unknown engine 'chunkd'; did you mean 'chunked'"),
        ({"arrivals": "openn"}, "closed or open"),
        ({"workload": "mixed33"}, "unknown workload 'mixed33'; did you mean 'mixed32'"),
        ({"workload": None}, "workload or a trace file"),
        ({"trace": "t.csv"}, "workload or a trace file"),
        ({"arrivals": "open"}, "need a rate"),
        ({"rate": 2.0}, "closed arrivals have no rate"),
        ({"arrivals": "open", "rate": float("nan")}, "rate must be a finite number above 0"),
        ({"num_requests": 0}, "num_requests must be at least 1"),
        ({"runs": 0}, "runs must be at least 1"),
        ({"ttft_limit_s": 0.0}, "limit ttft_s must be a finite number of seconds above 0, got 0.0"),
        ({"tpot_target_s": 0.1}, "give both or neither"),
        ({"tpot_target_s": 0.1, "latency": "nothing.json"}, "cannot read nothing.json"),
        ({"warmup": -1}, "runs must be at least 1 and warmup 0"),
        ({"scale": 3}, "scale must divide"),
        ({"device": "gpu"}, "unknown device 'gpu'"),
        ({"device": "cpu:1"}, "this machine has 1 cpu devices"),
        ({"device": "cuda:99"}, "cuda devices"),
        ({"model": "tinny"}, "unknown model 'tinny'"),
        ({"dtype": "fp64"}, "unknown dtype 'fp64'"),
        ({"backend": "gpu"}, "unknown attention backend 'gpu'"),
        ({"order": "random"}, "order"),
        ({"chunk_budget": 0}, "chunk_budget must be .* at least 1"),
        ({"block_tokens": 0}, "block_tokens must be .* at least 1"),
        ({"max_rows": 0}, "max_rows"),
        ({"pool_gib": 1e-9}, "pool_gib must hold at least 1 block of"),
        ({"pool_gib": 1e-5}, "blocks"),
        ({"pool_gib": 1e9}, "pool_gib 1000000000.0 is more than the .* GiB that are free"),
        ({"scale": 1, "workload": "published", "model": "dummy:tinygpt"}, "4096"),
    ],
)
def test_what_cannot_run_is_refused(change, says):
    config = {"arrivals": "closed", "engine": "chunked", **SMALL} | change
    with pytest.raises(ValueError, match=says):
        run_bench(BenchConfig(**config), publish=lambda _: pytest.fail("nothing was measured"))


def test_recorded_threads_are_those_that_compute():
    """In a fresh process: the attention kernel's threads once raised torch's count behind its back."""
    code = (
        "import torch; torch.set_num_threads(1)\n"
        "from interleave.lab.bench_config import BenchConfig\n"
        "from interleave.lab.bench_run import run_bench\n"
        f"found = run_bench(BenchConfig(arrivals='closed', engine='mixed', **{SMALL!r}))\n"
        "print(found['threads'], torch.get_num_threads())"
    )
    environment = {**os.environ, "NUMBA_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["1", "1"]


def test_byte_tokens_of_a_model_without_tokenizer():
    assert model_corpus(load_model("tiny")) == byte_tokens(read_corpus())


def test_prompts_of_the_default_model_are_its_own_tokens(smollm2_folder):
    model = load_model()
    tokens = model_corpus(model)
    assert len(tokens) > 150_000
    assert model.tokenizer.decode(tokens[:200]).startswith("PRIDE AND PREJUDICE\nBy Jane Austen")


def test_documents_are_written_whole_or_not(tmp_path):
    trace = workload("mixed8", scale=64)
    document = bench_document(
        RunLog(), {"engine": "x"}, trace, provenance({}, device="cpu-a", threads=1), mark="measured-cpu"
    )
    write_document(document, tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_text())["status"] == "completed"
    with pytest.raises(ValueError, match="JSON compliant"):
        write_document(document | {"wall_s": float("nan")}, tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_text())["wall_s"] == 0.0
    with pytest.raises(ValueError, match="status must be one of"):
        bench_document(RunLog(), {}, trace, {}, mark="measured-cpu", status="fine")


def test_unwritable_places_are_found_before_the_run(tmp_path):
    check_writable(tmp_path / "new" / "out.json")
    assert list((tmp_path / "new").iterdir()) == []
    (tmp_path / "trace.csv").write_text("due_s,prompt_tokens,new_tokens\n")
    with pytest.raises(StorageError, match=r"trace.csv: it exists and is not a JSON document"):
        check_writable(tmp_path / "trace.csv")
    (tmp_path / "old.json").write_text(' {"a": 1}')
    check_writable(tmp_path / "old.json")
    (tmp_path / "file").write_text("")
    for place in (tmp_path, tmp_path / "file" / "out.json"):
        with pytest.raises(StorageError, match=re.escape(str(place))):
            check_writable(place)


def test_steps_and_requests_are_long_tables(tmp_path):
    """Rows of one kind have the same columns, so that they load as a table."""
    document = run_bench(BenchConfig(arrivals="closed", engine="mixed", **SMALL))
    for name in ("requests", "steps"):
        with (tmp_path / name).open("w", newline="") as file:
            writer = csv.DictWriter(file, list(document[name][0]))
            writer.writerows(document[name])
        assert len((tmp_path / name).read_text().splitlines()) == len(document[name])
