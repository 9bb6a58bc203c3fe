"""The chunk budget: what its size does to throughput, first tokens and stalls, and why.

Kinds of points. *serve*: one engine at one budget on the disturbance workload, where requests that end
make room for new prompts among rows that decode. *model* and *target*: a step-time model fitted to
another draw, and that workload with chunks as large as a target for the step allows. *step*: how long
one forward over so many prompt positions takes. *passes*: one long prompt in equal pieces, alone.
Does not draw.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from interleave.engine.build import build_engine
from interleave.engine.records import RunLog
from interleave.lab import metrics
from interleave.lab.choices import CPU_PROFILE, GPU_PROFILE, WorkloadChoices
from interleave.lab.chunk_target import fit_row, target_of
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
from interleave.schedule.tpot_target import TpotTarget

EngineName = Literal["chunked", "mixed", "recorded"]
Tokens = Annotated[int, Field(ge=16, le=8192, multiple_of=16)]
LONG_PROMPT = 1536
PIECES = (1, 2, 6, 24)  # 1 x 1536, 2 x 768, 6 x 256, 24 x 64
FIT_SEED = 1_000
"""The draw that the step-time model is fitted to: not the one that is served."""


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
    decode_steps: tuple[Annotated[float, Field(gt=1, le=100)], ...] = Field(
        (1.5, 3.0),
        description="targets for a step in which somebody decodes; chunks are as large as they allow",
        json_schema_extra={"unit": "x a decode step of all rows"},
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
        "decode_steps": (1.5, 2.0, 3.0, 5.0),
        "rows": 32,
        "num_requests": 64,
        "step_tokens": (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048),
    },
    "gpu": {
        **GPU_PROFILE,
        "engines": ("chunked", "recorded"),
        "budgets": (128, 256, 512, 1024),
        "decode_steps": (2.0,),
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
MODULES = (
    "chunk_target", "floor_columns", "gap_histogram", "latency_model", "nnls", "plan_features", "replay",
    "request_table", "roofline", "simulated_executor", "simulator", "step_fit", "step_prediction", "step_traces",
    "token_times", "virtual_clock",
)  # fmt: skip
MODEL_LABEL = "step-time model"


def points(params: Params) -> list[Point]:
    """Budgets on the workload, then targets, then the step curve, then the long prompt in pieces."""
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
    found += _targets(params, served, trace)
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


def _targets(params: Params, served: Mapping[str, Any], trace: Trace) -> list[Point]:
    """The model, fitted at the least, the middle and the largest budget, then a run for each target."""
    engine = next((name for name in ("mixed", "chunked") if name in params.engines), None)
    if engine is None or not params.decode_steps:
        return []
    budgets = sorted(params.budgets)
    fitted = sorted({budgets[0], budgets[len(budgets) // 2], budgets[-1]})
    largest = {"engine": engine, "budget": budgets[-1]}
    model = {**served, **largest, "kind": "model", "fit_budgets": fitted, "fit_seed": FIT_SEED}
    return [
        Point(MODEL_LABEL, model, FIT_SEED),
        *(
            Point(
                f"{engine}, {steps:g} decode steps",
                {**served, **largest, "kind": "target", "decode_steps": steps, "trace": trace.sha256},
                params.seed,
                trace.sha256,
            )
            for steps in params.decode_steps
        ),
    ]


def _trace(config: Mapping[str, Any], seed: int | None = None) -> Trace:
    return workload(
        "disturbance64",
        scale=config["scale"],
        num_requests=config["num_requests"],
        seed=config["seed"] if seed is None else seed,
    )


def estimate_s(params: Params) -> list[float]:
    """Seconds per point on two CPU cores (or a GPU): positions computed and steps taken."""
    position_s, step_s = (0.00002, 0.03) if params.device == "cuda" else (0.0025, 0.06)
    seconds = []
    for point in points(params):
        config = point.config
        if config["kind"] in ("serve", "model", "target"):
            trace = _trace(config)
            budgets = config.get("fit_budgets", [config["budget"]])
            steps = sum(
                trace.num_new_tokens / config["rows"] + trace.num_prompt_tokens * config["scale"] / budget
                for budget in budgets
            )
            positions = trace.num_prompt_tokens * len(budgets)
        else:
            steps = (1 + config["repeats"]) * -(-config["prompt"] // config["chunk"])
            positions = (1 + config["repeats"]) * config["prompt"]
        seconds.append(positions * position_s + steps * step_s)
    return seconds


def prepare(params: Params) -> ServingSetting:
    return serving_setting(params.model, params.dtype, params.device)


def measure(point: Point, setting: ServingSetting, earlier: Mapping[str, list[Row]]) -> list[Row]:
    """serve, target: one row for the run. model: one row. step, passes: one row for each repeat."""
    config = point.config
    if config["kind"] == "serve":
        return _serve(config, setting)
    if config["kind"] == "model":
        return [_model(config, setting)]
    if config["kind"] == "target":
        target = target_of(earlier[MODEL_LABEL][0], config["decode_steps"])
        return _serve(config, setting, target)
    return _alone(config, setting)


def _model(config: Mapping[str, Any], setting: ServingSetting) -> Row:
    return fit_row(
        config["engine"],
        setting,
        _trace(config, config["fit_seed"]),
        config["fit_seed"],
        [budget // config["scale"] for budget in config["fit_budgets"]],
        max_rows=config["rows"],
        block_tokens=scaled_block_tokens(config["scale"]),
    )


def _serve(config: Mapping[str, Any], setting: ServingSetting, target: TpotTarget | None = None) -> list[Row]:
    trace = _trace(config)
    engine = trace_engine(
        config["engine"],
        setting.model,
        trace,
        max_rows=config["rows"],
        chunk_budget=config["budget"] // config["scale"],
        block_tokens=scaled_block_tokens(config["scale"]),
        tpot=target,
    )
    requests = requests_from_trace(trace, setting.tokens, config["seed"])
    serve_discarded(engine, requests)
    log = serve_checked(engine, requests)
    gaps_s = [gap.gap_s for gap in metrics.incumbent_gaps(log)]
    longest = max(row.prompt_tokens for row in trace.rows)
    chosen = engine_settings(engine)
    told = {} if target is None else _kept(config, target, log, gaps_s)
    return [
        {
            "kind": config["kind"],
            "engine": config["engine"],
            **told,
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


def _kept(config: Mapping[str, Any], target: TpotTarget, log: RunLog, gaps_s: Sequence[float]) -> Row:
    """The target, the chunks it led to beside decodes, and how often a reader waited longer than it."""
    chunks = [step.prefill_tokens for step in log.steps if step.prefill_tokens and step.decode_rows]
    return {
        "decode_steps": config["decode_steps"],
        "target_s": target.target_s,
        "chunk_p50": statistics.median(chunks) if chunks else None,
        "late_share": sum(gap > target.target_s for gap in gaps_s) / len(gaps_s) if gaps_s else None,
    }


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
