"""The simulator's own experiment: points follow parameters, and a point says what it says."""

from __future__ import annotations

from typing import Any

import pytest
from experiment_choices import CHOICES, configs

from interleave.lab.experiments import simulator as experiment
from interleave.lab.experiments.simulator import Params
from interleave.lab.latency_model import OVERLAPS
from interleave.lab.validation import JUDGED, LARGEST_ERROR

SMALL = CHOICES["simulator"].small


def test_what_is_simulated_does_not_depend_on_this_machine() -> None:
    """Another model or engine measures its own point only."""
    assert configs("simulator", model="smollm2", engine="mixed")[:-1] == configs("simulator")[:-1]


def measured(kind: str) -> list[dict[str, Any]]:
    params = Params(**SMALL)
    return [
        row
        for point in experiment.points(params)
        if point.config["kind"] == kind
        for row in experiment.measure(point, experiment.prepare(params), {})
    ]


def test_the_curve_is_that_of_the_published_rows() -> None:
    chunked = next(row for row in measured("curve") if row["engine"] == "chunked")
    assert chunked["rate"] == 3.0
    (published,) = (row for row in measured("row") if row["id"] == "o03")
    assert chunked["queue_wait_p50_s"] == published["simulated"]


def test_one_hypothesis_is_used_and_it_is_the_best_on_what_it_saw() -> None:
    rows = measured("hypothesis")
    assert sum(row["chosen"] for row in rows) == 1
    assert min(rows, key=lambda row: row["calibration_rms"])["chosen"]


def test_this_machine_is_judged_by_steps_and_by_runs(one_thread: None) -> None:
    rows = measured("here")
    assert len({tuple(row) for row in rows}) == 1  # one table
    steps = [row for row in rows if row["kind"] == "step"]
    assert {row["part"] for row in steps} == {"fitted_steps", "held_out_steps"}
    assert {row["outside"] for row in steps if row["part"] == "fitted_steps"} == {0}
    (capacity,) = (row for row in rows if row["kind"] == "capacity")
    assert capacity["measured"] > 0
    fits = [row for row in rows if row["kind"] == "fit"]
    assert {row["what"] for row in fits} == set(OVERLAPS)
    assert [row["rms"] for row in fits if row["chosen"]] == [min(row["rms"] for row in fits)]
    judged = {row["what"]: row for row in rows if row["kind"] == "judged"}
    assert judged
    assert judged.keys() <= set(JUDGED)
    for row in judged.values():
        assert row["bound"] == max(LARGEST_ERROR, row["spread"])
        assert row["met"] == (row["error"] <= row["bound"])
    runs = {row["what"]: row for row in rows if row["kind"] == "run"}
    served = runs["served_rate"]
    assert served["low"] <= served["measured"] <= served["high"]
    assert served["error"] == pytest.approx(served["simulated"] / served["measured"] - 1)
