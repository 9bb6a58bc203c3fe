"""A tile of a chunk's queries over its context, in tiles of keys that stay in the cache.

Online softmax (Milakov & Gimelshein, 2018; FlashAttention) with queries along the lanes: a panel holds
PANEL of them turned over, [dim, PANEL], and keys and values are read where they lie. Scores come out as
[keys, PANEL], so maxima, weights and sums are vertical, and are at once the panel that the values are
multiplied with. Positions after a query's own have no weight. Any head size, any group, any block size.
"""

from __future__ import annotations

import numpy as np

from interleave.model.simd.compiled import compiled
from interleave.model.simd.forms import PANEL
from interleave.model.simd.panels import fill_panel, spill_panel
from interleave.model.simd.tiles import ROWS, multiply_tile, multiply_turned_tile
from interleave.model.simd.vector import (
    LANES,
    vadd,
    vload,
    vmax,
    vmul,
    vpower,
    vstore,
    vsub,
    vtop,
)

KEYS = 64
"""Positions in a tile of keys."""

LOWEST = np.float32(-np.inf)

SLACK = np.float32(8.0)
"""Powers of two by which a score may exceed the maximum that its row's weights refer to. Sums below
2**8 times their number lose no bit to it, and what has been summed need not shrink at every new maximum."""


