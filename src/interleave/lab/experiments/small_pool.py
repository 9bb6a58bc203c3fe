"""A pool too small for everybody: what is reserved, used and lost to rounding, and what it buys to overcommit.

A point is one engine under one allocation rule on one closed batch, with a pool that covers a share of
what the whole batch would reserve. Its first row sums the run up, then comes a row for each step. Does
not draw.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from interleave.engine.records import RunLog, StepRecord
from interleave.lab import metrics
from interleave.lab.choices import CPU_PROFILE, GPU_PROFILE, WorkloadChoices
from interleave.lab.measure import Point
from interleave.lab.point_table import Row
from interleave.lab.serving import (
    ServingSetting,
    engine_settings,
    serve_checked,
    serve_discarded,
    serving_setting,
    trace_engine,
)
from interleave.lab.summary import summary
from interleave.lab.trace import Trace
from interleave.lab.workload import requests_from_trace, scaled_block_tokens, scaled_chunk_budget, workload
from interleave.schedule.block_pool import need_blocks

Share = Annotated[float, Field(gt=0, le=1)]
ALL = 1.0


class Params(WorkloadChoices):
    """What a run of this experiment can choose."""

    batches: tuple[Literal["mixed", "uniform"], ...] = Field(
        ("mixed", "uniform"), min_length=1, description="lengths of the published draw, or all alike"
    )
    engine: Literal["paged", "whole", "chunked", "mixed"] = Field(
        "chunked", description="an engine with a block pool"
    )
    allocations: tuple[Literal["reserve", "progressive"], ...] = Field(
        ("reserve", "progressive"), min_length=1, description="when rows get their blocks"
    )
    shares: tuple[Share, ...] = Field(
        (0.34,), min_length=1, description="of the blocks that the whole batch would reserve"
    )
    ample: bool = Field(True, description="also a pool for everybody, under which both rules are one")
    rows: int = Field(
        16,
        ge=2,
        le=64,
        description="requests in the batch, and most at once",
        json_schema_extra={"unit": "requests"},
    )
    chunk_budget: int | None = Field(
        None,
        ge=1,
        le=8192,
        description="prompt positions in a step; null takes 512 / scale",
        json_schema_extra={"unit": "tokens"},
    )
    runs: int = Field(
        1,
        ge=1,
        le=50,
        description="runs of each point; the median one counts",
        json_schema_extra={"unit": "runs"},
    )
    seed: int = Field(0, ge=0, lt=2**63, description="of the draw and the prompts; 0 is the published draw")

    @model_validator(mode="after")
    def _room_for_the_largest(self) -> Params:
        for batch in self.batches:
            needs = _needs(self.model_dump() | {"batch": batch})
            for share in self.shares:
                if int(share * sum(needs)) < max(needs):
                    raise ValueError(
                        f"a share of {share} of {sum(needs)} blocks has no room for the largest request of "
                        f"{batch}{self.rows}, which needs {max(needs)}"
                    )
        return self


PROFILES: dict[str, dict[str, Any]] = {
    "quick": {},
    "cpu": {**CPU_PROFILE, "rows": 32, "shares": (0.2, 0.34), "runs": 3},
    "gpu": {**GPU_PROFILE, "rows": 32, "shares": (0.2, 0.34, 0.5), "runs": 5},
}
MODULES = ("summary",)
LESS_MEMORY = "lower `rows`, or raise `scale`"


def points(params: Params) -> list[Point]:
    """Batches, then shares, then rules; the pool for everybody, if wanted, comes first."""
    found = []
    for batch in params.batches:
        runs = [(ALL, "reserve")] if params.ample else []
        runs += [(share, rule) for share in params.shares for rule in params.allocations]
        for share, rule in runs:
            config = params.model_dump(
                mode="json", exclude={"batches", "allocations", "shares", "ample", "chunk_budget"}
            )
            config |= {
                "batch": batch,
                "share": share,
                "allocation": rule,
                "chunk_budget": params.chunk_budget or scaled_chunk_budget(params.scale),
            }
            sha256 = _trace(config).sha256
            label = f"{batch}{params.rows}, {share:.0%} of the blocks, {rule}"
            found.append(Point(label, {**config, "trace": sha256}, params.seed, sha256))
    return found


def _trace(config: Mapping[str, Any]) -> Trace:
    return workload(
        f"{config['batch']}32", scale=config["scale"], num_requests=config["rows"], seed=config["seed"]
    )


def _needs(config: Mapping[str, Any]) -> list[int]:
    """Blocks that each request of the batch can ever need."""
    size = scaled_block_tokens(config["scale"])
    return [need_blocks(row.prompt_tokens + row.new_tokens, size) for row in _trace(config).rows]


def estimate_s(params: Params) -> list[float]:
    """Seconds per point on two CPU cores (or a GPU): positions computed and forwards, with some again."""
    position_s, forward_s = (0.00002, 0.03) if params.device == "cuda" else (0.0025, 0.06)
    seconds = []
    for point in points(params):
        config, trace = point.config, _trace(point.config)
        again = 1.3 if config["allocation"] == "progressive" else 1.0
        forwards = max(row.new_tokens for row in trace.rows) / config["share"]
        forwards += 2 * trace.num_prompt_tokens / config["chunk_budget"]
        once_s = again * trace.num_prompt_tokens * position_s + forwards * forward_s
        seconds.append(config["runs"] * once_s)
    return seconds


def prepare(params: Params) -> ServingSetting:
    return serving_setting(params.model, params.dtype, params.device)


def measure(point: Point, setting: ServingSetting, _earlier: Mapping[str, list[Row]]) -> list[Row]:
    """One row for the run, then one for each step."""
    config = point.config
    trace = _trace(config)
    engine = trace_engine(
        config["engine"],
        setting.model,
        trace,
        max_rows=config["rows"],
        chunk_budget=config["chunk_budget"],
        block_tokens=scaled_block_tokens(config["scale"]),
        num_blocks=int(config["share"] * sum(_needs(config))),
        allocation=config["allocation"],
    )
    requests = requests_from_trace(trace, setting.tokens, config["seed"])
    serve_discarded(engine, requests)
    logs = sorted(
        (serve_checked(engine, requests) for _ in range(config["runs"])), key=lambda log: log.wall_s
    )
    log = logs[(len(logs) - 1) // 2]
    chosen = engine_settings(engine)
    common = {
        "batch": config["batch"],
        "share": config["share"],
        "allocation": config["allocation"],
        "num_blocks": chosen["num_blocks"],
        "block_tokens": chosen["block_tokens"],
    }
    whole = _run(log) | {"attention": chosen["attention"], "linear": chosen["linear"]}
    steps = [_step(step) for step in log.steps]
    blank = dict.fromkeys([*whole, *steps[0]])
    return [
        {"kind": "run", **common, **blank, **whole},
        *({"kind": "step", **common, **blank, **step} for step in steps),
    ]


def _run(log: RunLog) -> Row:
    found = summary(log)
    gaps_s = [gap for record in log.requests for gap in metrics.gaps_s(record)]
    return {
        "wall_s": log.wall_s,
        "served_rate": found["served_rate"],
        "ttft_p50_s": found["ttft_s"]["p50"],
        "queue_wait_p50_s": found["queue_wait_s"]["p50"],
        "gap_p50_s": statistics.median(gaps_s) if gaps_s else None,
        "worst_gap_s": max(gaps_s, default=None),
        **found["occupancy"],
        "most_rows": max(step.rows for step in log.steps),
        "preemptions": found["steps"]["preempted"],
        "recomputed_tokens": found["steps"]["recomputed_tokens"],
        "prefill_tokens": found["steps"]["prefill_tokens"],
        "steps": found["steps"]["n"],
    }


def _step(step: StepRecord) -> Row:
    names: Sequence[str] = (
        "start_s",
        "end_s",
        "rows",
        "waiting",
        "preempted",
        "owned_blocks",
        "used_blocks",
        "cached_tokens",
    )
    return {name: getattr(step, name) for name in names}
