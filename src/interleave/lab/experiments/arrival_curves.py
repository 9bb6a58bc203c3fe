"""Arrival curves: what each engine delivers as requests come faster.

Every engine replays the same traces. Rates are multiples of one reference capacity, the served
rate of `chunked` at its usual budget with every request waiting from the start; it is the first point,
and the others read it, so that all of them, at any budget, use one absolute rate per load. Between the
measured loads the simulator goes on, with a step-time model fitted to a run of each engine that no curve
shows. Does not draw.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from interleave.engine.batched import Engine
from interleave.engine.ladder import ladder_config
from interleave.engine.records import RequestRecord, RunLog
from interleave.lab import metrics
from interleave.lab.choices import CPU_PROFILE, GPU_PROFILE, WorkloadChoices
from interleave.lab.floor_columns import floor_columns
from interleave.lab.measure import Point
from interleave.lab.point_table import Row
from interleave.lab.quantiles import distribution
from interleave.lab.serving import (
    ServingSetting,
    engine_settings,
    serve_checked,
    serve_discarded,
    serving_setting,
    trace_engine,
)
from interleave.lab.simulator import Served, simulate
from interleave.lab.step_fit import best_fit
from interleave.lab.step_traces import fit_steps, timed_steps
from interleave.lab.trace import Trace
from interleave.lab.workload import (
    requests_from_trace,
    scaled_block_tokens,
    scaled_chunk_budget,
    workload,
)

REFERENCE_ENGINE = "chunked"
CAPACITY_LABEL = "reference capacity"
FIT_SEED, FIT_REQUESTS = 1_000, 40
"""What a step-time model is fitted to: a closed batch of another draw than any curve's."""
SIMULATED_FACTS = ("run_served_rate", "run_gap_p50_s", "run_worst_gap_s")
SIMULATED_LOADS = 12
"""Loads that the simulator adds, evenly from the lowest measured one to the highest."""
EngineName = Literal["continuous", "paged", "whole", "chunked", "mixed", "recorded"]


class Params(WorkloadChoices):
    """What a run of this experiment can choose."""

    engines: tuple[EngineName, ...] = Field(
        ("paged", "whole", "chunked", "mixed"), min_length=1, description="engines to compare"
    )
    loads: tuple[Annotated[float, Field(gt=0, le=4)], ...] = Field(
        (0.6, 0.85, 1.2),
        min_length=1,
        description="arrival rates",
        json_schema_extra={"unit": "x reference capacity"},
    )
    num_requests: int = Field(
        20, ge=2, le=400, description="requests in a trace", json_schema_extra={"unit": "requests"}
    )
    seeds: tuple[Annotated[int, Field(ge=0, lt=2**63)], ...] = Field(
        (0,), min_length=1, description="one trace per seed; 0 is the published draw"
    )
    near_seeds: tuple[Annotated[int, Field(ge=0, lt=2**63)], ...] = Field(
        (), description="further traces at the highest load below capacity, where the draw decides most"
    )
    max_rows: int = Field(
        8, ge=1, le=256, description="requests served at once", json_schema_extra={"unit": "rows"}
    )
    chunk_budget: int | None = Field(
        None,
        ge=1,
        le=8192,
        description="prompt positions in a step; null takes 512 / scale",
        json_schema_extra={"unit": "tokens"},
    )


PROFILES: dict[str, dict[str, Any]] = {
    "quick": {},
    "cpu": {
        **CPU_PROFILE,
        "loads": (0.5, 0.7, 0.85, 1.2),  # a trace at less lasts longer
        "num_requests": 100,
        "near_seeds": (1, 2),
        "max_rows": 32,
    },
    "gpu": {
        **GPU_PROFILE,
        "engines": ("paged", "chunked", "mixed", "recorded"),
        "loads": (0.85, 1.1),
        "num_requests": 120,
        "max_rows": 32,
    },
    "full": {
        **GPU_PROFILE,
        "engines": ("continuous", "paged", "whole", "chunked", "mixed", "recorded"),
        "loads": (0.3, 0.6, 0.85, 1.2),
        "num_requests": 400,
        "max_rows": 32,
    },
}
LESS_MEMORY = "lower `max_rows`, or raise `scale`"
MODULES = (
    "floor_columns", "gap_histogram", "latency_model", "nnls", "plan_features", "replay", "request_table", "roofline",
    "simulated_executor", "simulator", "step_fit", "step_prediction", "step_traces", "token_times", "virtual_clock",
)  # fmt: skip


