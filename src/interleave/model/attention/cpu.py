"""Attention on the CPU, reading blocks where they lie.

Rows with one query position go through a compiled kernel, parallel over rows x KV heads. A chunk
is attended in pieces that need no copy: each contiguous run of its history blocks, then its own
positions causally, merged by their log-sum-exp (the decomposition behind FlashAttention and
FlashInfer). Nothing is gathered, so a prompt's history is never copied however often it is read.
Works in float32.
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

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


class CpuAttention:
    """`plan` once per forward, `run` once per layer; the twin of `ReferenceAttention`."""

    name = "cpu"
    on_device = False

    def __init__(self, cache: KVCache) -> None:
        if cache.k.device.type != "cpu" or cache.k.dtype != torch.float32:
            raise ValueError(
                f"attention backend 'cpu' works on float32 on the CPU, got {cache.k.dtype} on {cache.k.device.type}; "
                "use backend 'reference'"
            )
        _start_threads()
        self.cache = cache
        self._keys = cache.k.numpy()
        self._values = cache.v.numpy()
        self._batch: PackedBatch | None = None

    def plan(self, batch: PackedBatch) -> None:
        self._batch = batch
        single = np.flatnonzero(batch.query_lens == 1)
        self._decode_at = batch.query_starts[:-1][single]
        self._decode_tables = batch.tables[single]
        self._decode_context = batch.context_lens[single]
        self._decode_spans = batch.spans[single]
        self._chunks = []
        for row in np.flatnonzero(batch.query_lens > 1):
            start, stop = int(batch.query_starts[row]), int(batch.query_starts[row + 1])
            history = int(batch.context_lens[row]) - (stop - start)
            runs = contiguous_runs(batch.tables[row], history, batch.block_tokens)
            self._chunks.append((start, stop, runs))
        # When every row decodes, the packed order is the row order and nothing is picked out.
        self._all_decode = len(single) == batch.num_rows
        self._scores: np.ndarray | None = None

    def plan_decode(self, batch: DecodeBatch) -> None:
        self.plan(batch.on_host())

    @property
    def attend(self) -> Attend:
        return self.run

    def run(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Write k and v [n, kv_heads, dim], then attend q [m, heads, dim] -> [m, heads, dim]."""
        batch = self._batch
        assert batch is not None, "plan() comes before run()"
        self.cache.write(layer, batch.slots, k, v)
        if self._all_decode:
            return self._decode(layer, q)
        out = torch.empty_like(q)
        for start, stop, runs in self._chunks:
            chunk = slice(start, stop)
            out[chunk] = attend_chunk(
                q[chunk], k[chunk], v[chunk], self.cache.k[layer], self.cache.v[layer], runs
            )
        if len(self._decode_at):
            at = torch.from_numpy(self._decode_at)
            out[at] = self._decode(layer, q[at])
        return out

    def _decode(self, layer: int, q: Tensor) -> Tensor:
        out = torch.empty(q.shape, dtype=q.dtype)
        if self._scores is None:  # once per forward: every layer has the same shapes
            rows, heads, kv_heads = q.shape[0], q.shape[1], self._keys.shape[1]
            shape = (rows * kv_heads, heads // kv_heads, int(self._decode_spans.max()))
            self._scores = np.empty(shape, dtype=np.float32)
        decode_kernel(
            q.contiguous().numpy(),
            self._keys[layer],
            self._values[layer],
            self._decode_tables,
            self._decode_context,
            self._decode_spans,
            self.cache.block_tokens,
            np.float32(1.0 / math.sqrt(q.shape[-1])),
            self._scores,
            out.numpy(),
        )
        return out


def contiguous_runs(table: np.ndarray, num_tokens: int, block_tokens: int) -> list[tuple[int, int]]:
    """Slot ranges (start, stop) that hold the first `num_tokens` positions, neighbours joined."""
    runs: list[tuple[int, int]] = []
    for index in range(-(-num_tokens // block_tokens)):
        start = int(table[index]) * block_tokens
        stop = start + min(block_tokens, num_tokens - index * block_tokens)
        if runs and runs[-1][1] == start:
            runs[-1] = (runs[-1][0], stop)
        else:
            runs.append((start, stop))
    return runs


def attend_chunk(
    q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, runs: list[tuple[int, int]]
) -> Tensor:
    """One prompt's chunk: q [n, heads, dim] over its history in `runs` and its own k, v causally.

    keys, values: [kv_heads, slots, dim], read as views; k, v: [n, kv_heads, dim].
    """
    n, heads, dim = q.shape
    kv_heads = keys.shape[0]
    queries = q.transpose(0, 1)[None]
    own_k, own_v = k.transpose(0, 1)[None], v.transpose(0, 1)[None]
    context, weight = _flash(queries, own_k, own_v, 0.0, True)
    if not runs:
        return context[0].transpose(0, 1)
    # All history is visible to every query, so the heads that share a KV head become more queries.
    folded = q.view(n, kv_heads, heads // kv_heads, dim).permute(1, 2, 0, 3).reshape(1, kv_heads, -1, dim)
    for start, stop in runs:
        part, part_weight = _flash(folded, keys[None, :, start:stop], values[None, :, start:stop], 0.0, False)
        part = part.reshape(1, heads, n, dim)
        part_weight = part_weight.reshape(1, heads, n)
        total = torch.logaddexp(weight, part_weight)
        context = context * (weight - total).exp()[..., None] + part * (part_weight - total).exp()[..., None]
        weight = total
    return context[0].transpose(0, 1)


def _start_threads() -> None:
    """Start numba's threads, as many as torch's: its first launch resets the OpenMP count they share."""
    threads = torch.get_num_threads()
    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))  # type: ignore[attr-defined]
    torch.set_num_threads(threads)


@numba.njit(parallel=True, fastmath={"nsz", "arcp", "contract", "reassoc"}, cache=True)
def decode_kernel(
    q: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    tables: np.ndarray,
    context_lens: np.ndarray,
    spans: np.ndarray,
    block_tokens: int,
    scale: np.float32,
    scores: np.ndarray,
    out: np.ndarray,
) -> None:
    """One query position per row over its own blocks.

    q, out: [rows, heads, dim]; keys, values: [kv_heads, slots, dim]; tables: [rows, blocks];
    scores: scratch [rows * kv_heads, >= group, >= span]. Positions from context_len to span are
    read and given no weight (`fastmath` leaves out NaN and infinity assumptions for their sake).
    """
    rows, heads, dim = q.shape
    kv_heads = keys.shape[0]
    group = heads // kv_heads
    for task in numba.prange(rows * kv_heads):
        # Rows vary fastest, so that a thread's contiguous share mixes long rows and short ones.
        kv_head = task // rows
        row = task % rows
        context_len, span = context_lens[row], spans[row]
        for member in range(group):
            head = kv_head * group + member
            highest = np.float32(-np.inf)
            for position in range(span):
                slot = tables[row, position // block_tokens] * block_tokens + position % block_tokens
                dot = np.float32(0.0)
                for d in range(dim):
                    dot += q[row, head, d] * keys[kv_head, slot, d]
                dot = dot * scale if position < context_len else np.float32(-np.inf)
                scores[task, member, position] = dot
                highest = max(highest, dot)
            total = np.float32(0.0)
            for position in range(span):
                weight = np.exp(scores[task, member, position] - highest)
                scores[task, member, position] = weight
                total += weight
            for d in range(dim):
                out[row, head, d] = 0.0
            for position in range(span):
                slot = tables[row, position // block_tokens] * block_tokens + position % block_tokens
                seen = position < context_len
                weight = scores[task, member, position] / total
                for d in range(dim):
                    out[row, head, d] += weight * values[kv_head, slot, d] if seen else np.float32(0.0)
