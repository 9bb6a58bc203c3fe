"""Attention by the Triton kernels, blocks read in place.

A forward of decode rows takes the kernel that splits rows over their context, one of chunks the kernel
that tiles their queries, and one of both the segmented kernel: one launch, whatever the mix.
Runs on a GPU, and on a CPU under Triton's interpreter (TRITON_INTERPRET=1). Imported lazily: a
machine without triton has the other backends.
"""

from __future__ import annotations

import math
import os

import numpy as np
import torch
from torch import Tensor

from interleave.model.attention.tiles import cut_segments
from interleave.model.batch import DecodeBatch, PackedBatch
from interleave.model.decoder import InPlace
from interleave.model.kv_cache import KVCache
from interleave_kernels.kv_write import kv_write
from interleave_kernels.packed_prefill import TILES, packed_prefill
from interleave_kernels.paged_decode import paged_decode
from interleave_kernels.segmented import NARROW, SPLIT, WIDE, segmented


class TritonAttention:
    """`plan` once per forward, `run` once per layer; the twin of `ReferenceAttention`."""

    name = "triton"
    on_device = True

    def __init__(self, cache: KVCache) -> None:
        if cache.k.device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
            raise ValueError(
                f"attention backend 'triton' needs a CUDA device, got {cache.k.device.type}; "
                "use another backend, or Triton's interpreter (TRITON_INTERPRET=1)"
            )
        if cache.k.device.type != "cuda" and cache.k.dtype == torch.bfloat16:
            raise ValueError("attention backend 'triton' cannot run bfloat16 under Triton's interpreter")
        head_dim = cache.k.shape[-1]
        if head_dim < 16 or head_dim & (head_dim - 1):
            raise ValueError(
                f"attention backend 'triton' needs heads of a power of two of at least 16, got {head_dim}; "
                "use the backend 'reference'"
            )
        if cache.group_size > NARROW:
            raise ValueError(
                f"attention backend 'triton' needs at most {NARROW} query heads per KV head, got {cache.group_size}; "
                "use the backend 'reference'"
            )
        self.cache = cache
        self._slots: Tensor | None = None

    def plan(self, batch: PackedBatch) -> None:
        self._slots = batch.slots
        single = batch.query_lens == 1
        self._has_singles, self._has_chunks = bool(single.any()), not single.all()
        self._tables = self._device(batch.tables, torch.int32)
        if self._has_singles and self._has_chunks:
            self._packed = batch
            self._group = 0  # segments follow from the number of heads, which the first layer's queries tell
        elif self._has_chunks:
            self._plan_chunks(batch)
        else:
            self._rows = self._device(batch.query_starts[:-1], torch.int64)
            self._contexts = self._device(batch.context_lens, torch.int32)
            self._spans = self._device(batch.spans, torch.int32)
            self._longest_span = int(batch.spans.max())

    def plan_decode(self, batch: DecodeBatch) -> None:
        """Reads nothing on the host, so what follows can be recorded and replayed on other numbers."""
        self._slots = batch.slots
        self._has_singles, self._has_chunks = True, False
        self._tables, self._rows = batch.tables, batch.rows
        self._contexts = self._spans = batch.context_lens
        self._longest_span = batch.longest

    def _plan_chunks(self, batch: PackedBatch) -> None:
        step = TILES[self.cache.k.element_size()]
        tiles = [
            (row, start) for row, count in enumerate(batch.query_lens) for start in range(0, int(count), step)
        ]
        self._tile_rows = self._device(np.array([row for row, _ in tiles]), torch.int32)
        self._tile_starts = self._device(np.array([start for _, start in tiles]), torch.int32)
        self._query_starts = self._device(batch.query_starts, torch.int32)
        self._contexts = self._device(batch.context_lens, torch.int32)

    def _plan_segments(self, batch: PackedBatch, group: int) -> None:
        self._group = group
        cut = cut_segments(batch, group, WIDE[self.cache.k.element_size()], NARROW, SPLIT)
        self._segments = self._device(cut.segments, torch.int32)
        self._merges = self._device(cut.merges, torch.int32)
        self._num_parts = cut.num_parts

    def _device(self, values: np.ndarray, dtype: torch.dtype) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self.cache.k.device, dtype)

    @property
    def attend(self) -> InPlace:
        """Attention over the cache alone; the decoder's ops write keys and values while they rotate."""
        assert self._slots is not None, "plan() comes before attend"
        return InPlace(self.cache, self._slots, self._attend)

    def run(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Write k and v [n, kv_heads, dim], then attend q [m, heads, dim] -> [m, heads, dim]."""
        assert self._slots is not None, "plan() comes before run()"
        kv_write(k, v, self._slots, self.cache.k[layer], self.cache.v[layer])
        return self._attend(layer, q)

    def _attend(self, layer: int, q: Tensor) -> Tensor:
        keys, values = self.cache.k[layer], self.cache.v[layer]
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
        size, scale = self.cache.block_tokens, 1.0 / math.sqrt(q.shape[-1])
        if self._has_singles and self._has_chunks:
            group = q.shape[1] // len(keys)
            if self._group != group:
                self._plan_segments(self._packed, group)
            parts = (self._segments, self._merges, self._num_parts)
            segmented(q, keys, values, *parts, self._tables, size, scale, out)
        elif self._has_chunks:
            tiles = (self._tile_rows, self._tile_starts, self._query_starts, self._contexts)
            packed_prefill(q, keys, values, *tiles, self._tables, size, scale, out)
        else:
            spans = (self._contexts, self._spans, self._longest_span)
            paged_decode(q, keys, values, self._rows, self._tables, *spans, size, scale, out)
        return out
