"""Attention of one query position per row over the row's own blocks, split over the context.

A program owns one (row, KV head, split): it walks its share of the context for all query heads
that share the KV head, and leaves an unnormalised context with its running maximum and sum. A
second kernel merges the splits (Flash-Decoding, Dao et al., 2023). Bytes per row and KV head:
2 * context * head_dim elements of cache, each read once; the partials are negligible beside them.
Numbers that change from step to step (splits, table width) are not specialised on: a count that
happens to be 1 or a multiple of 16 would compile anew in the middle of a run.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

SPLIT_TOKENS = 512
"""Context per program: long rows spread over many programs, short ones take one."""


@triton.jit(do_not_specialize=["group_size", "kv_heads", "num_splits", "stride_table"])
def _decode_split(
    q_ptr,
    k_ptr,
    v_ptr,
    rows_ptr,
    tables_ptr,
    context_lens_ptr,
    spans_ptr,
    partial_ptr,
    stats_ptr,
    scale,
    group_size,
    kv_heads,
    num_splits,
    stride_q_row,
    stride_q_head,
    stride_cache_head,
    stride_cache_slot,
    stride_table,
    GROUP_TILE: tl.constexpr,  # query heads of a KV head, padded to what tl.dot takes
    HEAD_DIM: tl.constexpr,  # the tile's width
    BLOCK_TOKENS: tl.constexpr,  # fixed for an engine: turns a division per lane into a shift
    TILE: tl.constexpr,  # positions per iteration
    SPLIT: tl.constexpr,  # positions per program, a multiple of TILE
):
    index, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    row = tl.load(rows_ptr + index)
    context_len = tl.load(context_lens_ptr + index)
    span = tl.load(spans_ptr + index)
    member = tl.arange(0, GROUP_TILE)
    lane = tl.arange(0, HEAD_DIM)
    real = member < group_size
    head = kv_head * group_size + member
    q = tl.load(
        q_ptr + row * stride_q_row + head[:, None] * stride_q_head + lane[None, :],
        mask=real[:, None],
        other=0.0,
    )
    highest = tl.full((GROUP_TILE,), float("-inf"), tl.float32)
    total = tl.zeros((GROUP_TILE,), tl.float32)
    acc = tl.zeros((GROUP_TILE, HEAD_DIM), tl.float32)
    begin = split * SPLIT
    cache_head = tl.cast(kv_head, tl.int64) * stride_cache_head
    for start in range(begin, tl.minimum(begin + SPLIT, span), TILE):
        position = start + tl.arange(0, TILE)
        seen = position < context_len
        # The span is read whole, as a masked kernel would: what lies beyond the context is dropped
        # after the load, so that a layout which walks the widest row pays for it.
        walked = position < span
        block = tl.load(tables_ptr + index * stride_table + position // BLOCK_TOKENS, mask=walked, other=0)
        slot = block.to(tl.int64) * BLOCK_TOKENS + position % BLOCK_TOKENS
        at = cache_head + slot * stride_cache_slot
        k = tl.load(k_ptr + at[:, None] + lane[None, :], mask=walked[:, None], other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        scores = tl.where(seen[None, :], scores, float("-inf"))
        new_highest = tl.maximum(highest, tl.max(scores, 1))
        # A tile beyond the context leaves the maximum at -inf; 0 keeps the exponents finite.
        shift = tl.where(new_highest == float("-inf"), 0.0, new_highest)
        weights = tl.exp(scores - shift[:, None])
        rescale = tl.exp(highest - shift)
        v = tl.load(v_ptr + at[:, None] + lane[None, :], mask=walked[:, None], other=0.0)
        v = tl.where(seen[:, None], v, 0.0)
        acc = acc * rescale[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        total = total * rescale + tl.sum(weights, 1)
        highest = new_highest
    part = ((index * kv_heads + kv_head) * num_splits + split) * GROUP_TILE + member
    # A split beyond the context leaves a maximum of -inf, and the merge looks no further: as many are
    # launched as the longest row needs, or the longest that a recording allows for.
    if begin < span:
        tl.store(partial_ptr + part[:, None] * HEAD_DIM + lane[None, :], acc)
    tl.store(stats_ptr + part * 2, highest)
    tl.store(stats_ptr + part * 2 + 1, total)


@triton.jit(do_not_specialize=["group_size", "kv_heads", "num_splits"])
def _decode_merge(
    partial_ptr,
    stats_ptr,
    rows_ptr,
    out_ptr,
    group_size,
    kv_heads,
    num_splits,
    stride_out_row,
    stride_out_head,
    GROUP_TILE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
):
    index, head = tl.program_id(0), tl.program_id(1)
    row = tl.load(rows_ptr + index)
    kv_head, member = head // group_size, head % group_size
    lane = tl.arange(0, HEAD_DIM)
    highest = float("-inf")
    total = 0.0
    acc = tl.zeros((HEAD_DIM,), tl.float32)
    for split in range(num_splits):
        part = ((index * kv_heads + kv_head) * num_splits + split) * GROUP_TILE + member
        part_highest = tl.load(stats_ptr + part * 2)
        # Splits beyond the context hold a maximum of -inf and are left out.
        if part_highest > float("-inf"):
            new_highest = tl.maximum(highest, part_highest)
            old, new = tl.exp(highest - new_highest), tl.exp(part_highest - new_highest)
            acc = acc * old + tl.load(partial_ptr + part * HEAD_DIM + lane) * new
            total = total * old + tl.load(stats_ptr + part * 2 + 1) * new
            highest = new_highest
    tl.store(out_ptr + row * stride_out_row + head * stride_out_head + lane, acc / total)


def tile_tokens(head_bytes: int) -> int:
    """Positions per iteration for heads of so many bytes, whatever the block size: each lane looks up
    its own block. Twice as many of 512 bytes want more shared memory than an sm_86 block can have."""
    return 64 if head_bytes <= 256 else 32


def paged_decode(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    rows: torch.Tensor,
    tables: torch.Tensor,
    context_lens: torch.Tensor,
    spans: torch.Tensor,
    longest_span: int,
    block_tokens: int,
    scale: float,
    out: torch.Tensor,
) -> None:
    """Fill out[rows] with the attention of q[rows].

    q, out: [n, heads, head_dim]; caches: [kv_heads, slots, head_dim]; rows: int64 [r], packed
    positions; tables: int32 [r, blocks]; context_lens, spans: int32 [r]; longest_span: their
    maximum, known on the host. Positions from context_len to span are walked and masked.
    """
    _, heads, head_dim = q.shape
    kv_heads = k_cache.shape[0]
    group_size = heads // kv_heads
    assert heads % kv_heads == 0
    assert head_dim == k_cache.shape[2]
    assert k_cache.stride() == v_cache.stride()
    assert q.stride(2) == k_cache.stride(2) == out.stride(2) == 1
    assert tables.stride(1) == 1
    group_tile = max(16, triton.next_power_of_2(group_size))
    num_splits = triton.cdiv(longest_span, SPLIT_TOKENS)
    shape = (len(rows), kv_heads, num_splits, group_tile)
    partial = torch.empty((*shape, head_dim), dtype=torch.float32, device=q.device)
    stats = torch.empty((*shape, 2), dtype=torch.float32, device=q.device)
    _decode_split[(len(rows), kv_heads, num_splits)](
        q, k_cache, v_cache, rows, tables, context_lens, spans, partial, stats,
        scale, group_size, kv_heads, num_splits,
        q.stride(0), q.stride(1), k_cache.stride(0), k_cache.stride(1), tables.stride(0),
        GROUP_TILE=group_tile, HEAD_DIM=head_dim, BLOCK_TOKENS=block_tokens, TILE=tile_tokens(head_dim * q.element_size()), SPLIT=SPLIT_TOKENS,
    )  # fmt: skip
    _decode_merge[(len(rows), heads)](
        partial, stats, rows, out,
        group_size, kv_heads, num_splits, out.stride(0), out.stride(1),
        GROUP_TILE=group_tile, HEAD_DIM=head_dim,
    )  # fmt: skip
