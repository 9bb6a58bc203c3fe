"""Decode steps of all rows at equal context: launched kernel by kernel, and replayed, beside their floor.

The floor: the bytes of the weights as stored and of the keys and values read, over the read bandwidth
measured here, plus the number of replayed kernels times the time of an empty one. A point is one
number of rows on one engine.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from interleave.engine.batched import Engine
from interleave.engine.build import build_engine
from interleave.engine.compilations import compilations
from interleave.engine.executor import BatchExecutor
from interleave.engine.recording import recorder
from interleave.lab.device_times import timed
from interleave.lab.lent.choices import Choices
from interleave.lab.measure import Point
from interleave.lab.point_table import Row
from interleave.model.sources import LoadedModel, load_model
from interleave.schedule.block_pool import need_blocks
from interleave.schedule.request import Request

MODULES = ("device_times",)
ENGINES = ("chunked", "recorded")
EMPTY_KERNELS = 1000
WARM_STEPS = 3
CHUNK_BUDGET = 512


@dataclass(frozen=True, slots=True)
class Setting:
    """read_bytes_per_s: streaming a large array; empty_kernel_s: of one replayed in a graph, None without."""

    model: LoadedModel
    read_bytes_per_s: float
    empty_kernel_s: float | None


def points(params: Choices) -> list[Point]:
    chosen = params.config("dtype", "context", "repeats", "block_tokens")
    return [
        Point(f"{engine}, {rows} rows", chosen | {"rows": rows, "engine": engine})
        for rows in params.rows
        for engine in ENGINES
    ]


def estimate_s(params: Choices) -> list[float]:
    """Mostly the prompts that give every row its context, and building the engine."""
    per_row = 0.03 if params.device == "cuda" else 0.3
    return [3.0 + per_row * point.config["rows"] for point in points(params)]


def prepare(params: Choices) -> Setting:
    source = f"dummy:{params.model}"
    model = load_model(source, params.dtype, params.device)
    return Setting(model, read_bandwidth(params.device), empty_kernel_s(params.device))


def read_bandwidth(device: str) -> float:
    """Bytes per second of a sum over an array larger than any cache, the best of ten."""
    size = 2**30 if device == "cuda" else 2**24
    source = torch.ones(size, dtype=torch.float32, device=device)
    source.sum()
    return 4 * size / min(timed(source.sum, 10, device))


def empty_kernel_s(device: str) -> float | None:
    """Seconds of a kernel of one thread among many like it, replayed as one graph."""
    if device != "cuda":
        return None
    one = torch.zeros(1, device=device)

    def many() -> None:
        for _ in range(EMPTY_KERNELS):
            one.add_(1.0)

    recording = recorder(graphs=True)(many)
    recording.replay()
    return min(timed(recording.replay, 10, device)) / EMPTY_KERNELS


def measure(point: Point, setting: Setting, _earlier: Mapping[str, list[Row]]) -> list[Row]:
    """Wall seconds of a step, tokens read: median and range; the floor, and what the step is of it."""
    config, model = point.config, setting.model
    rows, context, repeats = config["rows"], config["context"], config["repeats"]
    new = WARM_STEPS + repeats + 3
    longest = context + new
    engine = build_engine(
        config["engine"],
        model.decoder,
        max_rows=rows,
        # Prompts first, with no room left beside a full chunk: decoding begins when all rows can.
        order="prefill_first",
        token_budget=max(CHUNK_BUDGET, rows + 1),
        chunk_budget=CHUNK_BUDGET,
        max_request_tokens=longest,
        block_tokens=config["block_tokens"],
        num_blocks=rows * need_blocks(longest, config["block_tokens"]),
        backend=config["backend"],
    )
    vocab = model.config.vocab_size
    for row in range(rows):
        engine.submit(Request(f"r{row}", [(row + token) % vocab for token in range(context)], new))
    seconds, compiled, contexts = _step_times(engine, rows, repeats)
    weights = model.decoder.step_weight_bytes
    kv_bytes = contexts * model.config.kv_bytes_per_token_factor * model.decoder.weights.embed.element_size()
    bytes_floor_s = (weights + kv_bytes) / setting.read_bytes_per_s
    kernels = _num_kernels(engine, rows) if config["device"] == "cuda" else None
    launch_s = kernels * setting.empty_kernel_s if kernels and setting.empty_kernel_s else None
    step_s = statistics.median(seconds)
    floor_s = bytes_floor_s + (launch_s or 0.0)
    return [
        {
            "engine": config["engine"],
            "rows": rows,
            "context": context,
            "step_s": step_s,
            "step_min_s": min(seconds),
            "step_max_s": max(seconds),
            "n": len(seconds),
            "compiled": compiled,
            "weight_bytes": weights,
            "kv_bytes": kv_bytes,
            "read_bytes_per_s": setting.read_bytes_per_s,
            "empty_kernel_s": setting.empty_kernel_s,
            "kernels": kernels,
            "bytes_floor_s": bytes_floor_s,
            "floor_s": floor_s,
            "of_bytes_floor": step_s / bytes_floor_s,
            "of_floor": step_s / floor_s,
        }
    ]


def _step_times(engine: Engine, rows: int, repeats: int) -> tuple[list[float], int, int]:
    """Seconds of each step in which all rows decode, versions compiled in them, positions read in a step."""
    while engine.step().decode_rows < rows:
        pass
    for _ in range(WARM_STEPS):
        engine.step()
    seconds, contexts = [], 0
    with compilations() as count:
        for _ in range(repeats):
            start = time.perf_counter()
            outcome = engine.step()
            seconds.append(time.perf_counter() - start)
            contexts += outcome.context_tokens
            if outcome.decode_rows != rows:
                raise RuntimeError(f"{outcome.decode_rows} of {rows} rows decode: the prompts are too uneven")
    for request_id in engine.scheduler.live_ids:
        engine.abort(request_id)
    return seconds, count.total, contexts // repeats


def _num_kernels(engine: Engine, rows: int) -> int | None:
    """Kernels of one replay, counted while they are launched one by one; None for what records nothing."""
    assert isinstance(engine.executor, BatchExecutor)
    recorded = engine.executor.recorded
    if recorded is None:
        return None
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        recorded.compute_padding(rows)
        torch.cuda.synchronize()
    return sum(event.device_type == DeviceType.CUDA for event in profiler.events() or []) or None
