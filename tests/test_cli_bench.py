"""`interleave bench`: a table for people, a document for programs, one line for what is refused."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from interleave.cli.main import main
from interleave.engine.build import ENGINES
from interleave.lab.bench_config import BenchConfig
from interleave.lab.timing import HELD_VARIABLE
from interleave.model.decoder import Decoder

ROOT = Path(__file__).resolve().parents[1]
SCHEMA = json.loads((ROOT / "data/schema/bench.schema.json").read_text())
SMALL = ("--workload", "mixed8", "--scale", "64", "--model", "tiny", "--warmup", "0")


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    """Nothing here is a timing, so a real timing run on this machine need not be waited for."""
    monkeypatch.setenv(HELD_VARIABLE, "cpu")


def bench(*arguments):
    return CliRunner().invoke(main, ["bench", *map(str, arguments)])


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_writes_its_document(engine, tmp_path):
    out = tmp_path / "out.json"
    done = bench("closed", "--engine", engine, *SMALL, "--json", out)
    assert done.exit_code == 0, done.output
    document = json.loads(out.read_text())
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    assert document["config"]["engine"] == engine
    assert "requests     8 completed of 8" in done.stdout
    assert str(out) in done.stdout
    assert "run 1 of 1: 8 requests" in done.stderr


def test_a_workload_file_is_served_token_by_token(tmp_path):
    """The very prompts, so that two engines answer them alike; a late request is no closed batch."""
    path, out = tmp_path / "w.json", tmp_path / "out.json"
    rows = [{"prompt": [5, 6, 7], "max_tokens": 3}, {"prompt": [9] * 12, "max_tokens": 2}]
    path.write_text(json.dumps({"mine": rows, "joined": {"rows": rows, "late": rows[0], "after_steps": 1}}))
    options = ("--workload-file", path, "--model", "tiny", "--warmup", "0")
    answers = []
    for engine in ("mixed", "cached"):
        done = bench("closed", "--engine", engine, "--workload", "mine", *options, "--json", out)
        assert done.exit_code == 0, done.output
        document = json.loads(out.read_text())
        jsonschema.Draft202012Validator(SCHEMA).validate(document)
        assert [request["prompt_tokens"] for request in document["requests"]] == [3, 12]
        answers.append([request["tokens"] for request in document["requests"]])
    assert answers[0] == answers[1]
    done = bench("closed", "--engine", "mixed", "--workload", "joined", *options)
    assert done.exit_code == 2
    assert "late request" in done.stderr


def test_open_arrivals():
    done = bench("open", "--engine", "chunked", "--rate", "500", *SMALL, "--num-requests", "5")
    assert done.exit_code == 0, done.output
    assert "5 completed of 5" in done.stdout


def test_defaults_are_those_of_the_configuration():
    defaults = {field.name: field.default for field in dataclasses.fields(BenchConfig)}
    for name in ("closed", "open"):
        command = main.commands["bench"].commands[name]
        chosen = command.make_context("bench", ["--engine", "mixed"]).params
        del chosen["json_path"], chosen["engine"]
        assert chosen == {name: defaults[name] for name in chosen}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("closed", "--engine", "chunkd"), "did you mean 'chunked'"),
        (("closed", "--engine", "chunked", "--workload", "mixd32"), "did you mean 'mixed32'"),
        (("closed", "--engine", "chunked", "--scale", "0"), "--scale must divide"),
        (("closed", "--engine", "chunked", "--trace", "nowhere.csv"), "cannot read nowhere.csv"),
        (("open", "--engine", "chunked"), "need a rate"),
        (("open", "--engine", "chunked", "--rate", "nan"), "'--rate': nan is not in the range"),
        (("open", "--engine", "chunked", "--rate", "-1"), "'--rate': -1.0 is not in the range"),
        (
            ("closed", "--engine", "chunked", *SMALL, "--chunk-budget", "0"),
            "'--chunk-budget': 0 is not in the range",
        ),
        (
            ("closed", "--engine", "chunked", *SMALL, "--json", "/dev/null/x.json"),
            "cannot write /dev/null/x.json",
        ),
        (("closed", "--engine", "chunked", "--allocation", "progresive"), "did you mean 'progressive'"),
        (
            ("closed", "--engine", "static", "--allocation", "progressive"),
            "does not apply to engine 'static'",
        ),
        (("closed", "--engin", "chunked"), "--engine"),
        (("closed",), "--engine"),
    ],
)
def test_refusals_exit_2_with_one_clear_message(arguments, says):
    done = bench(*arguments)
    assert done.exit_code == 2
    assert says in done.stderr
    assert "Traceback" not in done.output
    assert done.stdout == ""


def test_broken_trace_names_its_cell(tmp_path):
    trace = tmp_path / "t.csv"
    trace.write_text("due_s,prompt_tokens,new_tokens\n0,4,2\n1,-4,2\n")
    done = bench("open", "--engine", "chunked", "--trace", trace, "--model", "tiny")
    assert done.exit_code == 2
    assert f"{trace}:3: column prompt_tokens" in done.stderr


def test_a_failed_run_exits_1_and_keeps_its_document(monkeypatch, tmp_path):
    def failing(*_):
        raise MemoryError("no memory")

    # An engine is rehearsed once a process: what fails below is a run.
    assert bench("closed", "--engine", "cached", *SMALL).exit_code == 0
    monkeypatch.setattr(Decoder, "forward", failing)
    out = tmp_path / "out.json"
    done = bench("closed", "--engine", "cached", *SMALL, "--json", out)
    assert done.exit_code == 1
    assert "no memory" in done.stderr
    document = json.loads(out.read_text())
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    assert (document["status"], document["summary"]["served_rate"]) == ("failed", None)


def test_a_disk_that_fills_up_meanwhile_is_named_and_the_summary_still_printed(monkeypatch, tmp_path):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    out = tmp_path / "out.json"
    out.write_text('{"an": "older document"}')
    done = bench("closed", "--engine", "cached", *SMALL, "--json", out)
    assert done.exit_code != 0
    assert done.stderr.splitlines()[-1] == f"interleave: cannot write {out}: No space left on device"
    assert "8 completed of 8" in done.stdout
    assert out.read_text() == '{"an": "older document"}'
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_ended_process_keeps_what_was_measured(tmp_path, sent, code):
    out = tmp_path / "out.json"
    command = [sys.executable, "-m", "interleave", "bench", "open", "--engine", "mixed", "--rate", "0.01"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'kernels'}"}
    running = subprocess.Popen(
        [*command, *SMALL, "--json", str(out)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stderr.readline().startswith("run 1 of 1")
    running.send_signal(sent)
    _, errors = running.communicate(timeout=60)
    assert running.returncode == code
    assert "Traceback" not in errors
    assert ("interleave: interrupted" in errors) == (sent == signal.SIGINT)
    document = json.loads(out.read_text())
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    assert document["status"] == "interrupted"
