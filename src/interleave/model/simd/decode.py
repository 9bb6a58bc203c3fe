"""One decode row: scores where the keys lie, one softmax, and a sum of values where they lie.

Memory sets the pace, so each key and value is read once, for all the query heads of its KV head, and asked
for one block before it is needed: blocks lie anywhere, which no hardware foresees. Every
position up to the row's span is read and computed with; those from its context on get no weight: their
part of the sum goes where nobody looks, so that NaN in stale memory does no harm.
"""

from __future__ import annotations

import numpy as np

from interleave.model.simd.compiled import compiled
from interleave.model.simd.forms import PANEL
from interleave.model.simd.scores import GROUPS, dot_keys
from interleave.model.simd.tiles import ROWS, multiply_tile, multiply_tile_ahead
from interleave.model.simd.vector import (
    LANES,
    vadd,
    vload,
    vmax,
    vmul,
    vpower,
    vsplat,
    vstore,
    vsub,
    vsum,
    vtop,
)

LOWEST = np.float32(-np.inf)


def decodes_in_place(group: int, dim: int) -> bool:
    """Whether `decode_row` serves these sizes; `chunk_tile` serves any."""
    return dim % PANEL == 0 and group <= GROUPS


def decode_floats(group: int, dim: int, span: int) -> int:
    """Scratch of a decode row: scores, queries, and where work without weight goes."""
    return group * (-(-span // LANES) * LANES + 2 * dim)


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
        ahead, after = keys, first + block_tokens
        if after >= span:
            ahead, after = values, 0
        ahead_at = head_at + table[after // block_tokens] * block_tokens * dim
        dot_keys(
            group, scratch, first, stride, scratch, queries, keys, head_at + slot * dim, ahead, ahead_at,
            dim, count,
        )  # fmt: skip
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
        after = min(first // block_tokens + 1, (span - 1) // block_tokens)
        ahead_at = head_at + table[after] * block_tokens * dim
        for column in range(0, dim, PANEL):
            for head in range(0, group, ROWS):
                rows, weight_at = min(ROWS, group - head), head * stride + first
                if seen > 0:
                    multiply_tile_ahead(
                        rows, out, out_at + head * dim + column, dim, scratch, weight_at, stride,
                        values, value_at + column, dim, seen, True, values, ahead_at + column,
                    )  # fmt: skip
                if seen < count:
                    multiply_tile(
                        rows, scratch, sink + head * dim + column, dim, scratch, weight_at + seen, stride,
                        values, value_at + seen * dim + column, dim, count - seen, False,
                    )  # fmt: skip


@compiled
def softmax_row(scores: np.ndarray, at: int, seen: int, padded_span: int) -> None:
    """The softmax of `seen` powers of two in place, and zeros up to `padded_span`, in whole vectors."""
    for index in range(seen, padded_span):
        scores[at + index] = LOWEST
    top = vload(scores, at)
    for index in range(LANES, padded_span, LANES):
        top = vmax(top, vload(scores, at + index))
    highest = vsplat(vtop(top))
    sums = vsplat(np.float32(0.0))
    for index in range(0, padded_span, LANES):
        weight = vpower(vsub(vload(scores, at + index), highest))
        vstore(scores, at + index, weight)
        sums = vadd(sums, weight)
    share = vsplat(np.float32(1.0) / vsum(sums))
    for index in range(0, padded_span, LANES):
        vstore(scores, at + index, vmul(vload(scores, at + index), share))