def points(params: Params) -> list[Point]:
    """The reference capacity, then every engine at every load on every seed's trace, then the simulator."""
    common = params.model_dump(mode="json", exclude={"engines", "loads", "seeds", "near_seeds"})
    usual = scaled_chunk_budget(params.scale)
    reference = {"engine": REFERENCE_ENGINE, "chunk_budget": usual, "seed": 0, "load": None}
    capacity = Point(CAPACITY_LABEL, {**common, **reference}, seed=0)
    # None where an engine has no use for it, so that another budget leaves its points as they are.
    chosen = {
        engine: ladder_config(engine, chunk_budget=params.chunk_budget or usual).chunk_budget
        for engine in params.engines
    }
    loaded = [
        Point(
            f"{engine} at {load:g} x, seed {seed}",
            {**common, "engine": engine, "chunk_budget": chosen[engine], "seed": seed, "load": load},
            seed=seed,
        )
        for load in params.loads
        for seed in seeds_at(params, load)
        for engine in params.engines
    ]
    between = {
        "kind": "simulated",
        "simulated_loads": simulated_loads(params.loads),
        "simulated_seeds": sorted({*params.seeds, *params.near_seeds}),
        "fit": {"requests": min(params.num_requests, FIT_REQUESTS), "seed": FIT_SEED},
    }
    simulated = [
        Point(
            f"simulated {engine}",
            {**common, **between, "engine": engine, "chunk_budget": chosen[engine]},
            seed=FIT_SEED,
        )
        for engine in params.engines
    ]
    return [capacity, *loaded, *simulated]


def simulated_loads(loads: Sequence[float]) -> list[float]:
    """The measured loads, and others evenly between them, ascending."""
    low, high = min(loads), max(loads)
    even = [low + (high - low) * place / (SIMULATED_LOADS - 1) for place in range(SIMULATED_LOADS)]
    return sorted({*loads, *(round(load, 3) for load in even)})


def seeds_at(params: Params, load: float) -> list[int]:
    """The seeds of a load, each once and in order."""
    near = max((each for each in params.loads if each < 1), default=min(params.loads))
    return list(dict.fromkeys([*params.seeds, *(params.near_seeds if load == near else ())]))


def estimate_s(params: Params) -> list[float]:
    """Seconds per point, from the rough cost of one request on two CPU cores (or a GPU)."""
    per_request_s = 0.25 if params.device == "cuda" else 4 / params.scale
    padded = ("continuous", "paged")
    seconds = []
    for point in points(params):
        config = point.config
        simulated = config.get("kind") == "simulated"
        count = config["fit"]["requests"] if simulated else params.num_requests
        load = 1.0 if simulated else config["load"] or 1.0
        seconds.append(count * per_request_s / min(1.0, load) * (1.4 if config["engine"] in padded else 1.0))
    return seconds


def prepare(params: Params) -> ServingSetting:
    return serving_setting(params.model, params.dtype, params.device)


def measure(point: Point, setting: ServingSetting, earlier: Mapping[str, list[Row]]) -> list[Row]:
    """measured: one row per request, with the facts of its run repeated on each. simulated: one row per run."""
    config = point.config
    if config.get("kind") == "simulated":
        return _simulated(config, setting, _capacity(earlier))
    rate = None if config["load"] is None else config["load"] * _capacity(earlier)
    trace = _trace(config, rate, config["seed"], config["num_requests"])
    log, engine = _serve(config, setting, trace, config["seed"])
    chosen = engine_settings(engine)
    code = {"attention": chosen["attention"], "linear": chosen["linear"]}
    facts = {**_run_facts(log, config, rate), **code, **floor_columns(log.steps, setting.roofline)}
    return [{"kind": "measured", **facts, **_request_row(record)} for record in log.requests]


