"""Attention over blocks read in place: a list of tasks, each a decode row or a tile of a chunk's queries.

Both kinds take all the query heads of one KV head in one pass. It does not know which task runs on which
thread, nor what a task costs: `model/attention/simd.py` deals them out.
"""

from __future__ import annotations

import numba
import numpy as np

from interleave.model.simd.chunk import chunk_tile
from interleave.model.simd.compiled import compiled, compiled_parallel
from interleave.model.simd.decode import decode_row


@compiled
def attend_share(
    q: np.ndarray,
    q_stride: int,
    keys: np.ndarray,
    values: np.ndarray,
    sizes: tuple[int, int, int, int],
    scale: np.float32,
    tables: np.ndarray,
    context_lens: np.ndarray,
    spans: np.ndarray,
    tasks: np.ndarray,
    shares: np.ndarray,
    scratch: np.ndarray,
    out: np.ndarray,
    thread: int,
) -> None:
    """Run tasks[shares[thread]:shares[thread + 1]] with scratch[thread]. sizes: heads, kv_heads, dim, block_tokens.

    q: flat, position n begins at n * q_stride; keys, values: [kv_heads, slots, dim]; out: [n, heads, dim].
    tables, context_lens, spans: by row. tasks: [tasks, 5], see `plan_tasks`.
    """
    for index in range(shares[thread], shares[thread + 1]):
        row, kv_head, at, count = tasks[index, 0], tasks[index, 1], tasks[index, 2], tasks[index, 3]
        if tasks[index, 4] < 0:
            decode_row(
                q, at * q_stride, keys, values, sizes, scale, tables[row], context_lens[row], spans[row],
                kv_head, scratch[thread], out, at,
            )  # fmt: skip
        else:
            chunk_tile(
                q, q_stride, keys, values, sizes, scale, tables[row], kv_head, at, count, tasks[index, 4],
                scratch[thread], out,
            )  # fmt: skip


@compiled_parallel
def attend(
    q: np.ndarray,
    q_stride: int,
    keys: np.ndarray,
    values: np.ndarray,
    sizes: tuple[int, int, int, int],
    scale: np.float32,
    tables: np.ndarray,
    context_lens: np.ndarray,
    spans: np.ndarray,
    tasks: np.ndarray,
    shares: np.ndarray,
    scratch: np.ndarray,
    out: np.ndarray,
) -> None:
    """`attend_share` for every share, each on a thread of its own."""
    for thread in numba.prange(len(shares) - 1):
        attend_share(
            q, q_stride, keys, values, sizes, scale, tables, context_lens, spans, tasks, shares, scratch, out,
            thread,
        )  # fmt: skip
