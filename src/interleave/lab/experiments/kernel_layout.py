"""Layouts of one attention call: rows apart, united in tiles, or in segments beside a chunk.

A point is one batch of decode rows, alone or beside a chunk of a prompt, attended in each layout in
turn, so that what is compared met the same machine. A call is one layer's: it writes the new keys and
values and attends. Layers take turns, so that a cache is cold as it is in a step. Does not draw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator

from interleave.engine.recording import Recording, recorder
from interleave.lab.device_times import timed
from interleave.lab.devices import num_threads, place
from interleave.lab.layout_calls import LAYOUTS, Call, layouts, make_call
from interleave.lab.layout_model import AttentionShape, mid_run_contexts, separate_rows, spread_contexts
from interleave.lab.machine_store import known_ceilings
from interleave.lab.measure import Point
from interleave.lab.point_table import Row
from interleave.model.config import ModelConfig
from interleave.model.config_hf import shipped_config
from interleave.model.sources import parse_dtype


class Params(BaseModel):
    """What a run of this experiment can choose."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    shape: Literal["smollm2-135m", "qwen2.5-1.5b", "tiny"] = Field(
        "smollm2-135m", description="shipped config whose heads are attended with"
    )
    dtype: Literal["fp32", "fp16", "bf16"] = Field("fp32", description="type of queries, keys and values")
    device: Literal["cpu", "cuda"] = Field("cpu", description="where the calls run")
    layers: int = Field(
        4,
        ge=1,
        le=64,
        description="caches that calls go through in turn",
        json_schema_extra={"unit": "layers"},
    )
    rows: tuple[Annotated[int, Field(ge=1, le=512)], ...] = Field(
        (1, 8, 32, 64), min_length=1, description="decode rows in a call", json_schema_extra={"unit": "rows"}
    )
    contexts: tuple[Annotated[int, Field(ge=1, le=32768)], ...] = Field(
        (128, 512),
        min_length=1,
        description="mean positions cached of a row",
        json_schema_extra={"unit": "tokens"},
    )
    spreads: tuple[Annotated[float, Field(ge=0, le=1)], ...] = Field(
        (0.0, 0.9),
        min_length=1,
        description="half the range of the lengths, as a share of their mean",
    )
    chunk: int = Field(
        128,
        ge=2,
        le=8192,
        description="prompt positions of the calls that have a chunk beside the decodes",
        json_schema_extra={"unit": "tokens"},
    )
    mix_scale: Literal[1, 2, 4, 8, 16] = Field(
        4, description="divides the contexts of the published mix of 32 rows"
    )
    repeats: int = Field(
        9, ge=1, le=200, description="calls of each layout that count", json_schema_extra={"unit": "calls"}
    )

    @model_validator(mode="after")
    def _computes_there(self) -> Params:
        if self.device == "cpu" and self.dtype != "fp32":
            raise ValueError(
                f"dtype {self.dtype} needs device cuda: on the cpu these layouts attend in fp32 only"
            )
        return self


PROFILES: dict[str, dict[str, Any]] = {
    "quick": {},
    "cpu": {"contexts": (128, 512, 1024), "spreads": (0.0, 0.5, 0.9), "chunk": 512, "mix_scale": 1},
    "gpu": {
        "shape": "qwen2.5-1.5b",
        "dtype": "fp16",
        "device": "cuda",
        "layers": 28,
        "rows": (8, 32, 128),
        "contexts": (1024,),
        "spreads": (0.0, 0.9),
        "chunk": 512,
        "mix_scale": 1,
        "repeats": 20,
    },
    "full": {
        "shape": "qwen2.5-1.5b",
        "dtype": "fp16",
        "device": "cuda",
        "layers": 28,
        "rows": (1, 8, 32, 128),
        "contexts": (256, 1024, 2048),
        "spreads": (0.0, 0.5, 0.9),
        "chunk": 512,
        "mix_scale": 1,
        "repeats": 56,
    },
}
MODULES = ("device_times", "layout_calls", "layout_model", "union_attention")
LESS_MEMORY = "lower `layers`, `rows` or `contexts`"


