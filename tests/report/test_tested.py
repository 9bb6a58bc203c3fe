"""The page on how this is tested: records there and not, and what their tables say."""

from __future__ import annotations

from pathlib import Path

import pytest
from toys.records import FOUND

from interleave.report import tested
from interleave.report.tested import RECORDS, begin_record, read_records, write_record
from interleave.report.tested_tables import record_tables, record_values


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout whose code is one file a record is about."""
    monkeypatch.setattr(tested, "repo_root", lambda: tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "src/code.py").write_text("answer = 42\n")
    return tmp_path


def test_without_records_every_one_is_named(root: Path) -> None:
    assert read_records(root) == {}
    (table,) = record_tables({}, root).values()
    assert [row[:2] for row in table["rows"]] == [[name, "not run yet"] for name in RECORDS]
    assert record_values({}, root) == {}


def test_what_was_written_is_shown(root: Path) -> None:
    for name in RECORDS:
        write_record(name, begin_record(name, f"run {name}"), FOUND[name])
    records = read_records(root)
    tables, values = record_tables(records, root), record_values(records, root)
    assert {row[3] for row in tables["tested-runs"]["rows"]} == {"as it was"}
    assert [row[5] for row in tables["tested-runs"]["rows"]] == [f"run {name}" for name in RECORDS]
    assert [row[2:] for row in tables["tested-cases"]["rows"]] == [
        ["2 passed"],
        ["1 passed, 1 skipped"],
        ["some did not run"],
    ]
    assert tables["tested-cases-gaps"]["rows"] == [["2", "the rest; skipped: no GPU"]]
    assert tables["tested-kills"]["rows"] == [
        ["a killed runner", "50", "40", "300", "9", "passed"],
        ["an orphan ends", "–", "–", "–", "–", "passed"],
    ]
    assert tables["tested-coverage"]["rows"] == [["lab", "3", "200", "150", "75%"]]
    assert tables["tested-mutation"]["rows"] == [["plan", "8", "1", "1", "90%"]]
    assert tables["tested-mutation-survivors"]["rows"] == [
        ["plan.py:3", "1 -> 2", "the same"],
        ["plan.py:4", "a -> b", "–"],
    ]
    (soaked,) = tables["tested-soak"]["rows"]
    assert soaked[:4] == ["mixed, reserve", "20,000", "0", "3,000"]
    assert [cell["text"] for cell in soaked[4:]] == ["12.3", "1.05"]
    assert values["tested.fuzz_steps"].text == "150,000"
    assert values["tested.fuzz_stop_ends"].text == "0"
    assert values["tested.fuzz_failures"].text == "none"
    assert values["tested.mutation_noticed"].text == "90.0%"
    assert values["tested.cases_outcome"].text == "3 passed, 1 skipped, some did not run"
    assert all(value.source.startswith("data/results/tests/") for value in values.values())


def test_changed_code_is_said(root: Path) -> None:
    write_record("coverage", begin_record("coverage", "run"), FOUND["coverage"])
    (root / "src/code.py").write_text("answer = 43\n")
    rows = {row[0]: row for row in record_tables(read_records(root), root)["tested-runs"]["rows"]}
    assert rows["coverage"][3] == "changed"
