"""Workload files: the committed one as drawn and valid, and every broken one refused with its place."""

import json
import re

import jsonschema
import pytest

from interleave.lab.bench_config import BenchConfig, bench_trace, file_workload
from interleave.lab.paths import data_dir
from interleave.lab.peers.draw import CHECK_TEXTS, drawn_lengths, workload_text
from interleave.lab.peers.workload_file import CHECK_TOKENS, WorkloadError, WorkloadFile, default_file
from interleave.model.tokens import Tokenizer

SCHEMA = json.loads((data_dir() / "schema" / "workloads.schema.json").read_text())
BATCH = [{"prompt": [1, 2, 3], "max_tokens": 2}, {"prompt": [4], "max_tokens": 5}]
JOINED = {"rows": BATCH, "late": {"prompt": [9] * 7, "max_tokens": 1}, "after_steps": 2}


@pytest.fixture
def written(tmp_path):
    def write(document):
        path = tmp_path / "w.json"
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return path

    return write


def test_the_committed_file_is_what_is_drawn(smollm2_folder):
    """Byte for byte."""
    tokenizer = Tokenizer.from_folder(smollm2_folder)
    assert default_file().read_text() == workload_text(tokenizer.encode)
    assert [tokenizer.decode(ids) for ids in json.loads(default_file().read_text())["check"]] == list(
        CHECK_TEXTS
    )


def test_the_committed_file_is_valid_and_has_the_drawn_lengths():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(default_file().read_text()))
    file = WorkloadFile(default_file())
    for name, lengths in drawn_lengths().items():
        assert [row[1:] for row in file.workload(name).trace.rows] == lengths
    late = file.workload("peer-disturb")
    assert (len(late.requests), len(late.late.prompt), late.after_tokens) == (8, 2048, 20)
    assert {ask.max_tokens for ask in file.workload("check").requests} == {CHECK_TOKENS}


def test_forms_and_other_names(written):
    path = written(
        {"closed-mixed-32": BATCH, "disturbance": JOINED, "check": [[1, 2]], "meta": {"who": "me"}}
    )
    jsonschema.Draft202012Validator(SCHEMA).validate({"a": BATCH, "b": JOINED, "c": [[1, 2]]})
    file = WorkloadFile(path)
    assert file.names == ["closed-mixed-32", "disturbance", "check"]
    assert file.workload("peer-mixed32").requests == file.workload("closed-mixed-32").requests
    assert file.workload("peer-disturb").trace.num_prompt_tokens == 3 + 1 + 7
    assert "peer-uniform32" not in file
    assert [request.prompt for request in file.workload("closed-mixed-32").engine_requests()] == [
        (1, 2, 3),
        (4,),
    ]
    with pytest.raises(WorkloadError, match="late request"):
        file.workload("disturbance").engine_requests()


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ("{", r"w\.json:1: not JSON"),
        ([], "must be an object of workloads by name, not a list"),
        ({"b": BATCH}, "unknown workload 'a'"),
        ({"a": []}, "workload 'a': holds no request"),
        ({"a": 3}, "workload 'a': must be a list of requests"),
        ({"a": [{"prompt": [1]}]}, "row 1: must have exactly prompt and max_tokens"),
        ({"a": [*BATCH, {"prompt": [], "max_tokens": 1}]}, "row 3: prompt must be a list of at least one"),
        (
            {"a": [{"prompt": [1, -1], "max_tokens": 1}]},
            "a token id must be a whole number of at least 0, got -1",
        ),
        ({"a": [{"prompt": [1, True], "max_tokens": 1}]}, "got True"),
        ({"a": [{"prompt": [1], "max_tokens": 0}]}, "max_tokens must be a whole number of at least 1, got 0"),
        (
            {"a": JOINED | {"after_steps": 3}},
            "after_steps must be a whole number from 1 to the first row's 2",
        ),
        ({"a": JOINED | {"late": None}}, "late request: must have exactly"),
    ],
)
def test_broken_files_name_their_place(written, document, says):
    with pytest.raises(WorkloadError, match=says):
        WorkloadFile(written(document)).workload("a")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(WorkloadError, match=re.escape(f"cannot read workload file {tmp_path / 'no.json'}")):
        WorkloadFile(tmp_path / "no.json")


def test_a_closed_configuration_takes_its_requests_from_a_file(written):
    path = str(written({"mine": BATCH}))
    config = BenchConfig(arrivals="closed", engine="mixed", workload_file=path)  # the only one in it
    assert bench_trace(config).num_new_tokens == 7
    first = BenchConfig(
        arrivals="closed", engine="mixed", workload="mine", workload_file=path, num_requests=1
    )
    assert len(file_workload(first).requests) == 1
    assert (
        bench_trace(BenchConfig(arrivals="closed", engine="mixed", workload="peer-mixed32")).num_new_tokens
        == 1396
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"scale": 4}, "scale must be 1, got 4"),
        ({"trace": "t.csv"}, "not both"),
        ({"arrivals": "open", "rate": 1.0}, "holds a closed batch"),
    ],
)
def test_what_a_file_leaves_no_choice_about(change, says):
    with pytest.raises(ValueError, match=says):
        BenchConfig(**{"arrivals": "closed", "engine": "mixed", "workload_file": "w.json"} | change)


def test_several_workloads_need_a_name(written):
    path = str(written({"a": BATCH, "b": BATCH}))
    with pytest.raises(ValueError, match=r"workload must name one of those in .*: a, b"):
        bench_trace(BenchConfig(arrivals="closed", engine="mixed", workload_file=path))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "w.json:1: the file is empty; it must be an object of workloads"),
        (" \n", "the file is empty"),
        ("{}", "w.json holds no workload: it must have a list of requests under some name"),
        ('{"note": "mine"}', "w.json holds no workload"),
        ('{"mine": []}', "workload 'mine': holds no request"),
        ("[]", "must be an object of workloads by name, not a list"),
    ],
)
def test_a_file_without_a_workload_says_what_it_needs(tmp_path, text, says):
    path = tmp_path / "w.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=re.escape(says)):
        bench_trace(BenchConfig(arrivals="closed", engine="mixed", workload_file=str(path)))
