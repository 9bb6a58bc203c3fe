"""The simulator page: the shipped notebook, run for real on tiny weights, and its tables on made-up rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
import pytest

from interleave.lab.experiments import simulator
from interleave.lab.validation import JUDGED
from interleave.report.figures import simulator as draw
from interleave.report.figures import simulator_runs as whole
from interleave.report.layout import find_notebook
from interleave.report.printed import table_html
from interleave.report.runner import run_notebook
from interleave.report.runs import load_runs


@pytest.mark.slow  # calibrates and simulates all published runs, in a kernel of its own
def test_the_notebook_becomes_a_page(out: Path) -> None:
    chosen: dict[str, Any] = {
        "model": "tiny",
        "rates": [3.0, 7.0],
        "loads": [0.6],
        "max_rows": 3,
        "num_requests": 6,
        "repeats": 1,
    }
    result = run_notebook(find_notebook("simulator"), overrides=chosen, say=lambda _: None)
    notebook = nbformat.read(result.path, as_version=4)
    figures = [
        output.metadata["interleave"]["figure"]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if "figure" in output.get("metadata", {}).get("interleave", {})
    ]
    assert figures == ["errors", "curves", "here"]
    numbers = result.provenance["numbers"]
    assert numbers["served_rate_error"]["mark"] == "measured-cpu"
    assert "mark" not in numbers["holdout_median"]  # the page's: simulated


def test_the_page_says_that_its_numbers_are_simulated() -> None:
    root = Path(__file__).resolve().parents[3]
    simulated = {run.experiment for run in load_runs(root) if run.simulated}
    assert {"simulator", "scale"} <= simulated
    assert "arrival_curves" not in simulated


def row(name: str, use: str, error: float | None, **more: Any) -> dict[str, Any]:
    given = {"engine": "chunked", "workload": "closed", "quantity": "wall", "unit": "s"} | more
    return {
        "kind": "row",
        "id": name,
        "use": use,
        "published": 10.0,
        "simulated": 11.0,
        "error": error,
    } | given


def points() -> pd.DataFrame:
    """Four scored rows, one that is only compared, three hypotheses, steps and runs of this machine."""
    rows = [
        row("c1", "calibrate", 0.5),
        row("h1", "holdout", 0.02),
        row("h2", "holdout", -0.12),
        row("h3", "holdout", 0.0, workload="400 Poisson arrivals rate 3", quantity="served rate"),
        row("k1", "claim", None),
    ]
    for overlap, rms in (("additive", 0.05), ("forward_floor", 0.02), ("step_floor", 0.01)):
        errors = {"holdout_median": 0.03, "holdout_largest": 0.2, "calibration_rms": rms}
        prices = {"floor_s": 0.03, "positions_s": 6e-5, "copied_rows_s": 0.0}
        rows.append(
            {"kind": "hypothesis", "overlap": overlap, "chosen": overlap == "step_floor"} | errors | prices
        )
    for kind, number, error in (("decode", 40, 0.04), ("prefill", 5, 0.3)):
        judged = {"n": number, "error": error, "p90_error": 2 * error, "bias": -error / 2}
        rows.append({"kind": "step", "part": "held_out_steps", "what": kind} | judged)
    for name, error in (("served_rate", 0.01), ("ttft_p50_s", -0.2)):
        judged = {
            "load": 0.6,
            "simulated": 1 + error,
            "measured": 1.0,
            "low": 0.9,
            "high": 1.1,
            "error": error,
        }
        rows.append({"kind": "run", "what": name} | judged)
    for rate in (1.0, 3.0):
        curve = {"rate": rate, "served_rate": rate, "queue_wait_p50_s": 0.1}
        rows.append({"kind": "curve", "engine": "chunked"} | curve)
    return pd.DataFrame(rows)


def test_only_scored_rows_are_judged_and_only_held_out_ones_count() -> None:
    assert list(draw.scored(points())["id"]) == ["c1", "h1", "h2", "h3"]
    assert dict(draw.holdout(points())) == {"h1": 0.02, "h2": 0.12, "h3": 0.0}
    assert list(draw.misses_table(points())["row"]) == ["h2"]
    assert list(draw.misses_table(points(), least=0.01)["row"]) == ["h2", "h1"]


def test_published_points_stand_where_they_were_measured() -> None:
    rows = draw.of_kind(points(), "row")
    assert draw.published_at(rows, "chunked", "served rate") == [(3.0, 10.0)]
    assert draw.published_at(rows, "paged", "served rate") == []


def test_the_used_hypothesis_gives_the_prices_that_are_not_zero() -> None:
    assert list(draw.hypotheses_table(points())["used"]) == ["no", "no", "yes"]
    assert list(draw.parameters_table(points())["time"]) == [30.0, pytest.approx(60.0)]


def test_verdicts_of_steps_seen_often_enough() -> None:
    found = draw.verdicts(points()).set_index("no.")
    assert found.loc["4", "measured"] == pytest.approx(4.0)  # not the five prefill steps
    assert dict(found["verdict"]) == {
        "1": "held",
        "2": "missed",
        "3": "held",
        "4": "held",
        "5": "held",
        "6a": "held",
        "6b": "missed",
    }
    rare = points()
    rare.loc[rare["what"] == "decode", "n"] = 19
    assert draw.verdicts(rare).set_index("no.").loc["4", "verdict"] == "not run"


def test_a_measure_that_no_run_supports_has_no_line() -> None:
    (axis,) = draw.here_figure(points()).axes
    assert [label.get_text() for label in axis.get_yticklabels()] == ["served rate", "TTFT, median"]


def test_whole_runs_are_judged_by_what_was_stored() -> None:
    judged = {
        "kind": "judged",
        "what": "served_rate",
        "error": 0.04,
        "spread": 0.1,
        "bound": 0.1,
        "met": True,
    }
    missed = judged | {"what": "ttft_p50_s", "error": 0.2, "spread": 0.01, "bound": 0.05, "met": False}
    stored = pd.concat([points(), pd.DataFrame([judged, missed])], ignore_index=True)
    table = whole.judged_table(stored).set_index("measure")
    assert dict(table["verdict"]) == {
        "TTFT, median": "missed",
        "gap, 90th percentile": "awaits a run",
        "served rate": "met",
    }
    assert table.loc["served rate"].tolist()[:3] == [
        pytest.approx(4.0),
        pytest.approx(10.0),
        pytest.approx(10.0),
    ]
    assert len(table_html(whole.judged_table(stored))) > 0


def test_points_without_verdicts_await_a_run() -> None:
    """Those stored before verdicts were kept: no capacity, no counts outside of the fit either."""
    table = whole.judged_table(points())
    assert set(table["verdict"]) == {"awaits a run"}
    assert len(table_html(table)) > 0
    assert whole.capacity(points()) is None
    assert "outside the fit" not in draw.steps_table(points())


def test_errors_stand_by_load() -> None:
    twice = points()
    again = twice[twice["kind"] == "run"].assign(load=0.3, error=-0.05)
    table = whole.loads_table(pd.concat([twice, again.iloc[:1]], ignore_index=True))
    assert list(table.columns) == ["load [x capacity]", "TTFT, median [%]", "served rate [%]"]
    assert list(table["load [x capacity]"]) == [0.3, 0.6]
    assert list(table["served rate [%]"]) == [pytest.approx(-5.0), pytest.approx(1.0)]
    assert table["TTFT, median [%]"].isna().tolist() == [True, False]
    assert len(table_html(table)) > 0


def test_steps_outside_of_the_fit_are_counted_where_they_are_stored() -> None:
    stored = points()
    stored["outside"] = [7 if kind == "step" else None for kind in stored["kind"]]
    assert list(draw.steps_table(stored)["outside the fit"]) == [7, 7]
    assert list(draw.steps_table(stored)["steps"]) == ["held out: decode", "held out: prefill"]
    assert len(table_html(draw.steps_table(stored))) > 0


def test_the_committed_points_can_be_drawn() -> None:
    """With verdicts or without: the page waits for a run, and does not break."""
    root = Path(__file__).resolve().parents[3]
    frames = [pd.read_csv(path) for path in (root / "data/results/cpu/simulator").glob("*.csv")]
    for frame in frames:
        if "run" in set(frame["kind"]):
            assert len(whole.judged_table(frame)) == len(JUDGED)
            assert len(whole.loads_table(frame)) == frame["load"].nunique()
            assert len(table_html(draw.steps_table(frame))) > 0


def test_published_figures_among_the_misses_are_marked() -> None:
    (line,) = draw.misses_table(points()).to_dict("records")
    assert (line["published"].text, line["published"].mark, line["simulated"]) == (
        "10.0",
        "published-elsewhere",
        11.0,
    )


def test_only_what_was_measured_here_is_marked_so() -> None:
    numbers = set(draw.verdicts(points())["no."])
    marks = draw.marks(simulator.Params())
    assert marks == dict.fromkeys(["4", "5", "6a", "6b"], "measured-cpu")
    assert marks.keys() < numbers


@pytest.mark.parametrize("figure", [draw.errors_figure, draw.curves_figure, draw.here_figure])
def test_figures_draw_every_row(figure: Any) -> None:
    drawn = figure(points())
    drawn.canvas.draw()
    assert all(axis.has_data() for axis in drawn.axes)
