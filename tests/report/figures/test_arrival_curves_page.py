"""The arrival-curves page from tiny weights: the shipped notebook, run for real, and its tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pandas as pd
import pytest
from toys.outputs import shown_on

from interleave.lab.experiments.arrival_curves import EngineName, Params, simulated_loads
from interleave.report.figures import arrival_curves as draw
from interleave.report.layout import find_notebook
from interleave.report.runner import run_notebook


def test_the_notebook_becomes_a_page_with_any_choice(out: Path) -> None:
    chosen: dict[str, Any] = {
        "model": "tiny",
        "engines": ["continuous", "mixed"],
        "loads": [0.5, 1.5],
        "num_requests": 8,
        "max_rows": 3,
    }
    result = run_notebook(find_notebook("arrival_curves"), overrides=chosen, say=lambda _: None)
    shown = shown_on(result.path)
    assert "median gap [%]" in shown
    assert {"worst_gap_ratio", "reference_capacity"} <= set(result.provenance["numbers"])


def runs(kind: str, engine: str, load: float | None, seed: int, rate: float) -> list[dict[str, Any]]:
    """Three requests of a run whose latencies are all `rate`; one line for a simulated run."""
    facts = {"kind": kind, "engine": engine, "load": load, "seed": seed, "rate": load and 2 * load}
    facts |= {"run_served_rate": rate, "run_gap_p50_s": rate, "run_worst_gap_s": rate}
    if kind == "simulated":
        return [{**facts, "ttft_s": rate, "queue_wait_s": rate}]
    return [
        {**facts, "ttft_s": rate * share, "queue_wait_s": rate, "tpot_s": rate * share}
        for share in (0.5, 1.0, 9.0)
    ]


def points() -> pd.DataFrame:
    """Measured at two loads, at the second on two traces; simulated there and at a load between."""
    rows = runs("measured", "chunked", None, 0, 2.0)
    for load, seed, measured, simulated in ((0.5, 0, 1.0, 1.1), (0.8, 0, 2.0, 2.0), (0.8, 1, 4.0, 2.0)):
        rows += runs("measured", "chunked", load, seed, measured)
        rows += runs("simulated", "chunked", load, seed, simulated)
    rows += runs("simulated", "chunked", 0.65, 0, 1.5)
    return pd.DataFrame(rows)


def test_what_was_simulated_is_in_no_curve() -> None:
    table = draw.curves(points()).set_index("load")
    assert list(table.index) == [0.5, 0.8]
    assert table.loc[0.8, "served_rate"] == 3.0  # of 2 and 4
    assert (table.loc[0.8, "ttft_s_low"], table.loc[0.8, "ttft_s_high"]) == (2.0, 4.0)
    assert draw.reference_capacity(points()) == 2.0
    assert draw.seed_counts(points()) == "1 at 0.5 x, 2 at 0.8 x"


def test_the_simulator_is_held_to_the_runs_on_the_same_traces() -> None:
    (line,) = draw.agreement_table(points()).to_dict("records")
    assert (line["engine"], line["runs"]) == ("chunked", 3)
    for quantity in ("served rate", "TTFT", "median gap", "worst gap"):
        assert line[f"{quantity} [%]"] == pytest.approx(10)  # of 10, 0 and 50


def test_an_engine_keeps_its_letter_whoever_else_ran() -> None:
    """`misses.csv` explains a miss by number, so a number must mean the same engine in every profile."""
    assert sorted(draw.SIMULATED_LETTERS) == sorted(get_args(EngineName))
    assert len(set(draw.SIMULATED_LETTERS.values())) == len(draw.SIMULATED_LETTERS)
    both = pd.concat([points(), points().dropna(subset="load").assign(engine="whole")])
    for rows, numbers in ((both, {"5a": "chunked", "5d": "whole"}), (points(), {"5a": "chunked"})):
        found = draw.graded(rows.assign(prompt_tokens=8), Params()).set_index("no.")["quantity"]
        assert {no: text.split()[2] for no, text in found.items() if no.startswith("5")} == {
            no: f"{engine}:" for no, engine in numbers.items()
        }


def test_a_figure_marks_what_was_measured_and_draws_a_line_for_the_rest() -> None:
    figure = draw.arrival_figure(draw.curves(points()), draw.simulated_runs(points()))
    served = figure.axes[0]
    markers, line = (list(map(float, each.get_xdata())) for each in (served.lines[0], served.lines[-1]))
    assert markers == [0.5, 0.8]
    assert line == [0.5, 0.65, 0.8]
    per_token = figure.axes[3]  # no simulated run keeps anything of it: markers and the ends of their bars
    assert [len(each.get_xdata()) for each in per_token.lines] == [2, 2, 2]


def test_the_simulator_goes_on_between_the_measured_loads() -> None:
    loads = simulated_loads((1.2, 0.3))
    assert {0.3, 1.2} <= set(loads)
    assert loads == sorted(loads)
    assert 12 <= len(loads) <= 14
    assert (loads[0], loads[-1]) == (0.3, 1.2)
    assert simulated_loads((0.6,)) == [0.6]