def tile_floats(rows: int, dim: int) -> int:
    """Scratch of a chunk tile: queries, context, maximum and sum; scores of a panel; keys and values."""
    panels = -(-rows // PANEL)
    return panels * PANEL * (2 * dim + 2) + KEYS * (PANEL + 2 * dim)


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

    Lane i * group + g is query i of head g. scale turns products into powers of two.
    """
    heads, kv_heads, dim, block_tokens = sizes
    group = heads // kv_heads
    lanes = count * group
    num_panels = (lanes + PANEL - 1) // PANEL
    size = dim * PANEL
    c_at = num_panels * size
    top_at = c_at + num_panels * size
    sum_at = top_at + num_panels * PANEL
    s_at = sum_at + num_panels * PANEL
    k_at = s_at + KEYS * PANEL
    v_at = k_at + KEYS * dim
    query = at * heads + kv_head * group
    for panel in range(num_panels):
        fill_panel(
            q, at * q_stride + kv_head * group * dim, q_stride, group, dim, panel * PANEL, lanes, scale,
            scratch, panel * size, s_at,
        )  # fmt: skip
    for index in range(c_at, top_at):
        scratch[index] = 0.0
    for index in range(num_panels * PANEL):
        scratch[top_at + index] = LOWEST
        scratch[sum_at + index] = 0.0
    flat_keys, flat_values = keys.reshape(keys.size), values.reshape(values.size)
    head_at = kv_head * keys.shape[1] * dim
    limit = first_position + count
    for first in range(0, limit, KEYS):
        num_keys = min(KEYS, limit - first)
        slot = run_of(table, block_tokens, first, num_keys)
        if slot >= 0:
            k_from, k_first, v_from, v_first = (
                flat_keys,
                head_at + slot * dim,
                flat_values,
                head_at + slot * dim,
            )
        else:
            gather(keys, kv_head, table, block_tokens, first, num_keys, scratch, k_at)
            gather(values, kv_head, table, block_tokens, first, num_keys, scratch, v_at)
            k_from, k_first, v_from, v_first = scratch, k_at, scratch, v_at
        # Panels whose queries all come before this tile of keys have nothing to see in it.
        for panel in range(max(0, first - first_position) * group // PANEL, num_panels):
            last = first_position + (min(lanes, (panel + 1) * PANEL) - 1) // group
            visible = min(num_keys, last + 1 - first)
            if visible <= 0:
                continue
            tiles = (visible + ROWS - 1) // ROWS
            for tile in range(tiles):
                start, stop = visible * tile // tiles, visible * (tile + 1) // tiles
                multiply_tile(
                    stop - start, scratch, s_at + start * PANEL, PANEL,
                    k_from, k_first + start * dim, dim, scratch, panel * size, PANEL, dim, False,
                )  # fmt: skip
            hide_later(scratch, s_at, visible, (first - first_position) * group - panel * PANEL, group)
            weigh(
                scratch,
                s_at,
                visible,
                top_at + panel * PANEL,
                sum_at + panel * PANEL,
                c_at + panel * size,
                dim,
            )
            tiles = (dim + ROWS - 1) // ROWS
            for tile in range(tiles):
                start, stop = dim * tile // tiles, dim * (tile + 1) // tiles
                multiply_turned_tile(
                    stop - start, scratch, c_at + panel * size + start * PANEL, PANEL,
                    v_from, v_first + start, dim, scratch, s_at, PANEL, visible, True,
                )  # fmt: skip
    for panel in range(num_panels):
        spill_panel(
            scratch, c_at + panel * size, sum_at + panel * PANEL, s_at, panel * PANEL, lanes, group, dim,
            out, query * dim, heads * dim,
        )  # fmt: skip


@compiled
def hide_later(scratch: np.ndarray, at: int, num_keys: int, ahead: int, group: int) -> None:
    """No weight for keys after a lane's own position; key 0's first `ahead` lanes come before it."""
    for key in range(num_keys):
        for lane in range(ahead + key * group):
            scratch[at + key * PANEL + lane] = LOWEST


@compiled
def weigh(
    scratch: np.ndarray, at: int, num_keys: int, top_at: int, sum_at: int, context_at: int, dim: int
) -> None:
    """Scores [num_keys, PANEL] to weights relative to each lane's maximum, which its sum takes in.

    The maximum follows when a score exceeds it by more than SLACK; sum and context then shrink.
    """
    before, before_too = vload(scratch, top_at), vload(scratch, top_at + LANES)
    top, top_too = before, before_too
    for index in range(at, at + num_keys * PANEL, PANEL):
        top, top_too = vmax(vload(scratch, index), top), vmax(vload(scratch, index + LANES), top_too)
    if vtop(vmax(vsub(top, before), vsub(top_too, before_too))) > SLACK:
        shrink, shrink_too = vpower(vsub(before, top)), vpower(vsub(before_too, top_too))
        for index in range(context_at, context_at + dim * PANEL, PANEL):
            vstore(scratch, index, vmul(vload(scratch, index), shrink))
            vstore(scratch, index + LANES, vmul(vload(scratch, index + LANES), shrink_too))
        vstore(scratch, sum_at, vmul(vload(scratch, sum_at), shrink))
        vstore(scratch, sum_at + LANES, vmul(vload(scratch, sum_at + LANES), shrink_too))
        vstore(scratch, top_at, top)
        vstore(scratch, top_at + LANES, top_too)
        before, before_too = top, top_too
    sums, sums_too = vload(scratch, sum_at), vload(scratch, sum_at + LANES)
    for index in range(at, at + num_keys * PANEL, PANEL):
        weight = vpower(vsub(vload(scratch, index), before))
        weight_too = vpower(vsub(vload(scratch, index + LANES), before_too))
        vstore(scratch, index, weight)
        vstore(scratch, index + LANES, weight_too)
        sums, sums_too = vadd(sums, weight), vadd(sums_too, weight_too)
    vstore(scratch, sum_at, sums)
    vstore(scratch, sum_at + LANES, sums_too)


@compiled
def run_of(table: np.ndarray, block_tokens: int, first: int, count: int) -> int:
    """The slot of position `first` if the `count` positions from it on lie in one run, else -1."""
    block = first // block_tokens
    for index in range(block, (first + count - 1) // block_tokens):
        if table[index + 1] != table[index] + 1:
            return -1
    return table[block] * block_tokens + first % block_tokens


@compiled
def gather(
    source: np.ndarray, kv_head: int, table: np.ndarray, block_tokens: int, first: int, count: int,
    scratch: np.ndarray, at: int,
) -> None:  # fmt: skip
    """`count` positions of one KV head, from wherever they lie, to [count, dim]."""
    dim = source.shape[2]
    for j in range(count):
        position = first + j
        slot = table[position // block_tokens] * block_tokens + position % block_tokens
        for d in range(dim):
            scratch[at + j * dim + d] = source[kv_head, slot, d]
