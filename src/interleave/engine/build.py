"""The ladder: each engine as a choice of policy, KV layout and executor."""

from __future__ import annotations

import math
from importlib.util import find_spec

import torch

from interleave.engine.batched import Engine, Executor
from interleave.engine.cached import CachedExecutor
from interleave.engine.executor import BatchExecutor
from interleave.engine.ladder import ENGINES, ladder_config
from interleave.engine.layouts import BlockLayout, SlotLayout
from interleave.engine.memory import default_pool_blocks, free_bytes, measure_transient
from interleave.engine.nocache import NoCacheExecutor
from interleave.engine.recorded import FIRST_MAXIMUM, RecordedDecode, line_bytes
from interleave.engine.warm_up import warm_up as rehearse
from interleave.model.attention.backend import Attention
from interleave.model.decoder import Decoder
from interleave.model.kv_cache import KVCache
from interleave.schedule.block_pool import BlockPool, need_blocks
from interleave.schedule.config import SchedulerConfig
from interleave.schedule.names import nearest
from interleave.schedule.scheduler import Scheduler
from interleave.schedule.tpot_target import TpotTarget

BACKENDS = ("cpu", "reference", "triton")


def build_engine(
    name: str,
    decoder: Decoder,
    *,
    max_rows: int = 32,
    chunk_budget: int | None = 512,
    max_chunk: int | None = None,
    token_budget: int | None = None,
    order: str | None = None,
    block_tokens: int = 64,
    backend: str | None = None,
    num_blocks: int | None = None,
    pool_gib: float | None = None,
    max_request_tokens: int | None = None,
    allocation: str = "reserve",
    poison_freed: bool = False,
    tpot: TpotTarget | None = None,
    recorded_tokens: int | None = None,
    warm_up: bool = True,
) -> Engine:
    """One engine of `ENGINES`, ready to serve.

    block_tokens, num_blocks, pool_gib: the block pool of the engines that have one; without a size
    it takes what memory leaves, up to what max_rows of the longest requests can use. (num_blocks says
    nothing to an engine whose cache follows from max_rows and max_request_tokens.)
    max_rows: `nocache` and `cached` always have one.
    max_request_tokens: longest prompt + generation budget (default and most: the model's positions);
    it is the slot width of `static` and `continuous`.
    allocation: when rows get their blocks, `reserve` or `progressive` (engines with a block pool).
    tpot: the chunk budget follows from a target for the time of a step (`chunked` and `mixed`).
    recorded_tokens: contexts that `recorded` records for at first; a longer one makes it record again.
    warm_up: first serve a rehearsal, so that no later step compiles; False leaves that, and recording, to
    the steps that need it.
    Raises ValueError, naming the value and what is allowed, for one that is wrong or that this engine
    cannot honour.
    """
    if name not in ENGINES:
        raise ValueError(nearest("engine", name, ENGINES))
    if backend is not None and backend not in BACKENDS:
        raise ValueError(nearest("attention backend", backend, BACKENDS))
    spec = ENGINES[name]
    _check_count("max_rows", max_rows)
    _check_count("block_tokens", block_tokens)
    if chunk_budget is not None:
        _check_count("chunk_budget", chunk_budget)
    if num_blocks is not None:
        _check_count("num_blocks", num_blocks)
    if spec.kv != "blocks" and pool_gib is not None:
        raise ValueError(f"pool_gib {pool_gib!r} does not apply to engine {name!r}: it has no block pool")
    if recorded_tokens is not None:
        _check_count("recorded_tokens", recorded_tokens)
        if not spec.recorded:
            raise ValueError(
                f"recorded_tokens {recorded_tokens} does not apply to engine {name!r}: it records nothing"
            )
    longest = _request_limit(decoder, max_request_tokens)
    config = ladder_config(
        name,
        order=order,
        chunk_budget=chunk_budget,
        max_chunk=max_chunk,
        token_budget=token_budget,
        max_rows=max_rows,
        max_request_tokens=longest,
        allocation=allocation,
    )
    executor: Executor
    if spec.kv in ("none", "one"):
        executor = NoCacheExecutor(decoder) if spec.kv == "none" else CachedExecutor(decoder)
        pool = BlockPool(1, longest)
    else:
        spare = 1 if spec.recorded else 0
        if spec.kv == "slots":
            num_blocks, block_tokens = max_rows, longest
        else:
            num_blocks = _pool_blocks(decoder, config, block_tokens, num_blocks, pool_gib, spare)
        pool = BlockPool(num_blocks, block_tokens)
        cache = KVCache(decoder.config, num_blocks + spare, block_tokens, decoder.dtype, decoder.device)
        layout = SlotLayout() if spec.kv == "slots" else BlockLayout()
        attention = attention_backend(backend, cache)
        recorded = None
        if spec.recorded:
            recorded = RecordedDecode(
                decoder,
                cache,
                attention,
                max_rows=max_rows,
                longest_request=longest,
                first_maximum=recorded_tokens or FIRST_MAXIMUM,
            )
        executor = BatchExecutor(decoder, cache, layout, attention, poison_freed, recorded)
    engine = Engine(name, Scheduler(config, pool, tpot=tpot), executor, decoder.config.vocab_size)
    if warm_up:
        rehearse(engine, longest)
    return engine


