"""The committed traces are what the generators give, and a changed one is noticed."""

from interleave.lab.paths import data_dir
from interleave.lab.traces import COMMITTED, INDEX_FILE, differences, write_traces


def test_committed_traces_are_as_generated():
    assert differences(data_dir() / "traces") == []


def test_writing_then_comparing(tmp_path):
    paths = write_traces(tmp_path)
    assert len(paths) == len(COMMITTED) + 1
    assert differences(tmp_path) == []


def test_every_kind_of_difference_is_reported(tmp_path):
    write_traces(tmp_path)
    first, second, third = (tmp_path / entry.file for entry in COMMITTED[:3])
    first.unlink()
    second.write_text(third.read_text())
    third.write_text("due_s,prompt_tokens,new_tokens\n0,0,1\n")
    (tmp_path / "stray.csv").write_text("")
    (tmp_path / INDEX_FILE).unlink()
    problems = "\n".join(differences(tmp_path))
    for said in (
        f"{first}: missing",
        f"{second}: differs",
        f"{third}:2: column prompt_tokens",
        "stray.csv: no committed trace",
        f"{INDEX_FILE}: missing or out of date",
    ):
        assert said in problems
    assert len(problems.splitlines()) == 5
