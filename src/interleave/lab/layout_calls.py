"""One attention call over decode rows, and a chunk of a prompt where asked, in each of three layouts.

The only place where rows are put into tiles as an engine would not put them. It imports the kernels,
lazily: on a CPU the layouts are the engine's own backend and a masked call of torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from interleave.engine.build import attention_backend
from interleave.lab.union_attention import UnionAttention
from interleave.model.attention.tiles import cut_segments, unite_blocks
from interleave.model.batch import PackedBatch, pack
from interleave.model.config import ModelConfig
from interleave.model.kv_cache import KVCache
from interleave.schedule.plan import Piece
from interleave.schedule.request import Request
from interleave.schedule.row import Row

LAYOUTS = ("separate", "union", "segmented")
BLOCK_TOKENS = 64


class Attends(Protocol):
    """The part of an attention backend that a layout needs."""

    def plan(self, batch: PackedBatch) -> None: ...
    def run(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class Call:
    """One layer's queries and new keys and values, and the batches that say where they belong.

    decodes and chunk index the packed positions; everything is in `together`, the parts in batches of
    their own. q [n, heads, dim]; k, v [n, kv_heads, dim]. Without a chunk, `chunked` is None.
    """

    cache: KVCache
    together: PackedBatch
    decoding: PackedBatch
    chunked: PackedBatch | None
    q: Tensor
    k: Tensor
    v: Tensor


def make_call(
    config: ModelConfig, contexts: Sequence[int], chunk: int, dtype: torch.dtype, device: str
) -> Call:
    """Rows with cached positions of random numbers, their blocks in order; a chunk without a history."""
    needs = [-(-length // BLOCK_TOKENS) for length in (*contexts, chunk)]
    starts = [sum(needs[:index]) for index in range(len(needs))]
    cache = KVCache(config, sum(needs), BLOCK_TOKENS, dtype, device)
    generator = torch.Generator(device).manual_seed(0)
    for numbers in (*cache.k, *cache.v):
        numbers.normal_(generator=generator)
    pieces = []
    for number, length in enumerate((*contexts, chunk)):
        if length == 0:
            continue
        blocks = list(range(starts[number], starts[number] + needs[number]))
        row = Row(Request(f"r{number}", range(length), 1), blocks, 0, length)
        count = 1 if number < len(contexts) else chunk
        pieces.append(Piece(row, length - count, count))

    def packed(some: Sequence[Piece]) -> PackedBatch:
        return pack(some, lambda row: row.blocks, BLOCK_TOKENS, device)

    n, dim = len(contexts) + chunk, config.head_dim
    q, k, v = (
        torch.randn(n, heads, dim, generator=generator, device=device).to(dtype)
        for heads in (config.num_attention_heads, config.num_key_value_heads, config.num_key_value_heads)
    )
    decodes, rest = pieces[: len(contexts)], pieces[len(contexts) :]
    return Call(cache, packed(pieces), packed(decodes), packed(rest) if rest else None, q, k, v)


Attend = Callable[[int], Tensor]
"""Attention of one layer of a call: [n, heads, dim]."""


def layouts(call: Call, backend: str) -> dict[str, Attend]:
    """Each layout as a callable, planned already, by `cpu` or `triton`.

    With a chunk, `separate` and `union` take two calls. The CPU backend goes through decode rows and
    chunks in one launch as it is; of decode rows alone its `separate` and `segmented` are the same code.
    """
    cache = call.cache
    if backend == "triton":
        union: Attends = _UnionKernel(cache)
        together: Attends = _SegmentedKernel(cache)
    else:
        union = UnionAttention(cache)
        together = attention_backend(backend, cache)
    together.plan(call.together)
    return {
        "separate": _in_two(call, attention_backend(backend, cache), attention_backend(backend, cache)),
        "union": _in_two(call, union, attention_backend(backend, cache)),
        "segmented": lambda layer: together.run(layer, call.q, call.k, call.v),
    }


def _in_two(call: Call, decodes: Attends, chunk: Attends) -> Attend:
    """The decode rows by one backend, then the chunk, where there is one, by another."""
    count = call.decoding.num_rows
    decodes.plan(call.decoding)
    if call.chunked is not None:
        chunk.plan(call.chunked)

    def attend(layer: int) -> Tensor:
        first = decodes.run(layer, call.q[:count], call.k[:count], call.v[:count])
        if call.chunked is None:
            return first
        return torch.cat((first, chunk.run(layer, call.q[count:], call.k[count:], call.v[count:])))

    return attend


class _UnionKernel:
    """The kernel `union_tiles` behind an attention backend's interface; decode rows only."""

    name = "union"

    def __init__(self, cache: KVCache) -> None:
        self.cache = cache

    def plan(self, batch: PackedBatch) -> None:
        from interleave_kernels.union_tiles import QUERIES

        union = unite_blocks(batch.tables, batch.context_lens, batch.block_tokens, QUERIES)
        device = self.cache.k.device
        self._slots = batch.slots
        self._rows = torch.from_numpy(batch.query_starts[:-1]).to(device)
        lists = (batch.context_lens, union.tile_starts, union.blocks, union.owners, union.block_starts)
        self._lists = [torch.from_numpy(x).to(device, torch.int32) for x in lists]

    def run(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        from interleave_kernels.kv_write import kv_write
        from interleave_kernels.union_tiles import union_tiles

        keys, values, size = self.cache.k[layer], self.cache.v[layer], self.cache.block_tokens
        kv_write(k, v, self._slots, keys, values)
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
        contexts, tile_starts, blocks, owners, begins = self._lists
        scale = 1.0 / math.sqrt(q.shape[-1])
        union_tiles(
            q, keys, values, self._rows, contexts, tile_starts, blocks, owners, begins, size, scale, out
        )
        return out


class _SegmentedKernel:
    """The kernel `segmented` whatever a batch holds; the backend takes it for mixed ones only."""

    name = "segmented"

    def __init__(self, cache: KVCache) -> None:
        self.cache = cache

    def plan(self, batch: PackedBatch) -> None:
        self._batch = batch
        self._lists: tuple[Tensor, Tensor, int, Tensor] | None = None  # the group of heads is told by q

    def run(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        from interleave_kernels.kv_write import kv_write
        from interleave_kernels.segmented import NARROW, SPLIT, WIDE, segmented

        keys, values, size = self.cache.k[layer], self.cache.v[layer], self.cache.block_tokens
        if self._lists is None:
            cut = cut_segments(self._batch, q.shape[1] // len(keys), WIDE[q.element_size()], NARROW, SPLIT)
            segments, merges, tables = (
                torch.from_numpy(x).to(q.device, torch.int32)
                for x in (cut.segments, cut.merges, self._batch.tables)
            )
            self._lists = segments, merges, cut.num_parts, tables
        kv_write(k, v, self._batch.slots, keys, values)
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
        segments, merges, num_parts, tables = self._lists
        scale = 1.0 / math.sqrt(q.shape[-1])
        segmented(q, keys, values, segments, merges, num_parts, tables, size, scale, out)
        return out
