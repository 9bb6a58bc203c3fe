"""Attention over blocks read in place: a list of tasks, each a decode row or a tile of a chunk's queries.

Both kinds take all the query heads of one KV head in one pass. It does not know what a
task costs: `model/attention/simd.py` puts them in order.
"""

from __future__ import annotations

import numba
import numpy as np

from interleave.model.simd.chunk import chunk_tile
from interleave.model.simd.compiled import compiled, compiled_parallel
from interleave.model.simd.decode import decode_row
from interleave.model.simd.queue import take


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
    queue: np.ndarray,
    scratch: np.ndarray,
    out: np.ndarray,
    thread: int,
) -> None:
    """Run tasks from the queue to its end with scratch[thread]. sizes: heads, kv_heads, dim, block_tokens.

    q: flat, position n begins at n * q_stride; keys, values: [kv_heads, slots, dim]; out: [n, heads, dim].
    tables, context_lens, spans: by row. tasks: [tasks, 5], see `plan_tasks`.
    """
    index = take(queue)
    while index < len(tasks):
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
        index = take(queue)


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
    queue: np.ndarray,
    scratch: np.ndarray,
    out: np.ndarray,
    threads: int,
) -> None:
    """`attend_share` on every thread."""
    for thread in numba.prange(threads):
        attend_share(
            q, q_stride, keys, values, sizes, scale, tables, context_lens, spans, tasks, queue, scratch, out,
            thread,
        )  # fmt: skip
