"""The simulator held to what is known: an A10 report's figures, and this machine's own engine.

Three sorts of points, in rows of several kinds. *row* and *hypothesis*: the published figures, some calibrated
on, the others judged. *curve*: what the calibrated model says over the arrival rate. *capacity*, *fit*, *step*,
*run* and *judged*: a model fitted to this machine's engine, against other runs of it. Only the last is measured
here. Does not draw.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from interleave.lab.choices import CPU_PROFILE, GPU_PROFILE, WorkloadChoices
from interleave.lab.measure import Point
from interleave.lab.paths import data_dir
from interleave.lab.point_table import Row
from interleave.lab.published import published_document
from interleave.lab.published_calibration import calibrate
from interleave.lab.published_runs import PublishedRuns
from interleave.lab.reference import load_published
from interleave.lab.serving import serving_setting
from interleave.lab.step_fit import best_fit
from interleave.lab.validation import Plan, engine_server, validate
from interleave.model.sources import LoadedModel

MODULES = (
    "gap_histogram", "latency_model", "nnls", "plan_features", "published", "published_calibration",
    "published_runs", "published_unmeasured", "reference", "replay", "request_table", "simulated_executor", "simulator",
    "step_fit", "step_prediction", "step_traces", "token_times", "validation", "virtual_clock",
)  # fmt: skip
Rate = Annotated[float, Field(gt=0, le=100)]


class Params(WorkloadChoices):
    """What a run of this experiment can choose."""

    rates: tuple[Rate, ...] = Field(
        (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0),
        min_length=1,
        description="arrival rates of the simulated curves",
        json_schema_extra={"unit": "requests/s"},
    )
    engine: Literal["continuous", "paged", "whole", "chunked", "mixed"] = Field(
        "chunked", description="engine of this machine to hold the simulator to"
    )
    loads: tuple[Annotated[float, Field(gt=0, le=4)], ...] = Field(
        (0.85,),
        min_length=1,
        description="held-out arrival rates of that engine",
        json_schema_extra={"unit": "x its capacity"},
    )
    max_rows: int = Field(
        8, ge=1, le=64, description="requests that engine serves at once", json_schema_extra={"unit": "rows"}
    )
    num_requests: int = Field(
        12, ge=4, le=400, description="requests in each of its traces", json_schema_extra={"unit": "requests"}
    )
    repeats: int = Field(3, ge=1, le=9, description="runs of each held-out trace")


PROFILES: dict[str, dict[str, Any]] = {
    "quick": {},
    "cpu": {**CPU_PROFILE, "loads": (0.3, 0.6, 0.85, 1.2), "max_rows": 32, "num_requests": 40, "repeats": 3},
    "gpu": {**GPU_PROFILE, "loads": (0.3, 0.6, 0.85, 1.2), "max_rows": 32, "num_requests": 200, "repeats": 3},
}
LESS_MEMORY = "lower `max_rows`, or raise `scale`"


def points(params: Params) -> list[Point]:
    """The published rows and the hypotheses behind them, a curve for each published engine, this machine."""
    reference = hashlib.sha256((data_dir() / "reference" / "published.csv").read_bytes()).hexdigest()
    published = {"reference": reference}
    here = {name: value for name, value in params.model_dump(mode="json").items() if name not in ("rates",)}
    return [
        Point("published figures", {**published, "kind": "row"}),
        Point("hypotheses", {**published, "kind": "hypothesis"}),
        *(
            Point(
                f"curve of {engine}",
                {**published, "kind": "curve", "engine": engine, "rates": list(params.rates)},
            )
            for engine in ("paged", "chunked")
        ),
        Point(f"this machine, {params.engine}", {**here, "kind": "here"}),
    ]


def estimate_s(params: Params) -> list[float]:
    """Seconds per point on two CPU cores (or a GPU)."""
    per_request = 8.0 / params.scale if params.device == "cpu" else 0.3
    runs = 1 + len(params.loads) * (1 + params.repeats)
    return [
        6.0,
        3.0,
        0.2 * len(params.rates),
        0.2 * len(params.rates),
        runs * params.num_requests * per_request,
    ]


def prepare(params: Params) -> Params:
    return params


def measure(point: Point, params: Params, _earlier: Mapping[str, list[Row]]) -> list[Row]:
    config = point.config
    if config["kind"] == "row":
        return [{"kind": "row", **row} for row in _document()["rows"]]
    if config["kind"] == "hypothesis":
        return _hypotheses(_document())
    if config["kind"] == "curve":
        return [_on_the_curve(config["engine"], rate) for rate in config["rates"]]
    return _here(config, serving_setting(params.model, params.dtype, params.device).model)


@cache
def _document() -> dict[str, Any]:
    return published_document()


@cache
def _runs() -> PublishedRuns:
    return PublishedRuns(best_fit(calibrate(load_published())).model)


def _hypotheses(document: Mapping[str, Any]) -> list[Row]:
    """A line for each overlap: errors, whether it is the one that is used, and its parameters."""
    names = sorted({name for one in document["hypotheses"] for name in one["parameters"]})
    return [
        {
            "kind": "hypothesis",
            "overlap": one["overlap"],
            "chosen": one["overlap"] == document["overlap"],
            "calibration_rms": one["calibration_rms"],
            "holdout_median": one["holdout"]["median_error"],
            "holdout_largest": one["holdout"]["largest_error"],
            **{name: one["parameters"].get(name, 0.0) for name in names},
        }
        for one in document["hypotheses"]
    ]


def _on_the_curve(engine: str, rate: float) -> Row:
    table = _runs().open(engine, rate)
    first = table.column("first_token_s") - table.column("due_s")
    return {
        "kind": "curve",
        "engine": engine,
        "rate": rate,
        "served_rate": _runs().served_rate(engine, rate),
        "queue_wait_p50_s": _runs().queue_wait_p50_s(engine, rate),
        "ttft_p50_s": float(np.median(first)),
        "worst_gap_s": table.gaps.ends()[1],
    }


def _here(config: Mapping[str, Any], model: LoadedModel) -> list[Row]:
    """The capacity that loads are multiples of, the fit of each overlap hypothesis, errors of steps by kind, of those
    fitted and of those held out, then of whole runs by measure, and the verdicts on the judged measures."""
    plan = Plan(
        engine=config["engine"],
        scale=config["scale"],
        max_rows=config["max_rows"],
        num_requests=config["num_requests"],
        loads=config["loads"],
        repeats=config["repeats"],
    )
    return here_rows(validate(plan, engine_server(plan, model)))


def here_rows(found: Mapping[str, Any]) -> list[Row]:
    """A document of `lab.validation` as one table."""
    empty: Row = dict.fromkeys(
        ("part", "what", "n", "error", "p90_error", "bias", "outside", "load", "simulated", "measured", "low", "high",
         "chosen", "rms", "spread", "bound", "met")
    )  # fmt: skip
    head: list[Row] = [{**empty, "kind": "capacity", "what": "served_rate", "measured": found["capacity"]}]
    overlap = found["model_parameters"]["overlap"]
    head += [
        {**empty, "kind": "fit", "what": name, "chosen": name == overlap, "rms": rms}
        for name, rms in found["hypotheses"].items()
    ]
    steps = [
        {
            **empty, "kind": "step", "part": part, "what": kind, "n": one["n"], "outside": one["outside"],
            "error": one["median_error"], "p90_error": one["p90_error"], "bias": one["bias"],
        }
        for part in ("fitted_steps", "held_out_steps")
        for kind, one in found[part].items()
    ]  # fmt: skip
    runs = [
        {**empty, "kind": "run", "what": name, "load": run["load"], **one}
        for run in found["runs"]
        for name, one in run["measures"].items()
    ]
    verdicts = [{**empty, "kind": "judged", "what": name, **one} for name, one in found["judged"].items()]
    return [*head, *steps, *runs, *verdicts]
