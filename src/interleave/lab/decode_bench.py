"""Decode steps in which every row holds the same context, of two engines in turn: launched and replayed.

Also what a step is set beside: as many layers with next to no width, which leaves launches and bookkeeping,
and the time to build a batch. Its floor is in `decode_floor`.
"""

from __future__ import annotations

import time
from dataclasses import replace

import torch

from interleave.engine.batched import Engine
from interleave.engine.build import build_engine
from interleave.engine.compilations import compilations
from interleave.engine.executor import BatchExecutor
from interleave.engine.recorded import buckets
from interleave.lab.point_table import Row
from interleave.model.batch import pack
from interleave.model.config import ModelConfig
from interleave.model.decoder import Decoder
from interleave.model.sources import default_ops
from interleave.model.weights import random_weights
from interleave.schedule.block_pool import need_blocks
from interleave.schedule.plan import Forward
from interleave.schedule.request import Request

ENGINES = ("chunked", "recorded")
WARM_STEPS = 3
CHUNK_BUDGET = 512
BLOCK_TOKENS = 64


def narrow(config: ModelConfig) -> ModelConfig:
    """As many layers, each of the least width that every kernel takes: a step with next to nothing to compute."""
    return replace(
        config,
        hidden_size=64,
        intermediate_size=64,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=64,
        vocab_size=256,
        name=f"{config.name}, narrow",
    )


def narrow_decoder(decoder: Decoder) -> Decoder:
    """Random weights in the narrow shape, of the same type and on the same device."""
    shape = narrow(decoder.config)
    weights = random_weights(shape, 0, decoder.dtype, str(decoder.device))
    return Decoder(shape, weights, default_ops(weights))


def decoding_engine(name: str, decoder: Decoder, rows: int, context: int, steps: int) -> Engine:
    """An engine all of whose rows have computed `context` positions and decode; room for so many steps."""
    new = steps + 3
    longest = context + new
    engine = build_engine(
        name,
        decoder,
        max_rows=rows,
        # Prompts first, with no room left beside a full chunk: decoding begins when all rows can.
        order="prefill_first",
        token_budget=max(CHUNK_BUDGET, rows + 1),
        chunk_budget=CHUNK_BUDGET,
        max_request_tokens=longest,
        block_tokens=BLOCK_TOKENS,
        num_blocks=rows * need_blocks(longest, BLOCK_TOKENS),
    )
    vocab = decoder.config.vocab_size
    for row in range(rows):
        engine.submit(Request(f"r{row}", [(row + token) % vocab for token in range(context)], new))
    while engine.step().decode_rows < rows:
        pass
    return engine


def step_rows(decoder: Decoder, rows: int, context: int, repeats: int) -> list[Row]:
    """One row for each step of each engine; the engines take turns, each first in every second round.

    step_s: the host's wall time until the tokens are read, and its parts: decode_s (eager: build the batch and
    launch or compute; recorded: replay), sample_s (head, choice and reading the tokens; recorded: waiting for
    them), host_s (the scheduler). pack_s: building that batch and planning attention, timed apart; eager only.
    compiled: versions that were compiled during all of these steps; kernels: of one replay, on a GPU.
    """
    engines = {name: decoding_engine(name, decoder, rows, context, WARM_STEPS + repeats) for name in ENGINES}
    for _ in range(WARM_STEPS):
        for engine in engines.values():
            engine.step()
    found: list[Row] = []
    with compilations() as count:
        for repeat in range(repeats):
            for name in ENGINES if repeat % 2 else reversed(ENGINES):
                found.append({"engine": name, "repeat": repeat, **_one_step(engines[name], rows)})
    kernels = num_kernels(engines["recorded"], rows) if decoder.device.type == "cuda" else None
    for engine in engines.values():
        engine.end_all("abort")
    return [{**row, "compiled": count.total, "kernels": kernels} for row in found]


def _one_step(engine: Engine, rows: int) -> Row:
    start = time.perf_counter()
    outcome = engine.step()
    step_s = time.perf_counter() - start
    if outcome.decode_rows != rows:
        raise RuntimeError(f"{outcome.decode_rows} of {rows} rows decode: the prompts are too uneven")
    parts = outcome.executed.parts_s
    (forward,) = outcome.plan.forwards
    return {
        "context": outcome.context_tokens / rows,
        "step_s": step_s,
        "decode_s": parts["decode"],
        "sample_s": parts["sample"],
        "host_s": step_s - parts["decode"] - parts["sample"],
        "pack_s": pack_s(engine, forward) if engine.name == "chunked" else None,
    }


def pack_s(engine: Engine, forward: Forward) -> float:
    """Seconds to build the arrays of a forward and to plan attention over it, once more."""
    executor = engine.executor
    assert isinstance(executor, BatchExecutor)
    start = time.perf_counter()
    batch = pack(forward, executor.layout.table, executor.cache.block_tokens, executor.decoder.device, False)
    executor.attention.plan(batch)
    return time.perf_counter() - start


def num_kernels(engine: Engine, rows: int) -> int | None:
    """Kernels of one replay on a GPU, counted while they are launched one by one; None where none is seen."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    assert isinstance(engine.executor, BatchExecutor)
    assert engine.executor.recorded is not None
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        engine.executor.recorded.compute_padding(rows)
        torch.cuda.synchronize()
    return sum(event.device_type == DeviceType.CUDA for event in profiler.events() or []) or None


def padding(count: int, max_rows: int) -> int:
    """Rows that a replay computes beyond the `count` that decode."""
    return min(size for size in buckets(max_rows) if size >= count) - count