def _check_count(name: str, value: object) -> None:
    """ValueError for a count below 1, also where the engine makes no use of it."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")


def attention_backend(name: str | None, cache: KVCache) -> Attention:
    """A backend of `BACKENDS` over `cache`; None picks the fast one of the device where there is one."""
    if name is None:
        name = _default_backend(cache)
    if name == "reference":
        from interleave.model.attention.reference import ReferenceAttention

        return ReferenceAttention(cache)
    if name == "cpu":
        from interleave.model.attention.cpu import CpuAttention
        from interleave.model.attention.simd import SimdAttention
        from interleave.model.ops.simd import usable

        return SimdAttention(cache) if usable(cache.k) else CpuAttention(cache)
    if name == "triton":
        if find_spec("triton") is None:
            raise ValueError(
                "attention backend 'triton' needs the package triton, which is not installed here"
            )
        from interleave.model.attention.triton import TritonAttention

        return TritonAttention(cache)
    raise ValueError(nearest("attention backend", name, BACKENDS))


def _default_backend(cache: KVCache) -> str:
    if cache.k.device.type == "cuda" and find_spec("triton") is not None:
        return "triton"
    return "cpu" if cache.k.device.type == "cpu" and cache.k.dtype == torch.float32 else "reference"


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _request_limit(decoder: Decoder, wanted: int | None) -> int:
    most = decoder.config.max_position_embeddings
    if wanted is None:
        return most
    if not isinstance(wanted, int) or isinstance(wanted, bool) or not 1 <= wanted <= most:
        raise ValueError(
            f"max_request_tokens must lie between 1 and the model's {most} positions, got {wanted!r}"
        )
    return wanted


def _pool_blocks(
    decoder: Decoder,
    config: SchedulerConfig,
    block_tokens: int,
    num_blocks: int | None,
    pool_gib: float | None,
    spare: int,
) -> int:
    """Blocks that the scheduler may grant; the cache holds `spare` more, which count as pool_gib."""
    if num_blocks is not None and pool_gib is not None:
        raise ValueError(f"give num_blocks ({num_blocks}) or pool_gib ({pool_gib}), not both")
    if num_blocks is not None:
        return num_blocks
    factor = decoder.config.kv_bytes_per_token_factor
    block_bytes = factor * decoder.weights.embed.element_size() * block_tokens
    if pool_gib is not None:
        if not (_is_number(pool_gib) and pool_gib * 2**30 >= (1 + spare) * block_bytes):
            raise ValueError(
                f"pool_gib must hold at least {1 + spare} block{'s' if spare else ''} of {block_bytes} bytes and be "
                "finite, "
                f"got {pool_gib!r}"
            )
        if pool_gib * 2**30 > (room := free_bytes(decoder.device)):
            raise ValueError(f"pool_gib {pool_gib!r} is more than the {room / 2**30:.1f} GiB that are free")
        return int(pool_gib * 2**30) // block_bytes - spare
    longest = config.max_request_tokens or decoder.config.max_position_embeddings
    wanted = config.max_rows * need_blocks(longest, block_tokens)
    taken = _worst_transient(decoder, config, longest) + spare * block_bytes
    if spare:
        taken += _recorded_bytes(decoder, config, longest, block_tokens)
    return default_pool_blocks(decoder, block_bytes, wanted, taken)


def _recorded_bytes(decoder: Decoder, config: SchedulerConfig, longest: int, block_tokens: int) -> int:
    """Bytes that recorded decode keeps: its lines, and on a GPU the graphs' own temporary memory."""
    rows = config.max_rows
    hidden_bytes = decoder.config.hidden_size * decoder.weights.embed.element_size()
    lines = rows * line_bytes(longest, block_tokens, hidden_bytes)
    graphs = measure_transient(decoder, rows, rows) if decoder.device.type == "cuda" else 0
    return lines + (graphs or 0)


def _worst_transient(decoder: Decoder, config: SchedulerConfig, longest: int) -> int:
    """Bytes that the largest forward this scheduler can plan adds; 0 where memory can't be measured."""
    rows, all_prompts = config.max_rows, config.max_rows * longest
    budget = config.chunk_budget or all_prompts
    if config.policy == "padded":
        # The whole group at once, with the throwaway keys and values of every layer.
        size = decoder.weights.embed.element_size()
        dense = decoder.config.kv_bytes_per_token_factor * size * all_prompts
        masks = rows * longest * longest * (size + 2)  # the additive mask and the booleans it is made of
        return dense + masks + (measure_transient(decoder, all_prompts, rows) or 0)
    largest = max(budget, longest) if config.policy == "whole" else min(budget, all_prompts)
    return measure_transient(decoder, largest + rows, rows) or 0
