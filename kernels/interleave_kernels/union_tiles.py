"""Decode rows packed in query tiles that walk the union of their rows' blocks: the baseline to beat.

It is what a packed-prefill kernel does to decode rows that are handed to it as one query sequence. A
program owns one (tile of 32 rows, head) and walks, one after the other, every block that any of its
rows owns; each block counts for one row and is masked for the other 31. No bytes are wasted, but
31/32 of the FLOPs are, and nothing spreads over the machine: 32 rows leave `heads` programs, each as
long as all contexts together. Work per program: 4 * 32 * (sum of contexts) * head_dim FLOPs over
2 * (sum of contexts) * head_dim elements of cache.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

QUERIES = 32
"""Rows per tile, as published."""


@triton.jit(do_not_specialize=["num_rows", "group_size"])
def _union_tiles(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    rows_ptr,
    context_lens_ptr,
    tile_starts_ptr,
    blocks_ptr,
    owners_ptr,
    block_starts_ptr,
    scale,
    num_rows,
    group_size,
    stride_q_row,
    stride_q_head,
    stride_out_row,
    stride_out_head,
    stride_cache_head,
    stride_cache_slot,
    HEAD_DIM: tl.constexpr,  # the tile's width
    BLOCK_TOKENS: tl.constexpr,  # fixed for an engine
    BLOCK_TILE: tl.constexpr,  # the same, padded to a power of two that tl.dot takes
    TILE_ROWS: tl.constexpr,
):
    tile, head = tl.program_id(0), tl.program_id(1)
    index = tile * TILE_ROWS + tl.arange(0, TILE_ROWS)
    real = index < num_rows
    row = tl.load(rows_ptr + index, mask=real, other=0)
    context_len = tl.load(context_lens_ptr + index, mask=real, other=0)
    lane = tl.arange(0, HEAD_DIM)
    q = tl.load(
        q_ptr + row[:, None] * stride_q_row + head * stride_q_head + lane[None, :],
        mask=real[:, None],
        other=0.0,
    )
    highest = tl.full((TILE_ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((TILE_ROWS,), tl.float32)
    acc = tl.zeros((TILE_ROWS, HEAD_DIM), tl.float32)
    cache_head = tl.cast(head // group_size, tl.int64) * stride_cache_head
    offset = tl.arange(0, BLOCK_TILE)
    for entry in range(tl.load(tile_starts_ptr + tile), tl.load(tile_starts_ptr + tile + 1)):
        owner = tl.load(owners_ptr + entry)
        position = tl.load(block_starts_ptr + entry) + offset
        # One row owns the block, so its length bounds what of the block was ever written.
        length = tl.load(context_lens_ptr + owner)
        written = (offset < BLOCK_TOKENS) & (position < length)
        slot = tl.load(blocks_ptr + entry).to(tl.int64) * BLOCK_TOKENS + offset
        at = cache_head + slot * stride_cache_slot
        k = tl.load(k_ptr + at[:, None] + lane[None, :], mask=written[:, None], other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        visible = (index == owner)[:, None] & (position[None, :] < context_len[:, None]) & written[None, :]
        scores = tl.where(visible, scores, float("-inf"))
        new_highest = tl.maximum(highest, tl.max(scores, 1))
        # Until a row meets its first block its maximum is -inf; 0 keeps the exponents finite.
        shift = tl.where(new_highest == float("-inf"), 0.0, new_highest)
        weights = tl.exp(scores - shift[:, None])
        rescale = tl.exp(highest - shift)
        v = tl.load(v_ptr + at[:, None] + lane[None, :], mask=written[:, None], other=0.0)
        acc = acc * rescale[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        total = total * rescale + tl.sum(weights, 1)
        highest = new_highest
    total = tl.where(real, total, 1.0)
    tl.store(
        out_ptr + row[:, None] * stride_out_row + head * stride_out_head + lane[None, :],
        acc / total[:, None],
        mask=real[:, None],
    )


def union_tiles(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    rows: torch.Tensor,
    context_lens: torch.Tensor,
    tile_starts: torch.Tensor,
    blocks: torch.Tensor,
    owners: torch.Tensor,
    block_starts: torch.Tensor,
    block_tokens: int,
    scale: float,
    out: torch.Tensor,
) -> None:
    """Fill out[rows] with the attention of q[rows].

    q, out: [n, heads, head_dim]; caches: [kv_heads, slots, head_dim]; rows: int64 [r], packed
    positions; context_lens: int32 [r], at least 1 each; tile_starts: int32 [ceil(r / QUERIES) + 1],
    where each tile's entries begin; blocks, owners, block_starts: int32 [entries], a block, which of
    the r rows owns it, and the position of its first token.
    """
    _, heads, head_dim = q.shape
    kv_heads = k_cache.shape[0]
    tiles = triton.cdiv(len(rows), QUERIES)
    assert heads % kv_heads == 0
    assert head_dim == k_cache.shape[2]
    assert k_cache.stride() == v_cache.stride()
    assert q.stride(2) == k_cache.stride(2) == out.stride(2) == 1
    assert context_lens.shape == (len(rows),)
    assert tile_starts.shape == (tiles + 1,)
    assert blocks.shape == owners.shape == block_starts.shape
    _union_tiles[(tiles, heads)](
        q, k_cache, v_cache, out, rows, context_lens, tile_starts, blocks, owners, block_starts,
        scale, len(rows), heads // kv_heads,
        q.stride(0), q.stride(1), out.stride(0), out.stride(1),
        k_cache.stride(0), k_cache.stride(1),
        HEAD_DIM=head_dim, BLOCK_TOKENS=block_tokens,
        BLOCK_TILE=max(16, triton.next_power_of_2(block_tokens)), TILE_ROWS=QUERIES,
    )  # fmt: skip
