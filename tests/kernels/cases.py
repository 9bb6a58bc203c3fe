"""Rows over scattered blocks in poisoned memory, what each kernel makes of them, and the exact answer."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from bounds import STEPS
from torch import Tensor

from interleave.model.attention.tiles import cut_segments, unite_blocks
from interleave.model.attention.triton import TritonAttention
from interleave.model.batch import PackedBatch, pack
from interleave.model.config import ModelConfig
from interleave.model.kv_cache import KVCache
from interleave.schedule.plan import Piece
from interleave.schedule.request import Request
from interleave.schedule.row import Row
from interleave_kernels.segmented import NARROW, WIDE, segmented
from interleave_kernels.union_tiles import QUERIES, union_tiles


@dataclass
class Case:
    """rows: (context, query positions) of each. `exact` and `weight` are float64 [n, heads, head_dim]:
    the answer, and the same with every value taken absolutely, which is what rounding scales with."""

    cache: KVCache
    batch: PackedBatch
    q: Tensor
    k: Tensor
    v: Tensor
    exact: Tensor
    weight: Tensor

    def check(self, got: Tensor, dtype: torch.dtype) -> None:
        """Half a step for the weights' rounding and half for the result's, a fifth on top; in float32
        the products' own rounding outweighs both."""
        assert not got.isnan().any()
        steps = 8.0 if dtype == torch.float32 else 0.6
        bound = steps * STEPS[dtype] * (self.exact.abs() + self.weight)
        excess = ((got.double() - self.exact).abs() / bound).max()
        assert float(excess) <= 1.0, f"{float(excess):.2f} times the bound"


def make(
    rows: Sequence[tuple[int, int]],
    *,
    group: int = 3,
    kv_heads: int = 2,
    head_dim: int = 16,
    block_tokens: int = 16,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    walk_widest: bool = False,
    seed: int = 0,
) -> Case:
    """History in the cache, new positions in q, k and v; everything that nobody wrote is NaN."""
    random_ids, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    needs = [-(-context // block_tokens) for context, _ in rows]
    ids = list(range(sum(needs) + 2))
    random_ids.shuffle(ids)
    heads = group * kv_heads
    config = ModelConfig(8, 8, 8, 1, heads, kv_heads, head_dim, 1e-5, 1e4, 8192, True, False)
    cache = KVCache(config, len(ids), block_tokens, dtype, device)
    cache.k.fill_(math.nan)
    cache.v.fill_(math.nan)
    pieces, new, exact, weight = [], [], [], []
    for (context, queries), need in zip(rows, needs, strict=True):
        blocks = [ids.pop() for _ in range(need)]
        row = Row(Request("r", range(context), 1), blocks, 0, context)
        pieces.append(Piece(row, context - queries, queries))
        k, v = torch.randn(2, context, kv_heads, head_dim, generator=generator).to(dtype)
        q = torch.randn(queries, heads, head_dim, generator=generator).to(dtype)
        positions = torch.arange(context - queries)
        slots = torch.tensor(blocks)[positions // block_tokens] * block_tokens + positions % block_tokens
        cache.k[0][:, slots] = k[: context - queries].transpose(0, 1).to(device)
        cache.v[0][:, slots] = v[: context - queries].transpose(0, 1).to(device)
        new.append((q, k[context - queries :], v[context - queries :]))
        answer = _exact(q, k, v)
        exact.append(answer[0])
        weight.append(answer[1])
    # As views of a fused product, as a decoder makes them.
    fused = torch.cat([torch.cat(parts, dim=1) for parts in new]).to(device)
    q, k, v = fused.split([heads, kv_heads, kv_heads], dim=1)
    batch = pack(pieces, lambda row: row.blocks, block_tokens, device, walk_widest)
    return Case(cache, batch, q, k, v, torch.cat(exact).to(device), torch.cat(weight).to(device))


def _exact(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    n, heads, dim = q.shape
    group = heads // k.shape[1]
    keys, values = (x.double().repeat_interleave(group, dim=1) for x in (k, v))
    scores = torch.einsum("qhd,chd->hqc", q.double(), keys) / math.sqrt(dim)
    later = torch.arange(len(k)) > torch.arange(len(k) - n, len(k))[:, None]
    weights = scores.masked_fill(later, -math.inf).softmax(-1)
    return torch.einsum("hqc,chd->qhd", weights, values), torch.einsum("hqc,chd->qhd", weights, values.abs())


def by_backend(case: Case) -> Tensor:
    """The `triton` backend, which picks the kernel by what the batch holds; writes K and V itself."""
    attention = TritonAttention(case.cache)
    attention.plan(case.batch)
    return attention.run(0, case.q, case.k, case.v)


def by_segments(case: Case, split_tokens: int = 512) -> Tensor:
    """The segmented kernel, whatever the batch holds."""
    case.cache.write(0, case.batch.slots, case.k, case.v)
    keys, values = case.cache.k[0], case.cache.v[0]
    wide = WIDE[case.q.element_size()]
    cut = cut_segments(case.batch, case.q.shape[1] // len(keys), wide, NARROW, split_tokens)
    segments, merges, tables = (
        torch.from_numpy(x).int().to(case.q.device) for x in (cut.segments, cut.merges, case.batch.tables)
    )
    out = torch.full(case.q.shape, math.nan, dtype=case.q.dtype, device=case.q.device)
    scale = 1.0 / math.sqrt(case.q.shape[-1])
    size = case.cache.block_tokens
    segmented(case.q, keys, values, segments, merges, cut.num_parts, tables, size, scale, out)
    return out


def by_union(case: Case) -> Tensor:
    """The union tiles; every row of the batch is a decode."""
    case.cache.write(0, case.batch.slots, case.k, case.v)
    batch, device, size = case.batch, case.q.device, case.cache.block_tokens
    union = unite_blocks(batch.tables, batch.context_lens, size, QUERIES)
    lists = [
        torch.from_numpy(x).int().to(device)
        for x in (batch.context_lens, union.tile_starts, union.blocks, union.owners, union.block_starts)
    ]
    rows = torch.from_numpy(batch.query_starts[:-1]).to(device)
    out = torch.full(case.q.shape, math.nan, dtype=case.q.dtype, device=device)
    scale = 1.0 / math.sqrt(case.q.shape[-1])
    union_tiles(case.q, case.cache.k[0], case.cache.v[0], rows, *lists, size, scale, out)
    return out
