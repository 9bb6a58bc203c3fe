"""The predictions experiment: one point, which follows its parameter and the published table."""

from __future__ import annotations

from interleave.lab.experiments import predictions as experiment
from interleave.lab.experiments.predictions import Params
from interleave.lab.published_runs import SPEAKS


def test_the_point_simulates_every_row_that_can_be() -> None:
    params = Params(overlap="step_floor")
    (point,) = experiment.points(params)
    rows = experiment.measure(point, None, {})
    assert {row["id"] for row in rows} == SPEAKS.keys()
    assert {row["overlap"] for row in rows} == {"step_floor"}
    assert all((row["error"] is not None) == (row["use"] in ("calibrate", "holdout")) for row in rows)
