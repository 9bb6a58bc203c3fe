"""Both halves of the published prediction about a shorter decode step (p01), graded over the points of recorded decode.

A step of 15 ms gives so many requests a second; and if the step does not move, neither does the served rate. The
second is put to the test by a floor that is lifted from under the A10's step, and by both engines here; each only
where the step of the most rows stays, within a twentieth.
"""

from __future__ import annotations

import pandas as pd

from interleave.report.figures.graded import ratio, verdict
from interleave.report.figures.published_decode import PUBLISHED_STEP_MS, change, predicted_rates, simulated
from interleave.report.figures.recorded_decode import of
from interleave.report.figures.recorded_decode_tables import served_ratio
from interleave.report.marks import Value, measured_on
from interleave.report.printed import spoken

STAYS = 0.05
"""How far a ratio may be from 1 and still count as no change."""


def published_verdicts(points: pd.DataFrame, device: str) -> pd.DataFrame:
    """A line for each way to a step of 15 ms, and for each place where a step may have stayed."""
    lines = [
        verdict("", f"15 ms, by {what}: peak [requests/s]", change(points, name, "peak_rate", PUBLISHED_STEP_MS),
                *predicted_rates())
        for name, what in (("host", "the host's part"), ("every part", "every part"))
    ]  # fmt: skip
    for what, step, rate in (
        ("A10 without its floor", floor_lifted(points, "step_s"), rate_without_floor(points)),
        ("recorded / eager here", step_ratio(points), rate_here(points)),
    ):
        told = "not known" if step is None else spoken(step, 3)
        lines.append(verdict("", f"{what}: step x {told}, served rate x", rate, 1 - STAYS, 1 + STAYS))
    values = [line["measured"] for line in lines]
    shown = [None if value is None else simulated(float(str(value))) for value in values[:-1]]
    here = values[-1]
    shown.append(
        None if here is None else Value(spoken(float(str(here)), 3), measured_on(device), "whole runs")
    )
    table = pd.DataFrame(lines)
    return pd.DataFrame(
        {
            "half": table["quantity"],
            "predicted": table["predicted"],
            "found": shown,
            "verdict": table["verdict"],
        }
    )


def floor_lifted(points: pd.DataFrame, quantity: str) -> float | None:
    """Simulated: a quantity of the A10 without its floor over the same with it."""
    return ratio(change(points, "floor", quantity), change(points, "nothing", quantity))


def step_ratio(points: pd.DataFrame) -> float:
    """Steps of whole runs that carry no chunk, recorded over eager: the median over neighbouring runs."""
    runs = of(points, "served").set_index(["run", "engine"])["step_s"].unstack("engine")
    return float((runs["recorded"] / runs["chunked"]).median())


def rate_without_floor(points: pd.DataFrame) -> float | None:
    """The A10's peak rate without its floor over the one with it, where the step stays; None where it moved."""
    return floor_lifted(points, "peak_rate") if stays(floor_lifted(points, "step_s")) else None


def rate_here(points: pd.DataFrame) -> float | None:
    """The served rate of `recorded` over that of `chunked`, where the step stays; None where it moved."""
    return served_ratio(points) if stays(step_ratio(points)) else None


def stays(value: float | None) -> bool:
    return value is not None and abs(value - 1) <= STAYS
