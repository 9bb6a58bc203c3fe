"""Attention on the CPU in explicit vectors: decode rows and chunks in one launch, blocks read in place.

The plan turns a batch into tasks of a row or a chunk tile by KV head, longest first; threads take them
from one queue. Works in float32, where `simd.vector.HAS_FMA` holds.
"""

from __future__ import annotations

import math

import numba
import numpy as np
import torch
from torch import Tensor

from interleave.model.batch import DecodeBatch, PackedBatch
from interleave.model.decoder import Attend
from interleave.model.kv_cache import KVCache
from interleave.model.simd.attention import attend, attend_share
from interleave.model.simd.cache_write import write, write_rows
from interleave.model.simd.chunk import tile_floats
from interleave.model.simd.decode import decode_floats, decodes_in_place
from interleave.model.simd.glue import threads_for
from interleave.model.simd.queue import new_queue
from interleave.model.simd.threads import start_threads

TILE_ROWS = 192
"""Query rows, over the heads of a group, that a chunk tile aims for: whole panels for most groups."""

DECODE_COST = 16
"""A position of a decode row, which waits for memory, in row-positions of a tile, which computes."""

SHARED_COST = 1 << 16
"""Cost of all tasks below which waking a second thread takes longer than doing its share."""


class SimdAttention:
    """`plan` once per forward, `run` once per layer; the twin of `ReferenceAttention`."""

    name = "cpu"
    on_device = False

    def __init__(self, cache: KVCache) -> None:
        start_threads()
        self.cache = cache
        self._keys = cache.k.numpy()
        self._values = cache.v.numpy()
        self._batch: PackedBatch | None = None
        self._queue = new_queue()
        self._scratch = np.empty((1, 0), dtype=np.float32)

    def plan(self, batch: PackedBatch) -> None:
        self._batch = batch
        self._slots = batch.slots.numpy()
        self._group = 0  # tasks follow from the number of heads, which the first layer's queries tell

    def plan_decode(self, batch: DecodeBatch) -> None:
        self.plan(batch.on_host())

    @property
    def attend(self) -> Attend:
        return self.run

    def run(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Write k and v [n, kv_heads, dim], then attend q [m, heads, dim] -> [m, heads, dim]."""
        batch = self._batch
        assert batch is not None, "plan() comes before run()"
        num_queries, heads, dim = q.shape
        keys, values = self._keys[layer], self._values[layer]
        if self._group != heads // len(keys):
            self._prepare(batch, heads // len(keys), dim)
        strides = (_row_stride(k), _row_stride(v))
        new = (_flat(k), _flat(v), strides, self._slots, keys, values)
        threads = threads_for(k.numel())
        if threads == 1:
            write_rows(*new, 0, len(k))
        else:
            write(*new, threads)
        out = torch.empty((num_queries, heads, dim))
        arguments = (
            _flat(q),
            _row_stride(q),
            keys,
            values,
            (heads, len(keys), dim, batch.block_tokens),
            np.float32(1.0 / math.sqrt(dim) / math.log(2.0)),
            batch.tables,
            batch.context_lens,
            batch.spans,
            self._tasks,
            self._queue,
            self._scratch,
            out.numpy(),
        )
        self._queue[0] = 0
        if self._threads == 1:
            attend_share(*arguments, 0)
        else:
            attend(*arguments, self._threads)
        return out

    def _prepare(self, batch: PackedBatch, group: int, dim: int) -> None:
        self._group = group
        kv_heads = self._keys.shape[1]
        tasks, cost = plan_tasks(batch, kv_heads, group, decodes_in_place(group, dim))
        threads = numba.get_num_threads() if cost.sum() >= SHARED_COST else 1
        self._tasks, self._threads = tasks[np.argsort(-cost, kind="stable")], threads
        largest = int(tasks[:, 3].max(where=tasks[:, 4] >= 0, initial=0))
        floats = max(
            tile_floats(largest * group, dim) if largest else 0,
            decode_floats(group, dim, int(batch.spans.max())),
        )
        if self._scratch.shape[0] < threads or self._scratch.shape[1] < floats:
            self._scratch = np.zeros((threads, floats), dtype=np.float32)


def plan_tasks(
    batch: PackedBatch, kv_heads: int, group: int, decodes_in_place: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Tasks int64 [tasks, 5] and what each costs.

    A task is (row, KV head, first packed query, queries, position of the first), with position -1 for
    a decode row that is scored in place.
    """
    lens = batch.query_lens
    step = max(1, TILE_ROWS // group)
    tiles = -(-lens // step)
    row = np.repeat(np.arange(len(lens)), tiles)
    first = (np.arange(tiles.sum()) - np.repeat(np.cumsum(tiles) - tiles, tiles)) * step
    count = np.minimum(step, lens[row] - first)
    position = batch.context_lens[row] - lens[row] + first
    decoding = (lens[row] == 1) & decodes_in_place
    cost = np.where(decoding, DECODE_COST * batch.spans[row], count * group * (position + count))
    parts = (
        row,
        np.zeros_like(row),
        batch.query_starts[row] + first,
        count,
        np.where(decoding, -1, position),
    )
    tasks = np.repeat(np.stack(parts, axis=1), kv_heads, axis=0)
    tasks[:, 1] = np.tile(np.arange(kv_heads), len(row))
    return tasks, np.repeat(cost, kv_heads)


def _row_stride(x: Tensor) -> int:
    """Elements from one position to the next; heads and dims lie without gaps."""
    if x.stride(-1) != 1 or x.stride(-2) != x.shape[-1]:
        raise ValueError(f"a position's heads must lie together, got strides {x.stride()}")
    return x.stride(0)


def _flat(x: Tensor) -> np.ndarray:
    """A view as one line from its first element on, whatever it is a part of."""
    return torch.as_strided(x, (x.stride(0) * (len(x) - 1) + x[0].numel(),), (1,)).numpy()
