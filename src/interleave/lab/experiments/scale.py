"""Beyond one machine and a few hundred requests, by simulation of the published A10 engine.

Seven kinds of points. *cost*: what simulating so many requests takes (measured here). *fleet*: replicas and
routings. *apart*: prefill and decode on machines of their own, beside chunking on as many. *budget*: fixed
chunk budgets and budgets that follow a target. *capacity*: rates within limits. *way*: every way to serve on the
same machines. *agent*: some of them with a few prompts far longer than the rest. Does not draw.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from interleave.lab.deployment import TRANSFER_GBPS
from interleave.lab.latency_file import model_from_json, model_to_json
from interleave.lab.measure import Point
from interleave.lab.point_table import Row
from interleave.lab.scale_runs import MEASURES, published_model
from interleave.lab.ways_to_serve import APART, WAYS

MODULES = (
    "deployment", "disaggregation", "fleet", "gap_histogram", "latency_model", "nnls", "plan_features",
    "published_calibration", "published_runs", "reference", "replica", "request_table", "routing", "scale_runs",
    "simulate_serve", "simulated_executor", "simulator", "slo_capacity", "step_fit", "step_prediction",
    "token_times", "virtual_clock", "ways_to_serve",
)  # fmt: skip
RoutingName = Literal["round_robin", "least_loaded", "shortest_queue"]
Load = Annotated[float, Field(gt=0, le=4)]
AGENT_WAYS = ("whole", "chunked", "mixed", APART)


class Params(BaseModel):
    """What a run of this experiment can choose."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    cost_requests: tuple[Annotated[int, Field(ge=100, le=10_000_000)], ...] = Field(
        (1_000, 5_000, 20_000),
        min_length=1,
        description="requests of the runs whose cost is measured",
        json_schema_extra={"unit": "requests"},
    )
    load: Load = Field(
        0.85, description="arrival rate of the cost and fleet runs", json_schema_extra={"unit": "x capacity"}
    )
    replicas: tuple[Annotated[int, Field(ge=1, le=64)], ...] = Field(
        (1, 2, 4), min_length=1, description="fleet sizes", json_schema_extra={"unit": "machines"}
    )
    routings: tuple[RoutingName, ...] = Field(
        ("round_robin", "shortest_queue", "least_loaded"), min_length=1, description="routings to compare"
    )
    machines: int = Field(
        4,
        ge=2,
        le=16,
        description="machines of the comparison with prefill and decode apart",
        json_schema_extra={"unit": "machines"},
    )
    apart_loads: tuple[Load, ...] = Field(
        (0.5, 0.85),
        min_length=1,
        description="arrival rates of that comparison",
        json_schema_extra={"unit": "x capacity of chunking on all machines"},
    )
    rows: tuple[Annotated[int, Field(ge=1, le=1024)], ...] = Field(
        (32, 64),
        min_length=1,
        description="rows of every machine of that comparison; the first also over a slower link",
        json_schema_extra={"unit": "rows"},
    )
    slow_gbps: float = Field(
        10.0, gt=0, le=10_000, description="a slower link to try", json_schema_extra={"unit": "Gb/s"}
    )
    num_requests: int = Field(
        800,
        ge=200,
        le=1_000_000,
        description="requests of each run for each machine, so that all runs last as long",
        json_schema_extra={"unit": "requests"},
    )
    budgets: tuple[Annotated[int, Field(ge=16, le=8192)], ...] = Field(
        (128, 256, 512, 1024),
        min_length=1,
        description="fixed chunk budgets",
        json_schema_extra={"unit": "tokens"},
    )
    targets_s: tuple[Annotated[float, Field(gt=0, le=10)], ...] = Field(
        (0.045, 0.06, 0.08),
        min_length=1,
        description="targets for the time of a step",
        json_schema_extra={"unit": "s"},
    )
    ttft_limit_s: float = Field(
        2.0, gt=0, le=1e4, description="most to the first token", json_schema_extra={"unit": "s"}
    )
    gap_limit_s: float = Field(
        0.1, gt=0, le=1e4, description="most between two tokens", json_schema_extra={"unit": "s"}
    )
    share: float = Field(0.9, gt=0, le=1, description="of requests within both limits")
    agent_tokens: tuple[Annotated[int, Field(ge=4_097, le=1_000_000)], ...] = Field(
        (16_384, 32_768),
        min_length=1,
        description="prompts of agents, each tried among the others",
        json_schema_extra={"unit": "tokens"},
    )
    agent_share: float = Field(0.02, gt=0, le=1, description="of requests that are an agent's")
    seed: int = Field(0, ge=0, lt=2**63, description="of the draws; 0 is the published one")


PROFILES: dict[str, dict[str, Any]] = {
    "quick": {},
    "cpu": {
        "cost_requests": (1_000, 10_000, 100_000, 1_000_000),
        "replicas": (1, 2, 4, 8, 16),
        "apart_loads": (0.5, 0.7, 0.85),
        "num_requests": 5_000,
    },
    "gpu": {},
}
LESS_MEMORY = "lower `cost_requests`"
REQUESTS_PER_SECOND = 5_000


