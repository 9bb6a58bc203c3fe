"""Every experiment's rows carry their floors where the machine is measured, and nulls where it is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from interleave.lab.experiments import arrival_curves, chunk_budget, step_trace
from interleave.lab.roofline import Ceilings, Roofline
from interleave.lab.serving import ServingSetting, serving_setting
from interleave.report.figures import arrival_curves as draw
from interleave.report.figures.floors import ceilings_told

SMALL: list[tuple[Any, dict[str, Any]]] = [
    (step_trace, {"engines": ("mixed",), "rows": (3,), "num_requests": 5}),
    (
        chunk_budget,
        {
            "engines": ("mixed",),
            "budgets": (256,),
            "rows": 3,
            "num_requests": 4,
            "step_tokens": (8,),
            "repeats": 1,
        },
    ),
    (arrival_curves, {"engines": ("mixed",), "loads": (2.0,), "num_requests": 4}),
]


@pytest.fixture(scope="module")
def setting() -> ServingSetting:
    return serving_setting("tiny", "fp32", "cpu")


@pytest.fixture(scope="module")
def roofline(setting: ServingSetting) -> Roofline:
    """Ceilings that no machine has, so that every floor is tiny and above 0."""
    decoder = setting.model.decoder
    return Roofline(decoder.config, Ceilings(1e15, 1e18), decoder.step_weight_bytes)


def frame(experiment: Any, chosen: dict[str, Any], setting: ServingSetting) -> pd.DataFrame:
    params = experiment.Params(model="tiny", **chosen)
    rows: dict[str, list[Any]] = {}
    for point in experiment.points(params):
        rows[point.label] = experiment.measure(point, setting, rows)
    return pd.DataFrame(row for of_point in rows.values() for row in of_point)


@pytest.mark.parametrize(("experiment", "chosen"), SMALL)
def test_times_carry_their_floor(
    experiment: Any, chosen: dict[str, Any], setting: ServingSetting, roofline: Roofline
) -> None:
    rows = frame(experiment, chosen, replace(setting, roofline=roofline))
    timed = rows[rows["kind"].isin(["run", "step", "serve", "passes", "measured"])]
    assert timed["floor_s"].gt(0).all()
    assert "1,000,000 GB/s" in ceilings_told(rows)
    if experiment is arrival_curves:
        (line,) = draw.reached_table(rows).to_dict("records")
        assert line["engine"] == "mixed"
        assert 0 < line["2 x [%]"] < 1
    if experiment is step_trace:
        of_steps = rows[rows["kind"] == "step"]["floor_s"].sum()
        assert rows[rows["kind"] == "run"]["floor_s"].iloc[0] == pytest.approx(of_steps)


@pytest.mark.parametrize(("experiment", "chosen"), SMALL)
def test_an_unmeasured_machine_has_none(
    experiment: Any, chosen: dict[str, Any], setting: ServingSetting
) -> None:
    rows = frame(experiment, chosen, replace(setting, roofline=None))
    assert rows["floor_s"].isna().all()
    assert ceilings_told(rows).startswith("No ceilings were measured")
