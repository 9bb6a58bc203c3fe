"""The simulated timeline: what its file holds, and that the committed one is what the code says today."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from interleave.cli.fit import PUBLISHED, latency_model
from interleave.cli.main import main
from interleave.lab.latency_model import LatencyModel
from interleave.lab.paths import data_dir
from interleave.lab.plan_features import FEATURES
from interleave.lab.timeline import (
    POLICIES,
    TimelineSetting,
    read_timeline,
    timeline_document,
    timeline_lines,
    write_timeline,
)

SCHEMA = json.loads((data_dir() / "schema" / "timeline.schema.json").read_text())
MODEL = LatencyModel("step_floor", {"positions": 6e-5, "decode_attended": 2e-7}, floor_s=0.03)
SETTING = TimelineSetting(MODEL, num_requests=8, rate=3.0, max_rows=4, chunk_budget=64, scale=4)


@pytest.mark.parametrize("policy", POLICIES)
def test_every_prompt_and_every_token_is_in_it_once(policy: str) -> None:
    document = timeline_document(SETTING)
    steps = document["runs"][policy]
    read, written = Counter[int](), Counter[int]()
    for _, _, chunks, decodes in steps:
        for request, tokens in chunks:
            read[request] += tokens
        written.update(decodes)
    for number, (_, prompt, new) in enumerate(document["requests"]):
        assert read[number] == prompt
        assert written[number] == new - 1  # the first token comes with the last piece of the prompt
    assert all(one[1] <= other[0] for one, other in pairwise(steps))
    longest = max(sum(tokens for _, tokens in chunks) for _, _, chunks, _ in steps)
    assert (longest <= SETTING.chunk_budget) == (policy != "whole")
    together = any(chunks and decodes for _, _, chunks, decodes in steps)
    assert together == (policy != "whole")


def test_the_file_is_valid_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    document = timeline_document(SETTING)
    write_timeline(path, document)
    found = read_timeline(path)
    jsonschema.Draft202012Validator(SCHEMA).validate(found)
    assert found == json.loads(json.dumps(document))


def rounded(value: Any) -> Any:
    """The last digits of a fit differ between processors, whose linear algebra adds in another order."""
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return pytest.approx(value, rel=1e-9, abs=0) if isinstance(value, float) else value


def test_the_committed_one_is_what_the_code_says() -> None:
    path = data_dir() / "results" / "simulated" / "timeline.json"
    stored = read_timeline(path)
    jsonschema.Draft202012Validator(SCHEMA).validate(stored)
    today = json.loads(json.dumps(timeline_document(TimelineSetting(latency_model(PUBLISHED)))))
    for name in ("setting", "trace_sha256", "requests", "runs"):
        assert stored[name] == rounded(today[name])
    assert path.stat().st_size < 200_000


def test_steps_outside_of_the_fit_are_counted_and_said() -> None:
    """The model has seen chunks of 64 positions and less; whole prompts are longer."""
    seen = dict.fromkeys(FEATURES, (0, 10**9)) | {"positions": (0, SETTING.chunk_budget + SETTING.max_rows)}
    document = timeline_document(replace(SETTING, model=replace(MODEL, fitted=seen)), ("whole", "chunked"))
    assert document["outside"]["chunked"] == {"steps": 0, "largest": {}}
    longest = [
        sum(tokens for _, tokens in chunks) + len(rows) for *_, chunks, rows in document["runs"]["whole"]
    ]
    beyond = [tokens for tokens in longest if tokens > seen["positions"][1]]
    assert document["outside"]["whole"] == {"steps": len(beyond), "largest": {"positions": max(beyond)}}
    (warning,) = (line for line in timeline_lines(document) if line.startswith("warning"))
    assert f"{len(beyond)} of {len(longest)} steps lie outside the fitted range: positions" in warning


@pytest.mark.parametrize("text", ["", "{}", '{"schema_version": 1}', '{"schema_version": 2, "runs": {}}'])
def test_a_file_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"other\.json.* not a timeline"):
        read_timeline(path)


def test_the_command_makes_a_file_and_refuses_what_cannot_be(tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    arguments = ["simulate", "timeline", "--json", str(path), "--num-requests", "4", "--scale", "4"]
    done = CliRunner().invoke(main, [*arguments, "--policy", "chunked"])
    assert done.exit_code == 0, done.output
    assert list(read_timeline(path)["runs"]) == ["chunked"]
    for wrong in (["--num-requests", "0"], ["--policy", "chunk"], ["--rate", "-1"], ["--scale", "3"]):
        assert CliRunner().invoke(main, [*arguments, *wrong]).exit_code == 2
