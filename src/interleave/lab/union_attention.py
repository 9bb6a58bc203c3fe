"""Union tiles in torch: decode rows in tiles that attend to the blocks of all their rows, masked.

The twin of the kernel `union_tiles` for a CPU, in float32 as for any type. It exists to be measured
against (see `experiments/kernel_layout`); no engine uses it. Slots that nobody has written must hold
finite numbers: they are given no weight, but 0 x NaN is NaN.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from interleave.model.attention.tiles import unite_blocks
from interleave.model.batch import PackedBatch
from interleave.model.kv_cache import KVCache

TILE_ROWS = 32
"""Rows of a tile, as published."""


class UnionAttention:
    """`plan` once per forward, `run` once per layer; of decode rows only."""

    name = "union"

    def __init__(self, cache: KVCache) -> None:
        self.cache = cache

    def plan(self, batch: PackedBatch) -> None:
        """ValueError for a batch that holds a chunk."""
        if (batch.query_lens != 1).any():
            raise ValueError("union tiles hold decode rows, one query position each")
        self._slots = batch.slots
        union = unite_blocks(batch.tables, batch.context_lens, batch.block_tokens, TILE_ROWS)
        self._tiles: list[tuple[slice, Tensor | slice, Tensor]] = []
        for tile, (first, stop) in enumerate(zip(union.tile_starts[:-1], union.tile_starts[1:], strict=True)):
            rows = np.arange(tile * TILE_ROWS, min((tile + 1) * TILE_ROWS, batch.num_rows))
            blocks, owners, begins = (
                x[first:stop].astype(np.int64) for x in (union.blocks, union.owners, union.block_starts)
            )
            offset = np.arange(batch.block_tokens)
            position = (begins[:, None] + offset).ravel()
            owner = owners.repeat(batch.block_tokens)
            seen = (rows[:, None] == owner) & (position < batch.context_lens[owner])
            slots = torch.from_numpy((blocks[:, None] * batch.block_tokens + offset).ravel())
            self._tiles.append((slice(rows[0], rows[-1] + 1), _one_run(slots), torch.from_numpy(seen)))

    def run(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Write k and v [n, kv_heads, dim], then attend q [n, heads, dim] -> [n, heads, dim]."""
        self.cache.write(layer, self._slots, k, v)
        keys, values = self.cache.k[layer], self.cache.v[layer]
        kv_heads, _, dim = keys.shape
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
        for rows, slots, seen in self._tiles:
            tile = q[rows]
            group = tile.shape[1] // kv_heads
            # The heads that share a KV head become more queries of one call.
            folded = tile.view(len(tile), kv_heads, group, dim).permute(1, 2, 0, 3).reshape(kv_heads, -1, dim)
            mask = seen.repeat(group, 1)
            found = scaled_dot_product_attention(
                folded[None],
                keys[None, :, slots],
                values[None, :, slots],
                attn_mask=mask,
                scale=1.0 / math.sqrt(dim),
            )[0]
            out[rows] = found.view(kv_heads, group, len(tile), dim).permute(2, 0, 1, 3).reshape(tile.shape)
        return out


def _one_run(slots: Tensor) -> Tensor | slice:
    """A slice where the slots follow each other: a view then, and no copy."""
    first, count = int(slots[0]), len(slots)
    if torch.equal(slots, torch.arange(first, first + count)):
        return slice(first, first + count)
    return slots
