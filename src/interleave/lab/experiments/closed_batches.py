"""Closed batches: every rung of the ladder on the same requests, all of them there from the start.

A point is one engine on one batch. Its rows are the recorded runs, each with wall time, first
tokens, gaps, where the time went and what was padded and copied. Does not draw.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import statistics
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

import torch
from pydantic import Field, model_validator

from interleave.engine.build import build_engine
from interleave.engine.ladder import ladder_config
from interleave.engine.loop import serve
from interleave.engine.memory import PeakMemory
from interleave.engine.records import RunLog
from interleave.lab import metrics
from interleave.lab.choices import CPU_PROFILE, GPU_PROFILE, WorkloadChoices
from interleave.lab.devices import num_threads
from interleave.lab.floor_columns import floor_columns
from interleave.lab.machine_store import known_roofline
from interleave.lab.measure import Point
from interleave.lab.point_table import Row
from interleave.lab.roofline import Roofline
from interleave.lab.serving import engine_settings, model_corpus, serve_checked, touch_pool, trace_engine
from interleave.lab.trace import Trace
from interleave.lab.workload import (
    requests_from_trace,
    scaled_block_tokens,
    scaled_chunk_budget,
    workload,
)
from interleave.model.sources import LoadedModel, load_model
from interleave.schedule.request import Request

EngineName = Literal[
    "nocache", "cached", "static", "continuous", "paged", "whole", "chunked", "mixed", "recorded"
]
LADDER: tuple[EngineName, ...] = get_args(EngineName)
BASELINES = ("nocache", "cached")  # one request at a time: run once, on the smallest mixed batch
PARTS = ("prefill", "decode", "mixed", "copy", "sample", "host")
COPY_PROBE_BYTES = 64 * 2**20


class Params(WorkloadChoices):
    """What a run of this experiment can choose."""

    batches: tuple[Literal["mixed", "uniform"], ...] = Field(
        ("mixed", "uniform"), min_length=1, description="lengths of the published draw, or all alike"
    )
    rows: tuple[Annotated[int, Field(ge=2, le=64)], ...] = Field(
        (8,), min_length=1, description="batch sizes", json_schema_extra={"unit": "requests"}
    )
    engines: tuple[EngineName, ...] = Field(
        ("nocache", "cached", "static", "continuous", "paged", "whole", "chunked", "mixed"),
        min_length=1,
        description="engines to compare",
    )
    chunk_budget: int | None = Field(
        None,
        ge=1,
        le=8192,
        description="prompt positions in a step; null takes 512 / scale",
        json_schema_extra={"unit": "tokens"},
    )
    warmup_runs: int = Field(
        1, ge=0, le=10, description="runs thrown away", json_schema_extra={"unit": "runs"}
    )
    recorded_runs: int = Field(3, ge=1, le=50, description="runs kept", json_schema_extra={"unit": "runs"})
    seed: int = Field(0, ge=0, lt=2**63, description="of the draw and the prompts; 0 is the published draw")

    @model_validator(mode="after")
    def _somebody_serves_a_batch(self) -> Params:
        if set(self.engines) <= set(BASELINES):
            raise ValueError(
                f"engines must name one that serves a batch, got {', '.join(self.engines)}: choose also from "
                f"{', '.join(name for name in LADDER if name not in BASELINES)}"
            )
        return self


PROFILES: dict[str, dict[str, Any]] = {
    "quick": {},
    "cpu": {**CPU_PROFILE, "rows": (8, 32), "engines": LADDER, "warmup_runs": 2, "recorded_runs": 5},
    "gpu": {
        **GPU_PROFILE,
        "rows": (32,),
        "engines": ("paged", "chunked", "mixed", "recorded", "continuous"),
        "warmup_runs": 1,
        "recorded_runs": 3,
    },
    "full": {
        **GPU_PROFILE,
        "rows": (8, 32),
        "engines": LADDER,
        "warmup_runs": 2,
        "recorded_runs": 5,
    },
}
LESS_MEMORY = "lower `rows`, or raise `scale`"
MODULES = ("floor_columns", "roofline")


@dataclass(frozen=True, slots=True)
class Setting:
    """What measuring needs; copy_bytes_per_s is this device's own plain copy. roofline: of this machine,
    None where `interleave machine` has not measured it."""

    model: LoadedModel
    tokens: Sequence[int]
    copy_bytes_per_s: float
    roofline: Roofline | None = None


def points(params: Params) -> list[Point]:
    """Every engine on every batch; the baselines on the smallest mixed batch only, once."""
    found = []
    for rows in params.rows:
        for batch in params.batches:
            for engine in params.engines:
                alone = engine in BASELINES
                if alone and (batch != "mixed" or rows != min(params.rows)):
                    continue
                found.append(_point(params, batch, rows, engine, alone))
    return found


def _point(params: Params, batch: str, rows: int, engine: str, alone: bool) -> Point:
    config = params.model_dump(mode="json", exclude={"batches", "engines", "warmup_runs", "recorded_runs"})
    chunk_budget = params.chunk_budget or scaled_chunk_budget(params.scale)
    config |= {
        "batch": batch,
        "rows": rows,
        "engine": engine,
        # None where the engine has no use for it, so that another budget leaves its point as it is.
        "chunk_budget": ladder_config(engine, chunk_budget=chunk_budget).chunk_budget,
        "warmup_runs": 0 if alone else params.warmup_runs,
        "recorded_runs": 1 if alone else params.recorded_runs,
    }
    trace = _trace(config)
    return Point(f"{engine}, {batch}{rows}", {**config, "trace": trace.sha256}, params.seed, trace.sha256)


def _trace(config: Mapping[str, Any]) -> Trace:
    return workload(
        f"{config['batch']}{8 if config['rows'] <= 8 else 32}",
        scale=config["scale"],
        num_requests=config["rows"],
        seed=config["seed"],
    )


def estimate_s(params: Params) -> list[float]:
    """Seconds per point on two CPU cores (or a GPU): positions computed and steps taken."""
    position_s, step_s = (0.00002, 0.03) if params.device == "cuda" else (0.0025, 0.05)
    seconds = []
    for point in points(params):
        config, trace = point.config, _trace(point.config)
        longest = max(row.new_tokens for row in trace.rows)
        widest = max(row.prompt_tokens for row in trace.rows)
        steps, positions = longest, trace.num_prompt_tokens
        if config["engine"] == "nocache":
            positions = sum(row.new_tokens * (row.prompt_tokens + row.new_tokens // 2) for row in trace.rows)
        elif config["engine"] == "cached":
            steps = trace.num_new_tokens
        elif config["engine"] in ("static", "continuous", "paged"):
            positions = widest * len(trace)
        elif config["engine"] in ("chunked", "mixed", "recorded"):
            steps += trace.num_prompt_tokens // config["chunk_budget"]
        runs = config["warmup_runs"] + config["recorded_runs"]
        seconds.append(runs * (positions * position_s + steps * step_s))
    return seconds


def prepare(params: Params) -> Setting:
    torch.set_num_threads(num_threads())
    model = load_model(params.model, params.dtype, params.device)
    copy_bytes_per_s = copy_bandwidth(params.device)
    setting = Setting(model, model_corpus(model), copy_bytes_per_s, known_roofline(model.decoder))
    for engine in ("cached", "paged", "chunked"):  # whatever a library sets up once must not look like a peak
        requests = [Request(f"r{i}", setting.tokens[:48], 3) for i in range(2)]
        serve(build_engine(engine, model.decoder, max_rows=2, max_request_tokens=64), requests)
    return setting


def copy_bandwidth(device: str) -> float:
    """Bytes per second of a plain copy of a large array, the best of five."""
    source = torch.ones(COPY_PROBE_BYTES, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    seconds = []
    for _ in range(5):
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        target.copy_(source)
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return COPY_PROBE_BYTES / min(seconds)


def measure(point: Point, setting: Setting, _earlier: Mapping[str, list[Row]]) -> list[Row]:
    """One row per recorded run."""
    config = point.config
    trace = _trace(config)
    requests = requests_from_trace(trace, setting.tokens, config["seed"])
    engine = trace_engine(
        config["engine"],
        setting.model,
        trace,
        max_rows=config["rows"],
        chunk_budget=config["chunk_budget"],
        block_tokens=scaled_block_tokens(config["scale"]),
    )
    pool_bytes = touch_pool(engine)
    for _ in range(config["warmup_runs"]):
        serve(engine, requests)
    logs: list[RunLog] = []
    peaks: list[int] = []
    for _ in range(config["recorded_runs"]):
        _give_back_free_memory()
        with PeakMemory(setting.model.decoder.device) as peak:
            logs.append(serve_checked(engine, requests))
        peaks += [] if peak.peak_bytes is None else [peak.peak_bytes]
    memory = {
        "weight_bytes": setting.model.decoder.weight_bytes,
        "pool_bytes": pool_bytes,
        "peak_transient_bytes": max(peaks, default=None),
        "kv_bytes_per_token": setting.model.config.kv_bytes_per_token_factor
        * setting.model.decoder.weights.embed.element_size(),
        "copy_bytes_per_s": setting.copy_bytes_per_s,
    }
    chosen = engine_settings(engine)
    code = {"attention": chosen["attention"], "linear": chosen["linear"]}
    return [
        {**_run_row(log, number, config), **memory, **code, **floor_columns(log.steps, setting.roofline)}
        for number, log in enumerate(logs)
    ]


def _run_row(log: RunLog, number: int, config: Mapping[str, Any]) -> Row:
    gaps_s = [gap.gap_s for gap in metrics.incumbent_gaps(log)]
    first_tokens_s = [record.token_times_s[0] for record in log.requests]
    last_token_s = max(record.token_times_s[-1] for record in log.requests)
    decoded = sum(len(record.tokens) - 1 for record in log.requests)
    parts_s: Counter[str] = Counter()
    for step in log.steps:
        parts_s.update(step.parts_s)
    outputs = "\n".join(" ".join(map(str, record.tokens)) for record in log.requests)
    return {
        "batch": config["batch"],
        "rows": config["rows"],
        "engine": config["engine"],
        "run": number,
        "wall_s": log.wall_s,
        "decode_rate": decoded / (last_token_s - min(first_tokens_s)),
        "ttft_p50_s": statistics.median(first_tokens_s),
        "ttft_max_s": max(first_tokens_s),
        "gap_p50_s": statistics.median(gaps_s) if gaps_s else None,
        "worst_gap_s": max(gaps_s, default=None),
        "steps": len(log.steps),
        "forwards": sum(step.forwards for step in log.steps),
        "prompt_tokens": sum(step.prefill_tokens for step in log.steps),
        "decode_tokens": sum(step.decode_rows for step in log.steps),
        "padded_tokens": sum(step.padded_tokens for step in log.steps),
        "copied_tokens": sum(step.copied_tokens for step in log.steps),
        **{f"{part}_s": parts_s.get(part, 0.0) for part in PARTS},
        "tokens_sha256": hashlib.sha256(outputs.encode()).hexdigest(),
    }


def _give_back_free_memory() -> None:
    """Let glibc return what it keeps for later, or a second run's peak would hide in it."""
    with contextlib.suppress(OSError, AttributeError):  # another C library: later peaks read low
        ctypes.CDLL("libc.so.6").malloc_trim(0)
