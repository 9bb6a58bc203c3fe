"""Claims and predictions: the published figures, simulated on the published device.

The one point calibrates a step-time model on the rows marked calibrate and simulates every row that the
simulator can speak to. What this project measured is read from the other chapters' stored points by the
page; nothing is measured here. Does not draw.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from interleave.lab.measure import Point
from interleave.lab.paths import data_dir
from interleave.lab.point_table import Row
from interleave.lab.published import compare_rows
from interleave.lab.published_calibration import calibrate
from interleave.lab.published_runs import PublishedRuns
from interleave.lab.reference import load_published
from interleave.lab.step_fit import best_fit

MODULES = (
    "gap_histogram",
    "latency_model",
    "nnls",
    "plan_features",
    "published",
    "published_calibration",
    "published_runs",
    "published_unmeasured",
    "reference",
    "request_table",
    "simulated_executor",
    "simulator",
    "step_fit",
    "step_prediction",
    "token_times",
    "virtual_clock",
)
LESS_MEMORY = "nothing here needs much"


class Params(BaseModel):
    """What a run of this experiment can choose."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    overlap: Literal["additive", "forward_floor", "step_floor"] | None = Field(
        None, description="how forwards and host overlap in the step model; null takes what fits best"
    )


PROFILES: dict[str, dict[str, Any]] = {"quick": {}, "cpu": {}, "gpu": {}}


def points(params: Params) -> list[Point]:
    table = hashlib.sha256((data_dir() / "reference" / "published.csv").read_bytes()).hexdigest()
    return [Point("published rows, simulated", {"overlap": params.overlap, "published": table})]


def estimate_s(params: Params) -> list[float]:
    return [8.0]


def prepare(params: Params) -> None:
    """Nothing: a simulation needs no weights."""


def measure(point: Point, setting: None, _earlier: Mapping[str, list[Row]]) -> list[Row]:
    """A row per published row that the simulator can speak to; error is None where a row is not scored."""
    published = load_published()
    fits = calibrate(published)
    overlap = point.config["overlap"]
    fit = best_fit(fits) if overlap is None else fits[overlap]
    rows = compare_rows(published, PublishedRuns(fit.model))
    return [{**row, "overlap": fit.model.overlap, "fit_rms": fit.rms} for row in rows]
