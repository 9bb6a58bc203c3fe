"""A tile of a chunk's queries over its context, in tiles of keys that stay in the cache.

Online softmax (Milakov & Gimelshein, 2018; FlashAttention): a running maximum and sum a row, and the two
products are those of the linear layers, with keys turned over and values laid out as panels. Positions
after a query's own have no weight. Any head size, any group, any block size.
"""

from __future__ import annotations

import numpy as np

from interleave.model.simd.compiled import compiled
from interleave.model.simd.forms import PANEL
from interleave.model.simd.scores import turn_over
from interleave.model.simd.tiles import ROWS, multiply_tile
from interleave.model.simd.vector import (
    LANES,
    vadd,
    vload,
    vmax,
    vmul,
    vsplat,
    vstore,
    vsub,
    vsum,
    vtop,
    vweight,
)

KEYS = 128
"""Positions in a tile of keys; a multiple of PANEL."""

LOWEST = np.float32(-np.inf)


def tile_floats(rows: int, dim: int) -> int:
    """Scratch of a chunk tile: queries, context, maximum and sum; keys, values, and scores of ROWS rows."""
    wide = -(-dim // PANEL) * PANEL
    return rows * (dim + wide + 1 + LANES) + KEYS * (dim + wide + ROWS) + ROWS


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

    Tile row i * group + g is query i of head g. Scores of a few rows at a time are made, weighed and used
    while they are in the first-level cache.
    """
    heads, kv_heads, dim, block_tokens = sizes
    group = heads // kv_heads
    rows = count * group
    wide = (dim + PANEL - 1) // PANEL * PANEL
    k_at = rows * dim
    v_at = k_at + KEYS * dim
    s_at = v_at + KEYS * wide
    c_at = s_at + ROWS * KEYS
    top_at = c_at + rows * wide
    sum_at = top_at + rows
    new_at = sum_at + rows * LANES
    for i in range(count):
        source = (at + i) * q_stride + kv_head * group * dim
        for index in range(group * dim):
            scratch[i * group * dim + index] = q[source + index] * scale
    for index in range(c_at, top_at):
        scratch[index] = 0.0
    for row in range(rows):
        scratch[top_at + row] = LOWEST
        vstore(scratch, sum_at + row * LANES, vsplat(np.float32(0.0)))
    limit = first_position + count
    for first in range(0, limit, KEYS):
        num_keys = min(KEYS, limit - first)
        fetch_keys(keys, kv_head, table, block_tokens, first, num_keys, scratch, k_at, dim)
        fetch_values(values, kv_head, table, block_tokens, first, num_keys, scratch, v_at, dim)
        # Rows whose queries all come before this tile of keys have nothing to see in it.
        first_row = max(0, first - first_position) * group // ROWS * ROWS
        for row in range(first_row, rows, ROWS):
            num_rows = min(ROWS, rows - row)
            last = first_position + (row + num_rows - 1) // group
            visible = min(num_keys, last + 1 - first)
            if visible <= 0:
                continue
            num_panels = (visible + PANEL - 1) // PANEL
            for panel in range(num_panels):
                multiply_tile(
                    num_rows, scratch, s_at + panel * PANEL, KEYS,
                    scratch, row * dim, dim, scratch, k_at + panel * dim * PANEL, PANEL, dim, False,
                )  # fmt: skip
            for one in range(num_rows):
                seen = min(num_keys, first_position + (row + one) // group + 1 - first)
                find_top(
                    scratch, s_at + one * KEYS, seen, num_panels * PANEL, top_at + row + one, new_at + one
                )
            for one in range(num_rows):
                follow_top(
                    scratch, top_at + row + one, new_at + one, sum_at + (row + one) * LANES,
                    c_at + (row + one) * wide, wide,
                )  # fmt: skip
            for one in range(num_rows):
                weigh_scores(
                    scratch, s_at + one * KEYS, num_panels * PANEL, new_at + one, sum_at + (row + one) * LANES
                )
            for panel in range(wide // PANEL):
                multiply_tile(
                    num_rows, scratch, c_at + row * wide + panel * PANEL, wide,
                    scratch, s_at, KEYS, scratch, v_at + panel * KEYS * PANEL, PANEL, visible, True,
                )  # fmt: skip
    for row in range(rows):
        share = np.float32(1.0) / vsum(vload(scratch, sum_at + row * LANES))
        i, head = at + row // group, kv_head * group + row % group
        for d in range(dim):
            out[i, head, d] = scratch[c_at + row * wide + d] * share


@compiled
def find_top(scratch: np.ndarray, at: int, seen: int, width: int, top_at: int, new_at: int) -> None:
    """Blot out what a row does not see; its running maximum, these scores included, goes to `new_at`."""
    for index in range(max(0, seen), width):
        scratch[at + index] = LOWEST
    top = vsplat(scratch[top_at])
    for index in range(0, width, LANES):
        top = vmax(vload(scratch, at + index), top)
    scratch[new_at] = vtop(top)


@compiled
def follow_top(
    scratch: np.ndarray, top_at: int, new_at: int, sums_at: int, context_at: int, wide: int
) -> None:
    """A row's sums and context shrink to a higher maximum."""
    before, highest = scratch[top_at], scratch[new_at]
    if highest > before:
        shrink = vweight(vsub(vsplat(before), vsplat(highest)))
        for index in range(0, wide, LANES):
            vstore(scratch, context_at + index, vmul(vload(scratch, context_at + index), shrink))
        vstore(scratch, sums_at, vmul(vload(scratch, sums_at), shrink))
        scratch[top_at] = highest


@compiled
def weigh_scores(scratch: np.ndarray, at: int, width: int, new_at: int, sums_at: int) -> None:
    """Scores to weights under the maximum; the row's sums, one a lane, take them in."""
    highest = vsplat(scratch[new_at])
    sums = vload(scratch, sums_at)
    for index in range(0, width, LANES):
        weight = vweight(vsub(vload(scratch, at + index), highest))
        vstore(scratch, at + index, weight)
        sums = vadd(sums, weight)
    vstore(scratch, sums_at, sums)


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
