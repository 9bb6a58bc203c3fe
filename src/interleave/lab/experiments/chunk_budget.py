"""The chunk budget: what its size does to throughput, first tokens and stalls, and why.

Three kinds of points. *serve*: one engine at one budget on the disturbance workload, where requests
that end make room for new prompts among rows that decode. *step*: how long one forward over so many
prompt positions takes. *passes*: one long prompt in equal pieces, alone. Does not draw.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from interleave.engine.build import build_engine
from interleave.lab import metrics
from interleave.lab.choices import CPU_PROFILE, GPU_PROFILE, WorkloadChoices
from interleave.lab.corpus import cut_prompts
from interleave.lab.floor_columns import floor_columns
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
from interleave.lab.trace import Trace
from interleave.lab.workload import requests_from_trace, scaled_block_tokens, workload
from interleave.schedule.request import Request

EngineName = Literal["chunked", "mixed", "recorded"]
Tokens = Annotated[int, Field(ge=16, le=8192, multiple_of=16)]
LONG_PROMPT = 1536
PIECES = (1, 2, 6, 24)  # 1 x 1536, 2 x 768, 6 x 256, 24 x 64


class Params(WorkloadChoices):
    """What a run of this experiment can choose."""

    engines: tuple[EngineName, ...] = Field(
        ("chunked", "mixed"), min_length=1, description="engines to compare"
    )
    budgets: tuple[Tokens, ...] = Field(
        (64, 128, 256, 512, 1024, 4096),
        min_length=1,
        description="prompt positions in a step, before they are divided by scale",
        json_schema_extra={"unit": "tokens"},
    )
    rows: int = Field(
        8, ge=2, le=64, description="requests served at once", json_schema_extra={"unit": "rows"}
    )
    num_requests: int = Field(
        16, ge=2, le=400, description="requests in the trace", json_schema_extra={"unit": "requests"}
    )
    step_tokens: tuple[Annotated[int, Field(ge=1, le=4096)], ...] = Field(
        (1, 2, 4, 8, 16, 32, 64, 128, 256),
        min_length=1,
        description="positions in one forward; not divided by scale",
        json_schema_extra={"unit": "tokens"},
    )
    repeats: int = Field(
        5, ge=1, le=50, description="forwards of each kind", json_schema_extra={"unit": "forwards"}
    )
    seed: int = Field(0, ge=0, lt=2**63, description="of the draw and the prompts; 0 is the published draw")


PROFILES: dict[str, dict[str, Any]] = {
    "quick": {},
    "cpu": {
        **CPU_PROFILE,
        "rows": 32,
        "num_requests": 64,
        "step_tokens": (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048),
    },
    "gpu": {
        **GPU_PROFILE,
        "engines": ("chunked", "recorded"),
        "budgets": (128, 256, 512, 1024),
        "rows": 32,
        "num_requests": 32,
        "step_tokens": (1, 8, 32, 128, 256, 512, 1024, 2048),
    },
    "full": {
        **GPU_PROFILE,
        "engines": ("chunked", "mixed", "recorded"),
        "rows": 32,
        "num_requests": 64,
        "step_tokens": (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048),
    },
}
LESS_MEMORY = "lower `rows`, or raise `scale`"
MODULES = ("floor_columns", "roofline")


def points(params: Params) -> list[Point]:
    """Budgets on the workload, then the step curve, then the long prompt in pieces."""
    common = params.model_dump(mode="json", include={"model", "dtype", "device", "scale", "seed"})
    served = common | {"rows": params.rows, "num_requests": params.num_requests}
    alone = common | {"repeats": params.repeats}
    trace = _trace(served)
    found = [
        Point(
            f"{engine}, budget {budget // params.scale}",
            {**served, "kind": "serve", "engine": engine, "budget": budget, "trace": trace.sha256},
            params.seed,
            trace.sha256,
        )
        for budget in params.budgets
        for engine in params.engines
    ]
    found += [
        Point(
            f"one step of {tokens}", {**alone, "kind": "step", "prompt": tokens, "chunk": tokens}, params.seed
        )
        for tokens in params.step_tokens
    ]
    prompt = LONG_PROMPT // params.scale
    found += [
        Point(
            f"{prompt} in {pieces} pieces",
            {**alone, "kind": "passes", "prompt": prompt, "chunk": prompt // pieces},
            params.seed,
        )
        for pieces in PIECES
    ]
    return found


def _trace(config: Mapping[str, Any]) -> Trace:
    return workload(
        "disturbance64", scale=config["scale"], num_requests=config["num_requests"], seed=config["seed"]
    )


def estimate_s(params: Params) -> list[float]:
    """Seconds per point on two CPU cores (or a GPU): positions computed and steps taken."""
    position_s, step_s = (0.00002, 0.03) if params.device == "cuda" else (0.0025, 0.06)
    seconds = []
    for point in points(params):
        config = point.config
        if config["kind"] == "serve":
            trace = _trace(config)
            budget = config["budget"] // config["scale"]
            steps = trace.num_new_tokens / config["rows"] + trace.num_prompt_tokens / budget
            positions = trace.num_prompt_tokens
        else:
            steps = (1 + config["repeats"]) * -(-config["prompt"] // config["chunk"])
            positions = (1 + config["repeats"]) * config["prompt"]
        seconds.append(positions * position_s + steps * step_s)
    return seconds


def prepare(params: Params) -> ServingSetting:
    return serving_setting(params.model, params.dtype, params.device)


def measure(point: Point, setting: ServingSetting, _earlier: Mapping[str, list[Row]]) -> list[Row]:
    """serve: one row for the run. step, passes: one row for each repeat."""
    return _serve(point.config, setting) if point.config["kind"] == "serve" else _alone(point.config, setting)


def _serve(config: Mapping[str, Any], setting: ServingSetting) -> list[Row]:
    trace = _trace(config)
    engine = trace_engine(
        config["engine"],
        setting.model,
        trace,
        max_rows=config["rows"],
        chunk_budget=config["budget"] // config["scale"],
        block_tokens=scaled_block_tokens(config["scale"]),
    )
    requests = requests_from_trace(trace, setting.tokens, config["seed"])
    serve_discarded(engine, requests)
    log = serve_checked(engine, requests)
    gaps_s = [gap.gap_s for gap in metrics.incumbent_gaps(log)]
    longest = max(row.prompt_tokens for row in trace.rows)
    chosen = engine_settings(engine)
    return [
        {
            "kind": "serve",
            "engine": config["engine"],
            "budget": chosen["chunk_budget"],
            "wall_s": log.wall_s,
            "served_rate": metrics.served_rate(log),
            "ttft_p50_s": statistics.median(record.token_times_s[0] for record in log.requests),
            "prefill_long_s": statistics.median(
                metrics.prefill_s(record) or 0.0 for record in log.requests if record.prompt_tokens == longest
            ),
            "gap_p50_s": statistics.median(gaps_s) if gaps_s else None,
            "worst_gap_s": max(gaps_s, default=None),
            "steps": len(log.steps),
            "forwards": sum(step.forwards for step in log.steps),
            "attention": chosen["attention"],
            "linear": chosen["linear"],
            **floor_columns(log.steps, setting.roofline),
        }
    ]


def _alone(config: Mapping[str, Any], setting: ServingSetting) -> list[Row]:
    """A prompt in chunks of a given size with the engine to itself, `repeats` times after one discarded."""
    count, prompt = 1 + config["repeats"], config["prompt"]
    prompts = cut_prompts(setting.tokens, [prompt] * count, config["seed"])
    requests = [Request(f"r{number}", tuple(tokens), 1) for number, tokens in enumerate(prompts)]
    engine = build_engine(
        "chunked",
        setting.model.decoder,
        max_rows=1,
        chunk_budget=config["chunk"],
        block_tokens=scaled_block_tokens(config["scale"]),
        max_request_tokens=prompt + 1,
    )
    log = serve_checked(engine, requests)
    steps = -(-prompt // config["chunk"])
    of_repeat = [log.steps[repeat * steps : (repeat + 1) * steps] for repeat in range(count)]
    return [
        {
            "kind": config["kind"],
            "tokens": prompt,
            "chunk": config["chunk"],
            "repeat": repeat,
            "prefill_s": sum(step.parts_s["prefill"] for step in of_repeat[repeat]),
            "steps": steps,
            **floor_columns(of_repeat[repeat], setting.roofline),
        }
        for repeat in range(1, count)
    ]
