"""Causal attention of packed chunks over history and themselves, read from the cache.

The query dimension is the packed sequence in tiles that never span two rows; a program owns one
(tile, head) and walks only the blocks of its row, up to the tile's last position. Work per tile:
4 * queries * context * head_dim FLOPs, reading 2 * context * head_dim elements of cache.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

TILES = {2: 64, 4: 32}
"""Queries per tile, by bytes per element: two float32 tiles of 64 want more shared memory than an sm_86
block can have."""


@triton.jit(do_not_specialize=["group_size", "stride_table"])
def _packed_prefill(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    tile_rows_ptr,
    tile_starts_ptr,
    query_starts_ptr,
    context_lens_ptr,
    tables_ptr,
    scale,
    group_size,
    stride_q_row,
    stride_q_head,
    stride_out_row,
    stride_out_head,
    stride_cache_head,
    stride_cache_slot,
    stride_table,
    HEAD_DIM: tl.constexpr,  # the tile's width
    BLOCK_TOKENS: tl.constexpr,  # fixed for an engine: turns a division per lane into a shift
    QUERIES: tl.constexpr,  # query positions per program
    TILE: tl.constexpr,  # cached positions per iteration
):
    tile, head = tl.program_id(0), tl.program_id(1)
    row = tl.load(tile_rows_ptr + tile)
    first = tl.load(query_starts_ptr + row)
    query_len = tl.load(query_starts_ptr + row + 1) - first
    context_len = tl.load(context_lens_ptr + row)
    local = tl.load(tile_starts_ptr + tile) + tl.arange(0, QUERIES)
    asked = local < query_len
    query_position = context_len - query_len + local
    lane = tl.arange(0, HEAD_DIM)
    packed = (first + local).to(tl.int64)
    q = tl.load(
        q_ptr + packed[:, None] * stride_q_row + head * stride_q_head + lane[None, :],
        mask=asked[:, None],
        other=0.0,
    )
    highest = tl.full((QUERIES,), float("-inf"), tl.float32)
    total = tl.zeros((QUERIES,), tl.float32)
    acc = tl.zeros((QUERIES, HEAD_DIM), tl.float32)
    cache_head = tl.cast(head // group_size, tl.int64) * stride_cache_head
    last = tl.minimum(context_len, context_len - query_len + tl.load(tile_starts_ptr + tile) + QUERIES)
    for start in range(0, last, TILE):
        position = start + tl.arange(0, TILE)
        cached = position < last
        block = tl.load(tables_ptr + row * stride_table + position // BLOCK_TOKENS, mask=cached, other=0)
        slot = block.to(tl.int64) * BLOCK_TOKENS + position % BLOCK_TOKENS
        at = cache_head + slot * stride_cache_slot
        k = tl.load(k_ptr + at[:, None] + lane[None, :], mask=cached[:, None], other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        # No position beyond the last query is visible, so what lies beyond the walk is masked here too.
        visible = position[None, :] <= query_position[:, None]
        scores = tl.where(visible, scores, float("-inf"))
        # Every query sees position 0, so the maximum is finite from the first tile on.
        new_highest = tl.maximum(highest, tl.max(scores, 1))
        weights = tl.exp(scores - new_highest[:, None])
        rescale = tl.exp(highest - new_highest)
        v = tl.load(v_ptr + at[:, None] + lane[None, :], mask=cached[:, None], other=0.0)
        acc = acc * rescale[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        total = total * rescale + tl.sum(weights, 1)
        highest = new_highest
    tl.store(
        out_ptr + packed[:, None] * stride_out_row + head * stride_out_head + lane[None, :],
        acc / total[:, None],
        mask=asked[:, None],
    )


def tile_tokens(head_bytes: int) -> int:
    """Cached positions per iteration for heads of so many bytes: with 64 of 256 bytes sm_86 spills."""
    return 64 if head_bytes <= 128 else 32


def packed_prefill(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    tile_rows: torch.Tensor,
    tile_starts: torch.Tensor,
    query_starts: torch.Tensor,
    context_lens: torch.Tensor,
    tables: torch.Tensor,
    block_tokens: int,
    scale: float,
    out: torch.Tensor,
) -> None:
    """Fill the packed positions that the tiles cover.

    q, out: [n, heads, head_dim]; caches: [kv_heads, slots, head_dim]; tile_rows, tile_starts:
    int32 [tiles], a row and the first of its own query positions in the tile, TILES[bytes per
    element] apart; query_starts: int32
    [rows + 1]; context_lens: int32 [rows]; tables: int32 [rows, blocks].
    """
    _, heads, head_dim = q.shape
    kv_heads = k_cache.shape[0]
    assert heads % kv_heads == 0
    assert head_dim == k_cache.shape[2]
    assert k_cache.stride() == v_cache.stride()
    assert q.stride(2) == k_cache.stride(2) == out.stride(2) == 1
    assert tables.stride(1) == 1
    _packed_prefill[(len(tile_rows), heads)](
        q, k_cache, v_cache, out, tile_rows, tile_starts, query_starts, context_lens, tables,
        scale, heads // kv_heads,
        q.stride(0), q.stride(1), out.stride(0), out.stride(1),
        k_cache.stride(0), k_cache.stride(1), tables.stride(0),
        HEAD_DIM=head_dim, BLOCK_TOKENS=block_tokens,
        QUERIES=TILES[q.element_size()], TILE=tile_tokens(head_dim * q.element_size()),
    )  # fmt: skip
