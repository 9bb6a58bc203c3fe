"""The predictions page: the shipped notebook where nothing else has run, and its tables from made-up results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from toys.outputs import shown_on

from interleave.lab.experiments import parity, predictions
from interleave.lab.measure import collect
from interleave.lab.paths import data_dir
from interleave.lab.published_runs import SPEAKS
from interleave.lab.reference import load_published
from interleave.lab.results import PointStore
from interleave.report.claims import judge
from interleave.report.comparisons import compare
from interleave.report.evidence import Stored, chapters
from interleave.report.figures import own_predictions as own
from interleave.report.figures import parity as parity_page
from interleave.report.figures import predictions as tell
from interleave.report.layout import find_notebook
from interleave.report.marks import find_mark
from interleave.report.parameters import load_experiment
from interleave.report.runner import run_notebook

VALUES = {row.id: row.value or 1.0 for row in load_published()}


def points() -> pd.DataFrame:
    """Every figure that can be simulated, 5% above the published one."""
    return pd.DataFrame([{"id": row, "simulated": 1.05 * VALUES[row]} for row in SPEAKS])


def gate(failed: int) -> Stored:
    counts = {"requests": 10, "exact": 10 - failed, "near_ties": 0, "failed": failed}
    row = {"kind": "trial", "engine": "mixed", "backend": "cpu", "workload": "single", **counts}
    return Stored(pd.DataFrame([row]), parity.Params(), "measured-cpu", ("k" * 16,))


def test_the_notebook_becomes_a_page_where_nothing_else_has_run(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The simulation is stored beforehand, made up: tests/lab runs the real one."""
    monkeypatch.setattr(predictions, "measure", lambda *_: points().to_dict("records"))
    store = PointStore(out / "_build/results", "quick", "predictions")
    collect(predictions, predictions.Params(), store)
    result = run_notebook(find_notebook("predictions"), say=lambda _: None)
    shown = shown_on(result.path)
    assert "awaits a run" in shown
    assert {"held", "graded"} == set(result.provenance["numbers"])
    assert set(result.provenance["evidence"]) == set(chapters())
    assert result.provenance["evidence"]["closed_batches"] == []


def test_every_published_row_is_shown_with_its_mark() -> None:
    evidence = tell.evidence_of(points(), {})
    findings = judge(evidence)
    tables = [tell.published_table(evidence, ("calibrate", "holdout", "constant", "kind"))]
    tables += [tell.claim_table(evidence, findings, use) for use in ("claim", "prediction")]
    assert {row for table in tables for row in table["row"]} == VALUES.keys()
    lines = tables[0].set_index("row")
    assert lines.loc["c01", "published"].text == "10.8 s"
    assert {value.mark for value in lines["published"]} == {"published-elsewhere"}
    assert lines.loc["c01", "this report"].mark == "simulated"
    assert lines.loc["c01", "error [%]"] == pytest.approx(5)
    assert lines.loc["h02", "this report"].text == "3.09 GB"  # by arithmetic, as published
    assert lines.loc["s01", "this report"] == "as a ratio"


def test_predictions_are_graded_by_their_chapter_or_wait() -> None:
    evidence = tell.evidence_of(points(), {"parity": gate(failed=1)})
    table = own.own_table(chapters(), evidence)
    graded = table[table["experiment"] == "parity"]
    assert list(graded["verdict"]) == ["missed", "held"]
    assert own.score(table) == (1, 2)
    others = table[table["experiment"] != "parity"]
    assert set(others["verdict"]) == {"awaits a run"}
    assert list(others[others["experiment"] == "policies"]["no."]) == ["1 to 11"]
    assert own.shown(table, evidence)["measured"].dropna().iloc[0].mark == "measured-cpu"
    assert list(own.missed_table(table)["no."]) == ["1"]


def test_a_legend_of_all_three_sources_stays_inside_the_figure() -> None:
    compared = [replace(one, measured=2.0) for one in compare(tell.evidence_of(points(), {}))]
    figure = tell.comparison_figure(compared)
    figure.canvas.draw()
    (legend,) = figure.legends
    assert len(legend.get_texts()) == len(tell.SOURCES)
    place = legend.get_window_extent()
    assert place.x0 >= 0
    assert place.x1 <= figure.bbox.x1


def test_a_number_from_elsewhere_than_its_chapter_has_its_own_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parity_page, "marks", lambda params: {"2": "simulated"}, raising=False)
    evidence = tell.evidence_of(points(), {"parity": gate(failed=0)})
    shown = own.shown(own.own_table(chapters(), evidence), evidence)["measured"].dropna()
    assert [one.mark for one in shown] == ["measured-cpu", "simulated"]


@pytest.mark.parametrize("experiment", ["policies", "recorded_decode", "simulator", "scale"])
def test_marks_are_of_recorded_predictions(experiment: str) -> None:
    params = load_experiment(experiment).Params()
    marks = own.marks_of(experiment, Stored(pd.DataFrame(), params, "measured-cpu", ()))
    assert marks
    assert {number.rstrip("abc") for number in marks} <= set(own.numbered(experiment))
    assert {find_mark(mark).name for mark in marks.values()} == set(marks.values())
    assert own.marks_of("parity", gate(failed=0)) == {}


@pytest.mark.parametrize(
    "path", sorted((data_dir() / "predictions").glob("*.md")), ids=lambda path: path.stem
)
def test_every_chapter_can_grade_its_predictions(path: Path) -> None:
    """One that cannot: give its figure module a `graded(rows, params)` with the columns of `graded.verdict`."""
    assert path.stem == own.OWN or own.grader(path.stem)
    assert own.numbered(path.stem)


def test_a_miss_that_nobody_explained_says_so(tmp_path: Path) -> None:
    miss = {"chapter": "Parity", "experiment": "parity", "no.": "1", "quantity": "x", "verdict": "missed"}
    assert list(own.missed_table(pd.DataFrame([miss]))["why"]) == ["not explained yet"]


def test_every_explained_miss_is_a_recorded_prediction() -> None:
    for line in pd.read_csv(data_dir() / "predictions" / "misses.csv", dtype=str).itertuples():
        digits = "".join(c for c in line.number if c.isdigit())
        assert digits in own.numbered(line.experiment), line
        assert line.why


def test_the_page_grades_its_own_predictions() -> None:
    evidence = tell.evidence_of(points(), {"parity": gate(failed=0)})
    table = own.own_table(chapters(), evidence)
    found = own.verdicts(table, compare(evidence)).set_index("no.")
    assert found.loc["1", "measured"] == 100
    assert list(found["verdict"]) == ["missed", "not run", "not run"]


def test_the_figure_draws_what_is_known() -> None:
    compared = compare(tell.evidence_of(points(), {}))
    figure = tell.comparison_figure(compared)
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["published elsewhere", "simulated, published GPU"]
    assert len(figure.axes[0].get_yticks()) == len(compared) == len(tell.ratio_data(compared))