def points(params: Params) -> list[Point]:
    """The published mix, then each number of rows at each mean length and spread; alone, then with a chunk."""
    common = params.model_dump(mode="json", include={"shape", "dtype", "device", "layers", "repeats"})
    batches: list[tuple[str, list[int], int | None, float | None]] = [
        ("published mix", _mix(params.mix_scale), None, None)
    ]
    batches += [
        (f"{rows} rows of {mean}, spread {spread:g}", spread_contexts(rows, mean, spread), mean, spread)
        for mean in params.contexts
        for spread in params.spreads
        for rows in params.rows
        if rows > 1 or spread == params.spreads[0]
    ]
    return [
        Point(
            label if chunk == 0 else f"{label}, beside a chunk of {chunk}",
            {**common, "contexts": contexts, "mean": mean, "spread": spread, "chunk": chunk},
        )
        for label, contexts, mean, spread in batches
        for chunk in (0, params.chunk)
    ]


def _mix(scale: int) -> list[int]:
    return [max(1, context // scale) for context in mid_run_contexts()]


def estimate_s(params: Params) -> list[float]:
    """Seconds per point: the union tiles' arithmetic decides on a CPU, starting up on a GPU."""
    config = shipped_config(params.shape)
    rate = 2e13 if params.device == "cuda" else 5e10
    seconds = []
    for point in points(params):
        contexts, chunk = point.config["contexts"], point.config["chunk"]
        scored = min(32, len(contexts)) * sum(contexts) + 3 * chunk * chunk
        flops = 4 * scored * config.num_attention_heads * config.head_dim
        filling_s = params.layers * sum(contexts) * 2e-6
        seconds.append(0.2 + filling_s + (2 + params.repeats) * flops / rate)
    return seconds


def prepare(params: Params) -> ModelConfig:
    torch.set_num_threads(num_threads())
    return replace(shipped_config(params.shape), num_hidden_layers=params.layers)


def measure(point: Point, setting: ModelConfig, _earlier: Mapping[str, list[Row]]) -> list[Row]:
    """One row for each layout and repetition; the layouts take turns, after two rounds thrown away."""
    config = point.config
    contexts, chunk = config["contexts"], config["chunk"]
    call = make_call(setting, contexts, chunk, parse_dtype(config["dtype"]), config["device"])
    facts: Row = {
        "rows": len(contexts),
        "mean": config["mean"],
        "spread": config["spread"],
        "cached": sum(contexts),
        "longest": max(contexts),
        "chunk": chunk,
        "step_layers": shipped_config(config["shape"]).num_hidden_layers,
        "floor_s": _floor_s(call, contexts, chunk),
    }
    on_gpu = config["device"] == "cuda"
    run = layouts(call, "triton" if on_gpu else "cpu")
    layers = len(call.cache.k)
    passes = {name: _one_pass(run[name], layers) for name in LAYOUTS} if on_gpu else {}
    rows: list[Row] = []
    for repeat in range(-2, config["repeats"]):
        for name in LAYOUTS:
            if on_gpu:
                taken = timed(passes[name].replay, 1, "cuda")[0] / layers
            else:
                taken = timed(partial(run[name], repeat % layers), 1, "cpu")[0]
            if repeat >= 0:
                rows.append({"layout": name, **facts, "repeat": repeat, "call_s": taken})
    return rows


def _one_pass(call: Callable[[int], object], layers: int) -> Recording:
    """A call in every layer as one graph: kernels are compared, not how long Python takes to launch them."""

    def compute() -> None:
        for layer in range(layers):
            call(layer)

    return recorder(graphs=True)(compute)


def _floor_s(call: Call, contexts: Sequence[int], chunk: int) -> float | None:
    """Seconds that this machine needs at least for what is asked of one layer; None where its ceilings
    have not been measured (`interleave machine`)."""
    if call.q.device.type != "cpu":
        return None
    here = place("cpu")
    ceilings = known_ceilings(here.device, here.threads)
    if ceilings is None:
        return None
    _, heads, dim = call.q.shape
    shape = AttentionShape(heads, len(call.cache.k[0]), dim, call.q.element_size())
    work = separate_rows(shape, contexts)
    moved = work.distinct_bytes + chunk * shape.kv_heads * shape.position_bytes
    flops = work.useful_flops + 2 * heads * dim * chunk * (chunk + 1)
    return ceilings.floor_s(moved, flops)
