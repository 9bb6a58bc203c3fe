"""Recorded decode: what a decode step is made of, what recording it removes, and what that is worth.

Five kinds of points. *step*: decode steps of `chunked` and `recorded` in turn, with the model's weights and
with next to none. *served*: whole runs of both, everybody waiting. *counted*: what a run records, writes
anew and pads. Simulated, of the published A10: *load*, which steps carry a chunk, and *change*, the served
rate if the decode step were shorter. Does not draw.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Annotated, Any, Literal

from pydantic import Field

from interleave.lab.choices import CPU_PROFILE, GPU_PROFILE, WorkloadChoices
from interleave.lab.decode_bench import narrow_decoder, padding, step_rows
from interleave.lab.decode_floor import Probes, floor_facts, probes
from interleave.lab.measure import Point
from interleave.lab.paths import data_dir
from interleave.lab.point_table import Row, one_table
from interleave.lab.published_calibration import calibrate
from interleave.lab.published_decode import (
    FULL_ROWS,
    change_row,
    changes,
    full_decode_steps,
    load_row,
    step_parts_s,
)
from interleave.lab.published_runs import PublishedRuns
from interleave.lab.recorded_runs import counted_row, paired_rows
from interleave.lab.reference import load_published
from interleave.lab.serving import ServingSetting, model_corpus, serving_setting
from interleave.lab.step_fit import best_fit
from interleave.lab.trace import Trace
from interleave.lab.workload import workload
from interleave.model.sources import load_model

MODULES = (
    "decode_bench", "decode_floor", "device_times", "gap_histogram", "latency_model", "nnls", "plan_features",
    "published_calibration", "published_decode", "published_runs", "recorded_runs", "reference", "request_table",
    "roofline", "simulated_executor", "simulator", "step_fit", "step_prediction", "token_times", "virtual_clock",
)  # fmt: skip
Rows = Annotated[int, Field(ge=1, le=256)]
COUNTED_MODEL = "tiny"


class Params(WorkloadChoices):
    """What a run of this experiment can choose."""

    rows: tuple[Rows, ...] = Field(
        (1, 8, 32),
        min_length=1,
        description="decoding rows of the timed steps",
        json_schema_extra={"unit": "rows"},
    )
    context: int = Field(
        64,
        ge=1,
        le=32768,
        description="positions that each of those rows holds",
        json_schema_extra={"unit": "tokens"},
    )
    repeats: int = Field(
        9,
        ge=1,
        le=500,
        description="timed steps of each engine that count",
        json_schema_extra={"unit": "steps"},
    )
    served_rows: int = Field(
        8, ge=1, le=128, description="rows of the whole runs", json_schema_extra={"unit": "rows"}
    )
    num_requests: int = Field(
        8, ge=1, le=400, description="requests of the whole runs", json_schema_extra={"unit": "requests"}
    )
    runs: int = Field(
        3, ge=1, le=20, description="whole runs of each engine", json_schema_extra={"unit": "runs"}
    )
    counted_rows: tuple[Rows, ...] = Field(
        (8, 32),
        min_length=1,
        description="rows of the runs whose recordings are counted",
        json_schema_extra={"unit": "rows"},
    )
    counted_requests: int = Field(
        64, ge=1, le=400, description="requests of those runs", json_schema_extra={"unit": "requests"}
    )
    counted_scale: Literal[1, 2, 4, 8, 16] = Field(
        4, description="divides the published lengths in those runs"
    )
    rates: tuple[Annotated[float, Field(gt=0, le=100)], ...] = Field(
        (1.0, 2.0, 3.0, 4.0, 5.0, 7.0),
        min_length=1,
        description="simulated arrival rates",
        json_schema_extra={"unit": "requests/s"},
    )
    steps_ms: tuple[Annotated[float, Field(gt=0, le=31)], ...] = Field(
        (25.0, 20.0, 15.0),
        min_length=1,
        description="simulated decode steps of 32 rows",
        json_schema_extra={"unit": "ms"},
    )
    seed: int = Field(0, ge=0, lt=2**63, description="of the draw and the prompts; 0 is the published draw")


PROFILES: dict[str, dict[str, Any]] = {
    "quick": {},
    "cpu": {
        **CPU_PROFILE,
        "rows": (1, 2, 4, 8, 16, 32),
        "context": 256,
        "repeats": 41,
        "num_requests": 16,
        "runs": 5,
        "counted_scale": 1,
    },
    "gpu": {
        **GPU_PROFILE,
        "rows": (1, 8, 32, 128),
        "context": 512,
        "repeats": 20,
        "served_rows": 32,
        "num_requests": 36,
        "counted_scale": 1,
    },
}
LESS_MEMORY = "lower `rows` or `context`"
WEIGHTS = ("model", "narrow")


@dataclass(frozen=True, slots=True)
class Setting:
    """What measuring needs; probes of a GPU, None on a CPU."""

    serving: ServingSetting
    probes: Probes | None


def points(params: Params) -> list[Point]:
    """Steps by rows, with the weights and narrow; whole runs; counts by rows; then what is simulated."""
    given = params.model_dump(mode="json")
    place = {name: given[name] for name in ("model", "dtype", "device")}
    steps = {**place, "kind": "step", "context": params.context, "repeats": params.repeats}
    found = [
        Point(f"{rows} rows, {weights}", {**steps, "rows": rows, "weights": weights})
        for weights in WEIGHTS
        for rows in params.rows
    ]
    names = ("scale", "served_rows", "num_requests", "runs", "seed")
    served = {**place, "kind": "served", **{name: given[name] for name in names}}
    found.append(_traced("whole runs", served))
    for rows in params.counted_rows:
        counted = {
            "kind": "counted",
            "device": params.device,
            "scale": params.counted_scale,
            "served_rows": rows,
            "num_requests": params.counted_requests,
            "seed": params.seed,
        }
        found.append(_traced(f"counts, {rows} rows", counted))
    reference = hashlib.sha256((data_dir() / "reference" / "published.csv").read_bytes()).hexdigest()
    found.append(Point("loads", {"kind": "load", "reference": reference, "rates": given["rates"]}))
    found.append(Point("changes", {"kind": "change", "reference": reference, "steps_ms": given["steps_ms"]}))
    return found


def _traced(label: str, config: dict[str, Any]) -> Point:
    trace = _trace(config)
    return Point(label, {**config, "trace": trace.sha256}, config["seed"], trace.sha256)


def _trace(config: Mapping[str, Any]) -> Trace:
    name = "uniform32" if config["kind"] == "served" else "disturbance64"
    return workload(name, scale=config["scale"], num_requests=config["num_requests"], seed=config["seed"])


def estimate_s(params: Params) -> list[float]:
    """Seconds per point on two CPU cores (or a GPU)."""
    on_gpu = params.device == "cuda"
    position_s, step_s, thin_s = (0.00002, 0.03, 0.01) if on_gpu else (0.0025, 0.06, 0.003)
    seconds = []
    for config in (point.config for point in points(params)):
        if config["kind"] == "step":
            real = config["weights"] == "model"
            prompts = 2 * config["rows"] * config["context"] * position_s * (1.0 if real else 0.02)
            seconds.append(1.0 + prompts + 2 * config["repeats"] * (step_s if real else thin_s))
        elif config["kind"] in ("served", "counted"):
            trace = _trace(config)
            steps = trace.num_new_tokens / config["served_rows"] + len(trace)
            real = config["kind"] == "served"
            once = trace.num_prompt_tokens * position_s * (1.0 if real else 0.05)
            once += steps * (step_s if real else thin_s)
            seconds.append((0.5 + 2 * config["runs"] if real else 1) * once)
        else:
            seconds.append(2.0 + len(config.get("rates", config.get("steps_ms", ()))) * 1.0)
    return seconds


def prepare(params: Params) -> Setting:
    serving = serving_setting(params.model, params.dtype, params.device)
    return Setting(serving, probes() if params.device == "cuda" else None)


def measure(point: Point, setting: Setting, _earlier: Mapping[str, list[Row]]) -> list[Row]:
    """Rows of the point's kind; a load and its parts of the step carry no engine, they are the A10's."""
    config = point.config
    if config["kind"] == "step":
        return _steps(config, setting)
    if config["kind"] == "served":
        return one_table({"kind": "served"}, paired_rows(config, _trace(config), setting.serving))
    if config["kind"] == "counted":
        model = load_model(COUNTED_MODEL, "fp32", config["device"])
        return [{"kind": "counted", **counted_row(config, _trace(config), model, model_corpus(model))}]
    runs = _published()
    if config["kind"] == "load":
        pads = partial(padding, max_rows=FULL_ROWS)
        return [load_row(runs.model, rate, pads) for rate in config["rates"]]
    steps_s = [step_ms / 1e3 for step_ms in config["steps_ms"]]
    parts = step_parts_s(runs.model, full_decode_steps())
    rows: list[Row] = [{"kind": "part", "part": name, "part_s": seconds} for name, seconds in parts.items()]
    return one_table({}, [*rows, *(change_row(change) for change in changes(runs, steps_s))])


@cache
def _published() -> PublishedRuns:
    return PublishedRuns(best_fit(calibrate(load_published())).model)


def _steps(config: Mapping[str, Any], setting: Setting) -> list[Row]:
    decoder, rows = setting.serving.model.decoder, config["rows"]
    if config["weights"] == "narrow":
        decoder = narrow_decoder(decoder)
    found = step_rows(decoder, rows, config["context"], config["repeats"])
    context, kernels = found[0]["context"], found[0]["kernels"]
    assert isinstance(context, float)
    assert kernels is None or isinstance(kernels, int)
    facts: Row = {
        "kind": "step",
        "weights": config["weights"],
        "rows": rows,
        **floor_facts(
            decoder,
            rows,
            round(context),
            roofline=setting.serving.roofline,
            probed=setting.probes,
            kernels=kernels,
        ),
    }
    return one_table(facts, found)
