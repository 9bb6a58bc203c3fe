"""Attention kernels over blocks read in place: one task is a decode row, or a tile of a chunk's queries.

Both kinds take all the query heads of one KV head in one pass. A decode row scores its keys where they
lie, takes one softmax, and adds up values where they lie. A chunk tile walks its context in tiles of
keys with a running maximum (online softmax: Milakov & Gimelshein, 2018; FlashAttention), whose two
products are those of the linear layers. Every position up to a decode row's span is read and computed
with; those from its context on have no weight. It does not know which task runs on which thread.
"""

from __future__ import annotations

import numba
import numpy as np

from interleave.model.simd.compiled import compiled, compiled_parallel
from interleave.model.simd.forms import PANEL
from interleave.model.simd.scores import GROUPS, dot_keys, turn_over
from interleave.model.simd.tiles import ROWS, multiply_tile
from interleave.model.simd.vector import (
    LANES,
    vadd,
    vexp,
    vload,
    vmax,
    vmul,
    vsplat,
    vstore,
    vsub,
    vsum,
    vtop,
)

KEYS = 128
"""Positions in a tile of keys; a multiple of PANEL."""

LOWEST = np.float32(-np.inf)


def padded(dim: int) -> int:
    """Columns that a head's values take in whole panels."""
    return -(-dim // PANEL) * PANEL


def tile_floats(rows: int, dim: int) -> int:
    """Scratch of a chunk tile: queries, keys, values, scores, context, maximum and sum."""
    wide = padded(dim)
    return rows * (dim + KEYS + wide + 2) + KEYS * (dim + wide) + 2 * LANES


def decode_floats(group: int, dim: int, span: int) -> int:
    """Scratch of a decode row: scores, queries, and where work without weight goes."""
    return group * (_rounded(span) + dim + padded(dim)) + 2 * LANES


def _rounded(count: int) -> int:
    return -(-count // LANES) * LANES


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


@compiled
def decode_row(
    q: np.ndarray,
    q_at: int,
    keys: np.ndarray,
    values: np.ndarray,
    sizes: tuple[int, int, int, int],
    scale: np.float32,
    table: np.ndarray,
    context_len: int,
    span: int,
    kv_head: int,
    scratch: np.ndarray,
    out: np.ndarray,
    at: int,
) -> None:
    """One query position of the heads of one KV head. dim is whole panels, the group at most GROUPS."""
    heads, kv_heads, dim, block_tokens = sizes
    group = heads // kv_heads
    stride = (span + LANES - 1) // LANES * LANES
    queries, sink = group * stride, group * (stride + dim)
    for index in range(group * dim):
        scratch[queries + index] = q[q_at + kv_head * group * dim + index] * scale
    head_at = kv_head * keys.shape[1] * dim
    for first in range(0, span, block_tokens):
        slot = table[first // block_tokens] * block_tokens
        count = min(block_tokens, span - first)
        dot_keys(group, scratch, first, stride, scratch, queries, keys, head_at + slot * dim, dim, count)
    out_at = (at * heads + kv_head * group) * dim
    for head in range(group):
        softmax_row(scratch, head * stride, context_len, stride)
        for d in range(dim):
            out[at, kv_head * group + head, d] = 0.0
    for first in range(0, span, block_tokens):
        slot = table[first // block_tokens] * block_tokens
        value_at = head_at + slot * dim
        count = min(block_tokens, span - first)
        seen = max(0, min(count, context_len - first))
        for column in range(0, dim, PANEL):
            for head in range(0, group, ROWS):
                rows, weight_at = min(ROWS, group - head), head * stride + first
                if seen > 0:
                    multiply_tile(
                        rows, out, out_at + head * dim + column, dim, scratch, weight_at, stride,
                        values, value_at + column, dim, seen, True,
                    )  # fmt: skip
                if seen < count:
                    multiply_tile(
                        rows, scratch, sink + head * dim + column, dim, scratch, weight_at + seen, stride,
                        values, value_at + seen * dim + column, dim, count - seen, False,
                    )  # fmt: skip


@compiled
def softmax_row(scores: np.ndarray, at: int, seen: int, padded_span: int) -> None:
    """The softmax of `seen` scores in place, and zeros up to `padded_span`, in whole vectors."""
    for index in range(seen, padded_span):
        scores[at + index] = LOWEST
    top = vload(scores, at)
    for index in range(LANES, padded_span, LANES):
        top = vmax(top, vload(scores, at + index))
    highest = vsplat(vtop(top))
    sums = vsplat(np.float32(0.0))
    for index in range(0, padded_span, LANES):
        weight = vexp(vsub(vload(scores, at + index), highest))
        vstore(scores, at + index, weight)
        sums = vadd(sums, weight)
    share = vsplat(np.float32(1.0) / vsum(sums))
    for index in range(0, padded_span, LANES):
        vstore(scores, at + index, vmul(vload(scores, at + index), share))


@compiled
def chunk_tile(
    q: np.ndarray,
    q_stride: int,
    keys: np.ndarray,
    values: np.ndarray,
    sizes: tuple[int, int, int, int],
    scale: np.float32,
    table: np.ndarray,
    kv_head: int,
    at: int,
    count: int,
    first_position: int,
    scratch: np.ndarray,
    out: np.ndarray,
) -> None:
    """`count` queries from packed index `at`, at positions from `first_position`, of one KV head's heads.

    Tile row i * group + g is query i of head g. Any dim, any group.
    """
    heads, kv_heads, dim, block_tokens = sizes
    group = heads // kv_heads
    rows = count * group
    wide = (dim + PANEL - 1) // PANEL * PANEL
    k_at = rows * dim
    v_at = k_at + KEYS * dim
    s_at = v_at + KEYS * wide
    c_at = s_at + rows * KEYS
    top_at = c_at + rows * wide
    sum_at = top_at + rows
    for i in range(count):
        source = (at + i) * q_stride + kv_head * group * dim
        for index in range(group * dim):
            scratch[i * group * dim + index] = q[source + index] * scale
    for index in range(c_at, top_at):
        scratch[index] = 0.0
    for row in range(rows):
        scratch[top_at + row], scratch[sum_at + row] = LOWEST, 0.0
    limit = first_position + count
    for first in range(0, limit, KEYS):
        num_keys = min(KEYS, limit - first)
        num_panels = (num_keys + PANEL - 1) // PANEL
        fetch_keys(keys, kv_head, table, block_tokens, first, num_keys, scratch, k_at, dim)
        fetch_values(values, kv_head, table, block_tokens, first, num_keys, scratch, v_at, dim)
        for panel in range(num_panels):
            panel_at = k_at + panel * dim * PANEL
            for row in range(0, rows, ROWS):
                multiply_tile(
                    min(ROWS, rows - row), scratch, s_at + row * KEYS + panel * PANEL, KEYS,
                    scratch, row * dim, dim, scratch, panel_at, PANEL, dim, False,
                )  # fmt: skip
        for row in range(rows):
            seen = min(num_keys, first_position + row // group + 1 - first)
            weigh_scores(
                scratch,
                s_at + row * KEYS,
                seen,
                num_panels * PANEL,
                top_at + row,
                sum_at + row,
                c_at + row * wide,
                wide,
            )
        for panel in range(wide // PANEL):
            panel_at = v_at + panel * KEYS * PANEL
            for row in range(0, rows, ROWS):
                multiply_tile(
                    min(ROWS, rows - row), scratch, c_at + row * wide + panel * PANEL, wide,
                    scratch, s_at + row * KEYS, KEYS, scratch, panel_at, PANEL, num_keys, True,
                )  # fmt: skip
    for row in range(rows):
        share = np.float32(1.0) / scratch[sum_at + row]
        i, head = at + row // group, kv_head * group + row % group
        for d in range(dim):
            out[i, head, d] = scratch[c_at + row * wide + d] * share


@compiled
def weigh_scores(
    scratch: np.ndarray, at: int, seen: int, width: int, top_at: int, sum_at: int, context_at: int, wide: int
) -> None:
    """Scores to weights under the running maximum; the row's sum and context follow a higher one."""
    for index in range(max(0, seen), width):
        scratch[at + index] = LOWEST
    before = scratch[top_at]
    top = vsplat(before)
    for index in range(0, width, LANES):
        top = vmax(vload(scratch, at + index), top)
    highest = vtop(top)
    sums = vsplat(np.float32(0.0))
    for index in range(0, width, LANES):
        weight = vexp(vsub(vload(scratch, at + index), vsplat(highest)))
        vstore(scratch, at + index, weight)
        sums = vadd(sums, weight)
    if highest > before:
        shrink = vexp(vsub(vsplat(before), vsplat(highest)))
        for index in range(0, wide, LANES):
            vstore(scratch, context_at + index, vmul(vload(scratch, context_at + index), shrink))
        sums_before = vsum(vmul(vsplat(scratch[sum_at]), shrink)) / np.float32(LANES)
        scratch[sum_at] = sums_before + vsum(sums)
        scratch[top_at] = highest
    else:
        scratch[sum_at] += vsum(sums)


@compiled
def fetch_keys(
    keys: np.ndarray, kv_head: int, table: np.ndarray, block_tokens: int, first: int, count: int,
    scratch: np.ndarray, at: int, dim: int,
) -> None:  # fmt: skip
    """A tile of keys, turned over: panels of [dim, PANEL positions]. What lies beyond `count` is anything."""
    head_at = kv_head * keys.shape[1] * dim
    whole = block_tokens % LANES == 0 and dim % LANES == 0
    for start in range(0, count, LANES):
        target = at + start // PANEL * dim * PANEL + start % PANEL
        if whole:
            position = first + start
            slot = table[position // block_tokens] * block_tokens + position % block_tokens
            for d in range(0, dim, LANES):
                turn_over(scratch, target + d * PANEL, PANEL, keys, head_at + slot * dim + d, dim)
        else:
            for j in range(min(LANES, count - start)):
                position = first + start + j
                slot = table[position // block_tokens] * block_tokens + position % block_tokens
                for d in range(dim):
                    scratch[target + d * PANEL + j] = keys[kv_head, slot, d]


@compiled
def fetch_values(
    values: np.ndarray, kv_head: int, table: np.ndarray, block_tokens: int, first: int, count: int,
    scratch: np.ndarray, at: int, dim: int,
) -> None:  # fmt: skip
    """A tile of values: panels of [KEYS positions, PANEL], columns beyond dim zero."""
    head_at = kv_head * values.shape[1] * dim
    for j in range(count):
        position = first + j
        slot = table[position // block_tokens] * block_tokens + position % block_tokens
        source = head_at + slot * dim
        for column in range(0, dim, PANEL):
            target = at + (column // PANEL * KEYS + j) * PANEL
            if column + PANEL <= dim:
                for part in range(0, PANEL, LANES):
                    vstore(scratch, target + part, vload(values, source + column + part))
            else:
                for d in range(PANEL):
                    scratch[target + d] = (
                        values[kv_head, slot, column + d] if column + d < dim else np.float32(0.0)
                    )


@compiled
def write_rows(
    k: np.ndarray,
    v: np.ndarray,
    strides: tuple[int, int],
    slots: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    start: int,
    stop: int,
) -> None:
    """Store positions start to stop of k and v, flat with position n at n * stride, at slots [n]."""
    kv_heads, _, dim = keys.shape
    for index in range(start, stop):
        slot = slots[index]
        for head in range(kv_heads):
            for d in range(dim):
                keys[head, slot, d] = k[index * strides[0] + head * dim + d]
                values[head, slot, d] = v[index * strides[1] + head * dim + d]


@compiled_parallel
def write(
    k: np.ndarray,
    v: np.ndarray,
    strides: tuple[int, int],
    slots: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    threads: int,
) -> None:
    """`write_rows` for all positions, shared out."""
    count = len(slots)
    for thread in numba.prange(threads):
        start, stop = count * thread // threads, count * (thread + 1) // threads
        write_rows(k, v, strides, slots, keys, values, start, stop)


def decodes_in_place(group: int, dim: int) -> bool:
    """Whether `decode_row` serves these sizes; `chunk_tile` serves any."""
    return dim % PANEL == 0 and group <= GROUPS
