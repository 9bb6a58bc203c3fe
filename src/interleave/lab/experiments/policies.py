"""Policies: who runs next, in how large a piece, in one forward or two, and which latency pays for it.

Points build on one another: the served rate of each mix with all of it waiting, which loads are multiples
of; single steps with and without a chunk; runs of a policy in an order at a load; and, computed from
those, who stayed within limits and a simulated map of where chunking pays. Does not draw.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from interleave.lab.choices import CPU_PROFILE, GPU_PROFILE, WorkloadChoices
from interleave.lab.long_prompts import SEED, SHARE
from interleave.lab.measure import Point
from interleave.lab.piggyback import piggyback_rows
from interleave.lab.point_table import Row
from interleave.lab.policy_runs import (
    CAPACITY_ENGINE,
    RUN_FACTS,
    USUAL_BUDGET,
    USUAL_ORDER,
    limit_rows,
    map_rows,
    policy_trace,
    run_label,
    run_rows,
)
from interleave.lab.serving import ServingSetting, serving_setting

PolicyName = Literal["whole", "chunked", "mixed"]
OrderName = Literal["decode_first", "prefill_first"]
TraceName = Literal["long", "published", "uniform"]
Load = Annotated[float, Field(gt=0, le=4)]
Share = Annotated[float, Field(ge=0, le=1)]
Multiple = Annotated[float, Field(gt=0, le=10_000)]
MAPPED = ("whole", "mixed")
MODULES = (
    "gap_histogram",
    "latency_model",
    "long_prompts",
    "nnls",
    "piggyback",
    "plan_features",
    "policy_runs",
    "regime_map",
    "replay",
    "request_table",
    "simulated_executor",
    "simulator",
    "step_fit",
    "step_prediction",
    "step_traces",
    "token_times",
    "virtual_clock",
)


class Params(WorkloadChoices):
    """What a run of this experiment can choose."""

    policies: tuple[PolicyName, ...] = Field(
        ("whole", "chunked", "mixed"), min_length=1, description="policies to compare"
    )
    orders: tuple[OrderName, ...] = Field(
        ("decode_first", "prefill_first"), min_length=1, description="who takes the token budget first"
    )
    traces: tuple[TraceName, ...] = Field(
        ("long", "published", "uniform"),
        min_length=1,
        description="long: some prompts of 1536 tokens among short ones; published: the published draw; uniform: all "
        "alike",
    )
    loads: tuple[Load, ...] = Field(
        (0.6, 0.9),
        min_length=1,
        description="arrival rates",
        json_schema_extra={"unit": "x reference capacity"},
    )
    overload: Load = Field(
        2.25,
        description="one more arrival rate for the token budgets",
        json_schema_extra={"unit": "x reference capacity"},
    )
    token_budgets: tuple[Annotated[int, Field(ge=16, le=8192, multiple_of=16)], ...] = Field(
        (64, 512, 8192),
        min_length=1,
        description="query positions in a step, before they are divided by scale; at least rows + 1 are taken",
        json_schema_extra={"unit": "tokens"},
    )
    share: Share = Field(SHARE, description="of long prompts in the trace of that name")
    map_shares: tuple[Share, ...] = Field((0.1,), description="further shares, measured for the map")
    map_loads: tuple[Load, ...] = Field(
        (0.6, 0.9),
        min_length=1,
        description="loads measured for the map",
        json_schema_extra={"unit": "x reference capacity"},
    )
    map_requests: int = Field(
        400,
        ge=20,
        le=100_000,
        description="simulated in a cell of the map",
        json_schema_extra={"unit": "requests"},
    )
    num_requests: int = Field(
        32,
        ge=2,
        le=400,
        description="requests in a trace with long prompts",
        json_schema_extra={"unit": "requests"},
    )
    other_requests: int = Field(
        10, ge=2, le=400, description="requests in the other traces", json_schema_extra={"unit": "requests"}
    )
    max_rows: int = Field(
        8, ge=1, le=256, description="requests served at once", json_schema_extra={"unit": "rows"}
    )
    ttft_limits: tuple[Multiple, ...] = Field(
        (10.0, 60.0),
        min_length=1,
        description="limits of the TTFT; the first goes with the first of gap_limits, and so on",
        json_schema_extra={"unit": "steps in which all rows decode"},
    )
    gap_limits: tuple[Multiple, ...] = Field(
        (3.0, 20.0),
        min_length=1,
        description="limits of the longest gap of a request",
        json_schema_extra={"unit": "steps in which all rows decode"},
    )
    ride_rows: int = Field(
        32,
        ge=1,
        le=256,
        description="decodes beside a chunk; not divided by scale",
        json_schema_extra={"unit": "rows"},
    )
    ride_chunks: tuple[Annotated[int, Field(ge=1, le=4096)], ...] = Field(
        (32, 128, 512),
        min_length=1,
        description="chunks beside decodes; not divided by scale",
        json_schema_extra={"unit": "tokens"},
    )
    repeats: int = Field(
        3, ge=1, le=50, description="steps of each kind", json_schema_extra={"unit": "steps"}
    )
    seed: int = Field(SEED, ge=0, lt=2**63, description="of draws and prompts; 3 is chapter 10's")

    @model_validator(mode="after")
    def _limits_go_together(self) -> Self:
        if len(self.ttft_limits) != len(self.gap_limits):
            raise ValueError(
                "ttft_limits and gap_limits go together: give as many of the one as of the other"
            )
        return self


PROFILES: dict[str, dict[str, Any]] = {
    "quick": {},
    "cpu": {
        **CPU_PROFILE,
        "num_requests": 60,
        "other_requests": 40,
        "max_rows": 15,  # the most that a token budget of 64 / 4 allows
        "map_shares": (0.05, 0.7),
        "map_loads": (0.4, 0.6, 0.9),
        "map_requests": 1000,
        "ride_chunks": (16, 32, 64, 128, 256, 512),
        "repeats": 10,
    },
    "gpu": {
        **GPU_PROFILE,
        "num_requests": 400,
        "other_requests": 400,
        "max_rows": 32,
        "map_shares": (0.02, 0.05, 0.1, 0.7),
        "map_loads": (0.3, 0.6, 0.8, 0.9),
        "map_requests": 2000,
        "ride_chunks": (16, 32, 64, 128, 256, 512, 1024, 2048),
        "repeats": 20,
    },
}
LESS_MEMORY = "lower `max_rows` or `ride_rows`, or raise `scale`"
BASE_LABEL, LIMITS_LABEL, MAP_LABEL = "all rows decode", "within limits", "map, simulated"


def points(params: Params) -> list[Point]:
    """Capacities, single steps, runs, and what is computed from them; a point may read all before it."""
    common = params.model_dump(mode="json", include={"model", "dtype", "device", "scale", "seed"})
    sizes = common | {"max_rows": params.max_rows, "kind": "run"}
    requests = {True: params.num_requests, False: params.other_requests}
    runs = [
        sizes | {"num_requests": requests[run[0] == "long"]} | dict(zip(RUN_FACTS, run, strict=True))
        for run in dict.fromkeys(_runs(params))
    ]
    full = {"policy": CAPACITY_ENGINE, "order": USUAL_ORDER[CAPACITY_ENGINE], "token_budget": USUAL_BUDGET}
    whole_traces = {
        run_label(all_waiting): all_waiting for all_waiting in (run | full | {"load": None} for run in runs)
    }
    alone = common | {"kind": "steps", "repeats": params.repeats}
    computed = {**params.model_dump(mode="json"), "runs": [run_label(run) for run in runs]}
    configs: list[tuple[str, dict[str, Any]]] = [
        *whole_traces.items(),
        (BASE_LABEL, alone | {"rows": params.max_rows, "chunks": []}),
        ("chunks beside decodes", alone | {"rows": params.ride_rows, "chunks": list(params.ride_chunks)}),
        *((run_label(run), run) for run in runs),
        (LIMITS_LABEL, computed | {"kind": "limits"}),
        (MAP_LABEL, computed | {"kind": "map"}),
    ]
    return [Point(label, config, params.seed) for label, config in configs]


def _runs(params: Params) -> Iterator[tuple[str, float | None, str, str, int, float]]:
    """`RUN_FACTS` of each, the same one possibly twice. Only long prompts run at every load."""
    near = max([load for load in params.loads if load < 1] or params.loads)
    for trace in params.traces:
        share = params.share if trace == "long" else None
        for load in params.loads if trace == "long" else (near,):
            for policy in params.policies:
                for order in params.orders:
                    yield trace, share, policy, order, USUAL_BUDGET, load
    for budget in params.token_budgets:
        for load in (*params.loads, params.overload):
            yield "long", params.share, "mixed", USUAL_ORDER["mixed"], budget, load
    for share in (*params.map_shares, params.share):
        for load in params.map_loads:
            for name in MAPPED:
                yield "long", share, name, USUAL_ORDER[name], USUAL_BUDGET, load


def estimate_s(params: Params) -> list[float]:
    """Seconds per point on two CPU cores (or a GPU): positions computed and steps taken."""
    position_s, step_s = (0.00002, 0.03) if params.device == "cuda" else (0.0012, 0.035)
    seconds = []
    for point in points(params):
        config = point.config
        if config["kind"] == "run":
            trace = policy_trace(config, None)
            busy = trace.num_prompt_tokens * position_s + trace.num_new_tokens * step_s / 5
            seconds.append(busy / min(1.0, config["load"] or 1.0))
        elif config["kind"] == "steps":
            turns = (config["repeats"] + 1) * 4
            seconds.append(
                config["rows"] * 130 * position_s + turns * sum(config["chunks"]) * position_s + 1.0
            )
        else:
            seconds.append(1.0 if config["kind"] == "limits" else 3.0 + params.map_requests / 80)
    return seconds


def prepare(params: Params) -> ServingSetting:
    return serving_setting(params.model, params.dtype, params.device)


def measure(point: Point, setting: ServingSetting, earlier: Mapping[str, list[Row]]) -> list[Row]:
    """run: a row per request, and per forward where the map is fitted to it; steps: a row per step timed;
    limits: per run and pair of limits; map: per cell and policy, and per measured run of the map."""
    config = point.config
    if config["kind"] == "run":
        return run_rows(config, setting, earlier)
    if config["kind"] == "steps":
        rows = piggyback_rows(setting, config["rows"], config["chunks"], config["repeats"], config["seed"])
        return [{"kind": "step", **row} for row in rows]
    runs = {label: earlier[label] for label in config["runs"]}
    if config["kind"] == "limits":
        return limit_rows(config, runs, [float(row["step_s"] or 0.0) for row in earlier[BASE_LABEL]])
    return map_rows(config, runs, MAPPED)
