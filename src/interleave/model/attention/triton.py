"""Attention by the Triton kernels: decode rows and chunks in one launch each, blocks read in place.

Runs on a GPU, and on a CPU under Triton's interpreter (TRITON_INTERPRET=1). Imported lazily: a
machine without triton has the other backends.
"""

from __future__ import annotations

import math
import os

import numpy as np
import torch
from torch import Tensor

from interleave.model.batch import PackedBatch
from interleave.model.kv_cache import KVCache
from interleave_kernels.kv_write import kv_write
from interleave_kernels.packed_prefill import TILES, packed_prefill
from interleave_kernels.paged_decode import paged_decode


class TritonAttention:
    """`plan` once per forward, `run` once per layer; the twin of `ReferenceAttention`."""

    name = "triton"

    def __init__(self, cache: KVCache) -> None:
        if cache.k.device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
            raise ValueError(
                f"attention backend 'triton' needs a CUDA device, got {cache.k.device.type}; "
                "use another backend, or Triton's interpreter (TRITON_INTERPRET=1)"
            )
        if cache.k.device.type != "cuda" and cache.k.dtype == torch.bfloat16:
            raise ValueError("attention backend 'triton' cannot run bfloat16 under Triton's interpreter")
        self.cache = cache
        self._batch: PackedBatch | None = None

    def plan(self, batch: PackedBatch) -> None:
        self._batch = batch
        single = np.flatnonzero(batch.query_lens == 1)
        self._rows = self._device(batch.query_starts[:-1][single], torch.int64)
        self._row_tables = self._device(batch.tables[single], torch.int32)
        self._row_contexts = self._device(batch.context_lens[single], torch.int32)
        self._row_spans = self._device(batch.spans[single], torch.int32)
        self._longest_span = int(batch.spans[single].max(initial=0))
        step = TILES[self.cache.k.element_size()]
        tiles = [
            (int(row), start)
            for row in np.flatnonzero(batch.query_lens > 1)
            for start in range(0, int(batch.query_lens[row]), step)
        ]
        self._tile_rows = self._device(np.array([row for row, _ in tiles]), torch.int32)
        self._tile_starts = self._device(np.array([start for _, start in tiles]), torch.int32)
        self._query_starts = self._device(batch.query_starts, torch.int32)
        self._contexts = self._device(batch.context_lens, torch.int32)
        self._tables = self._device(batch.tables, torch.int32)

    def _device(self, values: np.ndarray, dtype: torch.dtype) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self.cache.k.device, dtype)

    def run(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Write k and v [n, kv_heads, dim], then attend q [n, heads, dim] -> [n, heads, dim]."""
        batch = self._batch
        assert batch is not None, "plan() comes before run()"
        keys, values = self.cache.k[layer], self.cache.v[layer]
        kv_write(k, v, batch.slots, keys, values)
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
        size, scale = self.cache.block_tokens, 1.0 / math.sqrt(q.shape[-1])
        if len(self._tile_rows):
            packed_prefill(
                q,
                keys,
                values,
                self._tile_rows,
                self._tile_starts,
                self._query_starts,
                self._contexts,
                self._tables,
                size,
                scale,
                out,
            )
        if len(self._rows):
            paged_decode(
                q,
                keys,
                values,
                self._rows,
                self._row_tables,
                self._row_contexts,
                self._row_spans,
                self._longest_span,
                size,
                scale,
                out,
            )
        return out
