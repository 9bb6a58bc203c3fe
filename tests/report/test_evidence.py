"""What other chapters have on record: complete sets of stored points are found, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from interleave.lab.experiments import chunk_budget, closed_batches
from interleave.lab.measure import collect
from interleave.lab.results import PointStore
from interleave.report import evidence, freshness
from interleave.report.evidence import Evidence, Stored, chapters, keys_of, stored_results
from interleave.report.marks import Value
from interleave.report.run_list import load_runs


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root below which all quick points of the closed batches are stored, made up."""
    monkeypatch.setenv("INTERLEAVE_CACHE", str(tmp_path / "cache"))  # a timing lock of its own
    monkeypatch.setattr(closed_batches, "prepare", lambda params: None)
    monkeypatch.setattr(
        closed_batches, "measure", lambda point, *_: [{"engine": point.config["engine"], "x": 1.0}]
    )
    store = PointStore(tmp_path / "_build/results", "quick", "closed_batches")
    collect(closed_batches, closed_batches.Params(), store)
    return tmp_path


def test_a_chapter_is_found_at_its_profile_and_no_other(measured: Path) -> None:
    found = stored_results(["closed_batches", "chunk_budget"], "quick", measured)
    assert list(found) == ["closed_batches"]
    own = found["closed_batches"]
    assert len(own.frame) == len(own.keys) == len(closed_batches.points(closed_batches.Params()))
    assert own.mark == "measured-cpu"
    assert stored_results(["closed_batches"], "cpu", measured) == {}


def test_a_simulated_chapter_says_so(measured: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulated = [replace(run, simulated=True) for run in load_runs(Path(__file__).resolve().parents[2])]
    monkeypatch.setattr(evidence, "load_runs", lambda _root: simulated)
    assert stored_results(["closed_batches"], "quick", measured)["closed_batches"].mark == "simulated"


def test_half_a_chapter_is_none(measured: Path) -> None:
    folder = measured / "_build/results/quick/closed_batches"
    next(folder.glob("*.csv")).unlink()
    assert stored_results(["closed_batches"], "quick", measured) == {}


def test_keys_tell_stored_chapters_from_the_others(measured: Path) -> None:
    keys = keys_of(stored_results(["closed_batches"], "quick", measured))
    assert keys.keys() == chapters().keys()
    assert {name for name, own in keys.items() if own} == {"closed_batches"}


def test_numbers_that_a_run_lacks_are_open() -> None:
    stored = Stored(pd.DataFrame({"x": [1.5]}), chunk_budget.Params(), "measured-gpu", ())
    evidence = Evidence({}, {}, {"chunk_budget": stored})
    assert evidence.measured("chunk_budget", lambda own: own.frame["x"].iloc[0]) == 1.5
    assert evidence.measured("chunk_budget", lambda own: own.frame["y"].iloc[0]) is None
    assert evidence.measured("chunk_budget", lambda own: float("nan")) is None
    assert evidence.measured("parity", lambda own: 1.0) is None
    assert evidence.marked("chunk_budget", "1.5") == Value("1.5", "measured-gpu", "chunk_budget")


def test_a_page_is_rendered_again_when_other_chapters_have_new_results(measured: Path) -> None:
    seen: dict[str, Any] = keys_of(stored_results(list(chapters()), "quick", measured))
    assert freshness.new_evidence({"evidence": seen}, "quick", measured) is False
    assert freshness.new_evidence({"evidence": seen | {"parity": ["0" * 16]}}, "quick", measured) is True
    assert freshness.new_evidence({}, "quick", measured) is False
