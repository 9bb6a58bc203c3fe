"""Step traces: every step of a run, what it carried, where its time went, and whom it kept waiting.

A point is one engine on the disturbance workload, all requests there from the start, more of them
than rows: whenever a request ends, the next one's prompt comes in among rows that decode. Does not
draw.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from interleave.engine.batched import StepOutcome
from interleave.engine.records import RunLog, StepRecord
from interleave.lab import metrics
from interleave.lab.choices import CPU_PROFILE, GPU_PROFILE, WorkloadChoices
from interleave.lab.floor_columns import floor_columns, step_floor
from interleave.lab.measure import Point
from interleave.lab.point_table import Row, one_table
from interleave.lab.roofline import Roofline
from interleave.lab.serving import (
    ServingSetting,
    engine_settings,
    serve_checked,
    serve_discarded,
    serving_setting,
    trace_engine,
)
from interleave.lab.trace import Trace
from interleave.lab.workload import (
    requests_from_trace,
    scaled_block_tokens,
    scaled_chunk_budget,
    workload,
)
from interleave.schedule.plan import Piece

EngineName = Literal["static", "continuous", "paged", "whole", "chunked", "mixed", "recorded"]
BATCHED: tuple[EngineName, ...] = get_args(EngineName)
PARTS = ("prefill", "decode", "mixed", "copy", "sample", "host")
COUNTS = ("forwards", "prefill_tokens", "decode_rows", "padded_tokens", "copied_tokens", "running", "waiting")


class Params(WorkloadChoices):
    """What a run of this experiment can choose."""

    engines: tuple[EngineName, ...] = Field(
        ("paged", "whole", "chunked", "mixed"), min_length=1, description="engines to compare"
    )
    rows: tuple[Annotated[int, Field(ge=2, le=64)], ...] = Field(
        (8,), min_length=1, description="requests served at once", json_schema_extra={"unit": "rows"}
    )
    num_requests: int = Field(
        32, ge=2, le=400, description="requests in the trace", json_schema_extra={"unit": "requests"}
    )
    chunk_budget: int | None = Field(
        None,
        ge=1,
        le=8192,
        description="prompt positions in a step; null takes 512 / scale",
        json_schema_extra={"unit": "tokens"},
    )
    seed: int = Field(0, ge=0, lt=2**63, description="of the draw and the prompts; 0 is the published draw")


PROFILES: dict[str, dict[str, Any]] = {
    "quick": {},
    "cpu": {**CPU_PROFILE, "engines": BATCHED, "rows": (8, 32), "num_requests": 64},
    "gpu": {
        **GPU_PROFILE,
        "engines": ("paged", "whole", "chunked", "mixed", "recorded"),
        "rows": (32,),
        "num_requests": 64,
    },
    "full": {
        **GPU_PROFILE,
        "engines": BATCHED,
        "rows": (8, 32),
        "num_requests": 64,
    },
}
LESS_MEMORY = "lower `rows`, or raise `scale`"
MODULES = ("floor_columns", "roofline")


def points(params: Params) -> list[Point]:
    """Every engine at every number of rows, on one trace."""
    common = params.model_dump(mode="json", exclude={"engines", "rows"})
    common["chunk_budget"] = params.chunk_budget or scaled_chunk_budget(params.scale)
    trace = _trace(common)
    return [
        Point(
            f"{engine}, {rows} rows",
            {**common, "engine": engine, "rows": rows, "trace": trace.sha256},
            params.seed,
            trace.sha256,
        )
        for rows in params.rows
        for engine in params.engines
    ]


def _trace(config: Mapping[str, Any]) -> Trace:
    return workload(
        "disturbance64", scale=config["scale"], num_requests=config["num_requests"], seed=config["seed"]
    )


def estimate_s(params: Params) -> list[float]:
    """Seconds per point on two CPU cores (or a GPU): positions computed and steps taken."""
    position_s, step_s = (0.00002, 0.03) if params.device == "cuda" else (0.0025, 0.06)
    seconds = []
    for point in points(params):
        trace, rows = _trace(point.config), point.config["rows"]
        steps, positions = trace.num_new_tokens / rows + len(trace), float(trace.num_prompt_tokens)
        if point.config["engine"] == "static":  # a batch is as wide and as long as its largest request
            batches = [trace.rows[first : first + rows] for first in range(0, len(trace), rows)]
            positions = sum(len(batch) * max(row.prompt_tokens for row in batch) for batch in batches)
            steps = sum(max(row.new_tokens for row in batch) for batch in batches)
        elif point.config["engine"] in ("continuous", "paged"):
            positions *= 1.5
        seconds.append(positions * position_s + steps * step_s)
    return seconds


def prepare(params: Params) -> ServingSetting:
    return serving_setting(params.model, params.dtype, params.device)


def measure(point: Point, setting: ServingSetting, _earlier: Mapping[str, list[Row]]) -> list[Row]:
    """Rows of four kinds: the run, its steps, their pieces, and the gaps of requests already decoding."""
    config = point.config
    trace = _trace(config)
    engine = trace_engine(
        config["engine"],
        setting.model,
        trace,
        max_rows=config["rows"],
        chunk_budget=config["chunk_budget"],
        block_tokens=scaled_block_tokens(config["scale"]),
    )
    requests = requests_from_trace(trace, setting.tokens, config["seed"])
    serve_discarded(engine, requests)
    pieces: list[Row] = []
    log = serve_checked(engine, requests, on_step=lambda outcome, _: pieces.extend(_pieces(outcome)))
    chosen = engine_settings(engine)
    run = {"wall_s": log.wall_s, "attention": chosen["attention"], "linear": chosen["linear"]}
    run |= floor_columns(log.steps, setting.roofline)
    steps = [_step_row(step, setting.roofline) for step in log.steps]
    rows = [{"kind": "run", **run}, *steps, *pieces, *_gap_rows(log)]
    return one_table({"engine": config["engine"], "rows": config["rows"]}, rows)


def _pieces(outcome: StepOutcome) -> list[Row]:
    """One row per request and forward of a step: how many of its positions were computed.

    phase: prefill, decode, or held for a row of `static` that has ended and is still computed.
    """
    answered = {request_id for request_id, _ in outcome.tokens}

    def phase(piece: Piece) -> str:
        if not piece.is_decode:
            return "prefill"
        return "decode" if piece.row.request_id in answered else "held"

    return [
        {
            "kind": "piece",
            "step": outcome.plan.step,
            "request": piece.row.request_id,
            "tokens": piece.num_tokens,
            "phase": phase(piece),
        }
        for forward in outcome.plan.forwards
        for piece in forward
    ]


def _step_row(step: StepRecord, roofline: Roofline | None) -> Row:
    return {
        "kind": "step",
        "step": step.step,
        "start_s": step.start_s,
        "end_s": step.end_s,
        "floor_s": step_floor(step, roofline),
        **{name: getattr(step, name) for name in COUNTS},
        **{f"{part}_s": step.parts_s.get(part, 0.0) for part in PARTS},
    }


def _gap_rows(log: RunLog) -> list[Row]:
    return [
        {"kind": "gap", "step": gap.step, "request": gap.request_id, "gap_s": gap.gap_s}
        for gap in metrics.incumbent_gaps(log)
    ]
