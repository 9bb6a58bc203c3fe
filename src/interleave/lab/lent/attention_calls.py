"""One attention call over rows of given lengths, in each layout: what the checks compare and the bench times."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from interleave.model.attention.tiles import cut_segments, unite_blocks
from interleave.model.batch import PackedBatch, pack
from interleave.model.config import ModelConfig
from interleave.model.kv_cache import KVCache
from interleave.schedule.plan import Piece
from interleave.schedule.request import Request
from interleave.schedule.row import Row

Call = Callable[[int], Tensor]
"""(layer) -> the context [n, heads, head_dim]; reads what is cached and writes nothing."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Rows over shuffled blocks of a full cache, and one query position or more of each."""

    cache: KVCache
    batch: PackedBatch
    q: Tensor

    @property
    def scale(self) -> float:
        return 1.0 / math.sqrt(self.q.shape[-1])


def scene(
    config: ModelConfig,
    rows: Sequence[tuple[int, int]],
    block_tokens: int,
    dtype: torch.dtype,
    device: str,
    seed: int = 0,
) -> Scene:
    """rows: (context, query positions) of each; keys, values and queries are normal numbers."""
    needs = [-(-context // block_tokens) for context, _ in rows]
    ids = list(range(sum(needs)))
    random.Random(seed).shuffle(ids)
    cache = KVCache(config, len(ids), block_tokens, dtype, device)
    generator = torch.Generator(device).manual_seed(seed)
    for numbers in (cache.k, cache.v):
        for layer in numbers:
            layer.normal_(generator=generator)
    pieces = []
    for (context, queries), need in zip(rows, needs, strict=True):
        own = [ids.pop() for _ in range(need)]
        pieces.append(
            Piece(Row(Request("r", range(context), 1), own, 0, context), context - queries, queries)
        )
    batch = pack(pieces, lambda row: row.blocks, block_tokens, device)
    shape = (len(batch.positions), config.num_attention_heads, config.head_dim)
    q = torch.empty(shape, dtype=dtype, device=device).normal_(generator=generator)
    return Scene(cache, batch, q)


def exact(found: Scene) -> Tensor:
    """The answer in float32, for layer 0."""
    from interleave.model.attention.reference import attend_one

    batch, size = found.batch, found.cache.block_tokens
    out = torch.empty(found.q.shape, dtype=torch.float32, device=found.q.device)
    for row in range(batch.num_rows):
        start, stop = int(batch.query_starts[row]), int(batch.query_starts[row + 1])
        context = int(batch.context_lens[row])
        at = torch.arange(context, device=found.q.device)
        blocks = torch.from_numpy(batch.tables[row]).to(found.q.device)
        slots = blocks[at // size] * size + at % size
        keys, values = found.cache.k[0][:, slots].float(), found.cache.v[0][:, slots].float()
        out[start:stop] = attend_one(found.q[start:stop].float(), keys, values, context)
    return out


def by_plan(found: Scene) -> Call:
    """The backend's own choice: separate rows for decodes, packed tiles for chunks, segments for both."""
    from interleave.model.attention.triton import TritonAttention

    attention = TritonAttention(found.cache)
    attention.plan(found.batch)
    return lambda layer: attention.attend.attend(layer, found.q)


def by_segments(found: Scene) -> Call:
    """One launch, whatever the batch holds; no segment spans two rows."""
    from interleave_kernels.segmented import NARROW, SPLIT, WIDE, segmented

    group = found.q.shape[1] // found.cache.k.shape[1]
    cut = cut_segments(found.batch, group, WIDE[found.q.element_size()], NARROW, SPLIT)
    segments, merges, tables = (_int32(x, found) for x in (cut.segments, cut.merges, found.batch.tables))

    def call(layer: int) -> Tensor:
        out = torch.empty_like(found.q)
        keys, values = found.cache.k[layer], found.cache.v[layer]
        parts = (segments, merges, cut.num_parts)
        segmented(found.q, keys, values, *parts, tables, found.cache.block_tokens, found.scale, out)
        return out

    return call


def by_union(found: Scene) -> Call:
    """Tiles of rows that walk the union of their blocks; every row decodes."""
    from interleave_kernels.union_tiles import QUERIES, union_tiles

    batch, size = found.batch, found.cache.block_tokens
    union = unite_blocks(batch.tables, batch.context_lens, size, QUERIES)
    contexts, starts, blocks, owners, positions = (
        _int32(x, found)
        for x in (batch.context_lens, union.tile_starts, union.blocks, union.owners, union.block_starts)
    )
    rows = torch.from_numpy(batch.query_starts[:-1]).to(found.q.device)

    def call(layer: int) -> Tensor:
        out = torch.empty_like(found.q)
        keys, values = found.cache.k[layer], found.cache.v[layer]
        lists = (contexts, starts, blocks, owners, positions)
        union_tiles(found.q, keys, values, rows, *lists, size, found.scale, out)
        return out

    return call


def _int32(numbers: object, found: Scene) -> Tensor:
    return torch.as_tensor(numbers).to(found.q.device, torch.int32)
