"""`interleave gate`: counts for people, a report for programs, exit code 1 when engines differ."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from interleave.cli.main import main
from interleave.engine.layouts import BlockLayout

ROOT = Path(__file__).resolve().parents[1]
SCHEMA = json.loads((ROOT / "data/schema/gate.schema.json").read_text())
TINY = ("--quick", "--model", "tiny-gqa3", "--backend", "cpu")


pytestmark = pytest.mark.usefixtures("one_thread")


def gate(*arguments):
    return CliRunner().invoke(main, ["gate", *map(str, arguments)])


def read(path):
    document = json.loads(path.read_text(), parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    return document


def test_the_schema_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_equal_engines(tmp_path):
    out = tmp_path / "new folder" / "gate.json"
    done = gate(*TINY, "--json", out)
    assert done.exit_code == 0, done.output
    found = read(out)
    assert found["checked"] == found["exact"] > 100
    assert found["near_ties"] == found["failed"] == 0
    assert found["ties"] == found["failures"] == []
    assert found["distinct_tokens"] > 50
    assert found["conditions"] == {"quick": True, "backends": ["cpu"], "refused_backends": {}}
    assert found["model"] == "tiny-gqa3 (random weights, seed 0)"
    assert (found["dtype"], found["near_tie_steps"]) == ("float32", 64)
    assert found["versions"]["torch"]
    assert done.stdout.splitlines()[1:] == [
        f"checked {found['checked']}, exact {found['exact']}, near ties 0, failed 0 "
        f"({found['distinct_tokens']} distinct tokens in the answers)"
    ]
    progress = done.stderr.splitlines()
    assert sum(line.startswith("mixed ") for line in progress) == 5
    assert all("exact" in line for line in progress)


def test_exchanged_blocks_exit_1(tmp_path, monkeypatch):
    def table(layout, row):
        return row.blocks if row.is_prefilling else row.blocks[::-1]

    monkeypatch.setattr(BlockLayout, "table", table)
    done = gate(*TINY, "--json", tmp_path / "gate.json")
    assert done.exit_code == 1
    found = read(tmp_path / "gate.json")
    assert found["failed"] == len(found["failures"]) > 0
    assert {failure["engine"] for failure in found["failures"]} == {"paged", "whole", "chunked", "mixed"}
    assert f"failed {found['failed']}" in done.stdout
    first = found["failures"][0]
    assert f"request {first['request']}: position {first['position']} " in done.stdout


def test_near_ties_are_printed_with_their_position(tmp_path):
    done = gate("--quick", "--model", "tiny-gqa3", "--dtype", "bf16", "--json", tmp_path / "gate.json")
    found = read(tmp_path / "gate.json")
    assert done.exit_code == 0, done.output
    assert found["near_ties"] == len(found["ties"])
    assert found["near_tie_steps"] == 4
    lines = [line for line in done.stdout.splitlines() if line.startswith("near tie: ")]
    assert len(lines) == found["near_ties"]
    for line, tie in zip(lines, found["ties"], strict=True):
        assert f"{tie['engine']}" in line
        assert f"position {tie['position']} " in line
        assert tie["gap_steps"] < 4
    assert "backend cpu not run: " in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--model", "tinny"], "did you mean 'tiny'"),
        (["--model", "tiny", "--dtype", "fp8"], "unknown dtype 'fp8'"),
        (["--model", "tiny", "--device", "tpu"], "tpu"),
        (["--model", "tiny", "--backend", "cpuu"], "did you mean 'cpu'"),
        (["--model", "tiny", "--backend", "cpu", "--dtype", "fp16"], "float32"),
        (["--model", "tiny", "--json", "/proc/gate.json"], "cannot write /proc/gate.json"),
        (["--model", "tiny", "--bakend", "cpu"], "--backend"),
    ],
)
def test_refusals_take_one_line_and_exit_2(arguments, said):
    done = gate(*arguments)
    assert done.exit_code == 2, done.output
    assert said in done.stderr
    assert "Traceback" not in done.output
    assert done.stdout == ""