def _capacity(earlier: Mapping[str, list[Row]]) -> float:
    capacity = earlier[CAPACITY_LABEL][0]["run_served_rate"]
    assert isinstance(capacity, float)
    return capacity


def _trace(config: Mapping[str, Any], rate: float | None, seed: int, num_requests: int) -> Trace:
    return workload("published", scale=config["scale"], num_requests=num_requests, rate=rate, seed=seed)


def _sizes(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "max_rows": config["max_rows"],
        "chunk_budget": config["chunk_budget"],
        "block_tokens": scaled_block_tokens(config["scale"]),
    }


def _serve(
    config: Mapping[str, Any], setting: ServingSetting, trace: Trace, seed: int
) -> tuple[RunLog, Engine]:
    """A fresh engine serves a trace, after a few short requests that are thrown away."""
    engine = trace_engine(config["engine"], setting.model, trace, **_sizes(config))
    requests = requests_from_trace(trace, setting.tokens, seed)
    serve_discarded(engine, requests)
    return serve_checked(engine, requests), engine


def _simulated(config: Mapping[str, Any], setting: ServingSetting, capacity: float) -> list[Row]:
    """Fit the step-time model to a closed batch of this engine, then simulate it over loads and traces."""
    fit = config["fit"]
    closed = _trace(config, None, fit["seed"], fit["requests"])
    log, _ = _serve(config, setting, closed, fit["seed"])
    served = Served(engine=config["engine"], **_sizes(config))
    fits = fit_steps(timed_steps(served, log.requests, log.steps))
    fitted = best_fit(fits)
    rows: list[Row] = []
    for load in config["simulated_loads"]:
        for seed in config["simulated_seeds"]:
            rate = load * capacity
            trace = _trace(config, rate, seed, config["num_requests"])
            log = simulate(served, trace, fitted.model)
            run = {"engine": config["engine"], "load": load, "seed": seed}
            facts = _run_facts(log, run, rate)
            rows.append(
                {
                    "kind": "simulated",
                    **{name: facts[name] for name in (*run, "rate", *SIMULATED_FACTS)},
                    "fit_rms": fitted.rms,
                    "ttft_s": _median(map(metrics.ttft_s, log.requests)),
                    "queue_wait_s": _median(map(metrics.queue_wait_s, log.requests)),
                }
            )
    return rows


def _median(values: Iterable[float | None]) -> float:
    return statistics.median(value for value in values if value is not None)


def _run_facts(log: RunLog, config: Mapping[str, Any], rate: float | None) -> Row:
    gaps = distribution(gap for record in log.requests for gap in metrics.gaps_s(record))
    incumbent = [gap.gap_s for gap in metrics.incumbent_gaps(log)]
    groups = metrics.admission_groups(log)
    return {
        "engine": config["engine"],
        "load": config["load"],
        "seed": config["seed"],
        "rate": rate,
        "run_wall_s": log.wall_s,
        "run_served_rate": metrics.served_rate(log),
        "run_gap_p50_s": gaps["p50"],
        "run_gap_p95_s": gaps["p95"],
        "run_worst_gap_s": max(incumbent, default=None),
        "run_groups": len(groups),
        "run_largest_group": max(groups),
        "run_padded_tokens": sum(step.padded_tokens for step in log.steps),
        "run_prefill_tokens": sum(step.prefill_tokens for step in log.steps),
        "run_steps": len(log.steps),
        "run_busy_s": sum(step.end_s - step.start_s for step in log.steps),
    }


def _request_row(record: RequestRecord) -> Row:
    return {
        "request": record.request_id,
        "prompt_tokens": record.prompt_tokens,
        "new_tokens": len(record.tokens),
        "due_s": record.due_s,
        "admit_step": record.admit_step,
        "queue_wait_s": metrics.queue_wait_s(record),
        "ttft_s": metrics.ttft_s(record),
        "tpot_s": metrics.tpot_s(record),
        "max_gap_s": metrics.max_gap_s(record),
        "finish_s": record.finish_s,
    }