def points(params: Params) -> list[Point]:
    """Costs, fleets, splits, budgets, capacities; each names what it simulates, with the model of its steps."""
    given = params.model_dump(mode="json")
    common = {"model": model_to_json(published_model()), "seed": params.seed}
    run = common | {"num_requests": params.num_requests}
    limits = run | {name: given[name] for name in ("ttft_limit_s", "gap_limit_s", "share")}
    return [
        Point(label, config, params.seed)
        for label, config in (
            *_costs(params, common),
            *_fleets(params, run),
            *_splits(params, run),
            *_budgets(params, run),
            *_capacities(params, limits),
            *_ways(params, run),
            *_agents(params, run),
        )
    ]


Named = Iterator[tuple[str, dict[str, Any]]]


def _costs(params: Params, common: Mapping[str, Any]) -> Named:
    for number in params.cost_requests:
        yield f"cost of {number:,}", {**common, "kind": "cost", "num_requests": number, "load": params.load}


def _fleets(params: Params, run: Mapping[str, Any]) -> Named:
    for number in params.replicas:
        for routing in params.routings if number > 1 else params.routings[:1]:
            yield (
                f"{number} x {routing}",
                {**run, "kind": "fleet", "replicas": number, "routing": routing, "load": params.load},
            )


def _splits(params: Params, run: Mapping[str, Any]) -> Named:
    fast, slow = TRANSFER_GBPS, params.slow_gbps
    tried = [(rows, prefill, fast) for rows in params.rows for prefill in range(params.machines)]
    tried += [(params.rows[0], prefill, slow) for prefill in range(1, params.machines)]
    for load in params.apart_loads:
        for rows, prefill, gbps in tried:
            name = f"{prefill}+{params.machines - prefill} at {load:g}, {rows} rows, {gbps:g} Gb/s"
            sizes = {"machines": params.machines, "prefill_machines": prefill, "rows": rows, "gbps": gbps}
            yield name, {**run, "kind": "apart", **sizes, "load": load}


def _budgets(params: Params, run: Mapping[str, Any]) -> Named:
    for budget in params.budgets:
        yield (
            f"budget {budget}",
            {**run, "kind": "budget", "budget": budget, "target_s": None, "load": params.load},
        )
    for target in params.targets_s:
        most = max(params.budgets)
        yield (
            f"target {target:g} s",
            {**run, "kind": "budget", "budget": most, "target_s": target, "load": params.load},
        )


def _capacities(params: Params, limits: Mapping[str, Any]) -> Named:
    for engine in ("whole", "chunked", "mixed"):
        yield (
            f"capacity of {engine}",
            {**limits, "kind": "capacity", "engine": engine, "replicas": 1, "prefill_machines": 0},
        )
    number = params.machines
    yield (
        f"capacity of {number} x chunked",
        {**limits, "kind": "capacity", "engine": "chunked", "replicas": number, "prefill_machines": 0},
    )
    half = number // 2
    yield (
        f"capacity of {half}+{number - half}",
        {**limits, "kind": "capacity", "engine": "chunked", "replicas": number, "prefill_machines": half},
    )


def _ways(params: Params, run: Mapping[str, Any]) -> Named:
    for way in WAYS:
        sizes = {"machines": params.machines, "load": min(params.apart_loads)}
        yield f"{way} on {params.machines}", {**run, "kind": "way", "way": way, **sizes}


def _agents(params: Params, run: Mapping[str, Any]) -> Named:
    for tokens in params.agent_tokens:
        for way in AGENT_WAYS:
            sizes = {"machines": params.machines, "load": min(params.apart_loads)}
            agents = {"agent_tokens": tokens, "agent_share": params.agent_share}
            yield f"{way}, agents of {tokens:,}", {**run, "kind": "agent", "way": way, **sizes, **agents}


def estimate_s(params: Params) -> list[float]:
    """Seconds per point on one core: requests simulated, a step's budget searched by ten trials."""
    seconds = []
    for point in points(params):
        config = point.config
        requests = config["num_requests"] * config.get("machines", config.get("replicas", 1))
        if config["kind"] == "capacity":
            requests = 11 * requests + 4_000
        seconds.append(requests * (3 if config.get("target_s") else 1) / REQUESTS_PER_SECOND)
    seconds[0] += 1.0
    return seconds


def prepare(params: Params) -> None:
    """Nothing to load: the model of step times is part of each point."""


def measure(point: Point, _setting: None, _earlier: Mapping[str, list[Row]]) -> list[Row]:
    """One row for each point."""
    config = point.config
    model = model_from_json(config["model"])
    return [{"kind": config["kind"], **MEASURES[config["kind"]](config, model)}]
