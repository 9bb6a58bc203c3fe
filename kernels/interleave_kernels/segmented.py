"""Attention of decode rows and chunks in one launch, no tile of which spans two requests.

A segment is a run of query positions of one request and the span of its context that they walk. A
program owns one (segment, KV head) and folds the query heads of that KV head into the tile's rows, so
each cached position is read once for all of them. A decode row, or a chunk's short end, takes a
narrow tile and is split over the context when it is long; the rest of a chunk takes wide tiles. Both
paths stand in one kernel: a forward of 32 decodes and a chunk is one launch, and a decode row costs
what it costs alone. Work per segment and KV head: 4 * queries * group * span * head_dim FLOPs over
2 * span * head_dim elements of cache.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

NARROW = 16
"""Rows of a narrow tile (queries times the heads of a group): the fewest that `tl.dot` takes."""
WIDE = {2: 64, 4: 32}
"""Rows of a wide tile, by bytes per element, as in `packed_prefill`."""
FIELDS = 7
"""Of a segment: row, first packed query, queries, position of the first, begin and end of the span it
walks, and where its partial result goes (-1: nowhere, the segment is whole). Spans are cut at multiples
of `SPLIT`, and end with the last query."""
SPLIT = 512
"""Context per program, as in `paged_decode`; a multiple of every tile."""


@triton.jit
def _attend(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    table_ptr,
    partial_ptr,
    stats_ptr,
    first,
    num_queries,
    first_position,
    begin,
    end,
    part,
    kv_head,
    scale,
    group_size,
    stride_q_row,
    stride_q_head,
    stride_out_row,
    stride_out_head,
    stride_cache_head,
    stride_cache_slot,
    HEAD_DIM: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr,
    PARTIAL_ROWS: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
):
    member = tl.arange(0, ROWS)
    query = member // group_size
    head = kv_head * group_size + member % group_size
    asked = query < num_queries
    lane = tl.arange(0, HEAD_DIM)
    packed = (first + query).to(tl.int64)
    q = tl.load(
        q_ptr + packed[:, None] * stride_q_row + head[:, None] * stride_q_head + lane[None, :],
        mask=asked[:, None],
        other=0.0,
    )
    highest = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    acc = tl.zeros((ROWS, HEAD_DIM), tl.float32)
    cache_head = tl.cast(kv_head, tl.int64) * stride_cache_head
    for start in range(begin, end, TILE):
        position = start + tl.arange(0, TILE)
        cached = position < end
        block = tl.load(table_ptr + position // BLOCK_TOKENS, mask=cached, other=0)
        slot = block.to(tl.int64) * BLOCK_TOKENS + position % BLOCK_TOKENS
        at = cache_head + slot * stride_cache_slot
        k = tl.load(k_ptr + at[:, None] + lane[None, :], mask=cached[:, None], other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        # The span ends with the last query or between two tiles: what lies beyond it is masked here too.
        visible = position[None, :] <= (first_position + query)[:, None]
        scores = tl.where(visible, scores, float("-inf"))
        new_highest = tl.maximum(highest, tl.max(scores, 1))
        # A split may lie behind all that a query sees: 0 keeps its exponents finite.
        shift = tl.where(new_highest == float("-inf"), 0.0, new_highest)
        weights = tl.exp(scores - shift[:, None])
        rescale = tl.exp(highest - shift)
        v = tl.load(v_ptr + at[:, None] + lane[None, :], mask=cached[:, None], other=0.0)
        acc = acc * rescale[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        total = total * rescale + tl.sum(weights, 1)
        highest = new_highest
    if part < 0:
        tl.store(
            out_ptr + packed[:, None] * stride_out_row + head[:, None] * stride_out_head + lane[None, :],
            acc / total[:, None],
            mask=asked[:, None],
        )
    else:
        at_part = (part + kv_head).to(tl.int64) * PARTIAL_ROWS + member
        tl.store(partial_ptr + at_part[:, None] * HEAD_DIM + lane[None, :], acc, mask=asked[:, None])
        tl.store(stats_ptr + at_part * 2, highest, mask=asked)
        tl.store(stats_ptr + at_part * 2 + 1, total, mask=asked)


@triton.jit(do_not_specialize=["group_size", "kv_heads", "stride_table"])
def _segmented(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    segments_ptr,
    tables_ptr,
    partial_ptr,
    stats_ptr,
    scale,
    group_size,
    kv_heads,
    stride_q_row,
    stride_q_head,
    stride_out_row,
    stride_out_head,
    stride_cache_head,
    stride_cache_slot,
    stride_table,
    HEAD_DIM: tl.constexpr,  # the tile's width
    BLOCK_TOKENS: tl.constexpr,  # fixed for an engine: turns a division per lane into a shift
    NARROW_ROWS: tl.constexpr,
    WIDE_ROWS: tl.constexpr,
    TILE: tl.constexpr,  # cached positions per iteration
    NUM_FIELDS: tl.constexpr,
):
    # Segments vary fastest, decodes first: the long tiles of a chunk fill in behind them.
    fields = segments_ptr + tl.program_id(0) * NUM_FIELDS
    kv_head = tl.program_id(1)
    table_ptr = tables_ptr + tl.load(fields).to(tl.int64) * stride_table
    first = tl.load(fields + 1)
    num_queries = tl.load(fields + 2)
    first_position = tl.load(fields + 3)
    begin = tl.load(fields + 4)
    end = tl.load(fields + 5)
    part = tl.load(fields + 6) * kv_heads
    if num_queries * group_size <= NARROW_ROWS:
        _attend(
            q_ptr, k_ptr, v_ptr, out_ptr, table_ptr, partial_ptr, stats_ptr,
            first, num_queries, first_position, begin, end, part, kv_head, scale, group_size,
            stride_q_row, stride_q_head, stride_out_row, stride_out_head,
            stride_cache_head, stride_cache_slot,
            HEAD_DIM, BLOCK_TOKENS, NARROW_ROWS, NARROW_ROWS, TILE,
        )  # fmt: skip
    else:
        _attend(
            q_ptr, k_ptr, v_ptr, out_ptr, table_ptr, partial_ptr, stats_ptr,
            first, num_queries, first_position, begin, end, part, kv_head, scale, group_size,
            stride_q_row, stride_q_head, stride_out_row, stride_out_head,
            stride_cache_head, stride_cache_slot,
            HEAD_DIM, BLOCK_TOKENS, NARROW_ROWS, WIDE_ROWS, TILE,
        )  # fmt: skip


@triton.jit(do_not_specialize=["group_size", "kv_heads"])
def _segmented_merge(
    partial_ptr,
    stats_ptr,
    merges_ptr,
    out_ptr,
    group_size,
    kv_heads,
    stride_out_row,
    stride_out_head,
    HEAD_DIM: tl.constexpr,
    ROWS: tl.constexpr,
):
    fields = merges_ptr + tl.program_id(0) * 4
    kv_head = tl.program_id(1)
    first_part = tl.load(fields)
    num_parts = tl.load(fields + 1)
    first = tl.load(fields + 2)
    num_queries = tl.load(fields + 3)
    member = tl.arange(0, ROWS)
    lane = tl.arange(0, HEAD_DIM)
    query = member // group_size
    asked = query < num_queries
    highest = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    acc = tl.zeros((ROWS, HEAD_DIM), tl.float32)
    for part in range(first_part, first_part + num_parts):
        at = (part * kv_heads + kv_head).to(tl.int64) * ROWS + member
        part_highest = tl.load(stats_ptr + at * 2, mask=asked, other=0.0)
        new_highest = tl.maximum(highest, part_highest)
        shift = tl.where(new_highest == float("-inf"), 0.0, new_highest)
        old, new = tl.exp(highest - shift), tl.exp(part_highest - shift)
        context = tl.load(
            partial_ptr + at[:, None] * HEAD_DIM + lane[None, :], mask=asked[:, None], other=0.0
        )
        acc = acc * old[:, None] + context * new[:, None]
        total = total * old + tl.load(stats_ptr + at * 2 + 1, mask=asked, other=1.0) * new
        highest = new_highest
    packed = (first + query).to(tl.int64)
    head = kv_head * group_size + member % group_size
    tl.store(
        out_ptr + packed[:, None] * stride_out_row + head[:, None] * stride_out_head + lane[None, :],
        acc / total[:, None],
        mask=asked[:, None],
    )


def tile_tokens(head_bytes: int) -> int:
    """Cached positions per iteration for heads of so many bytes: with more of them sm_86 spills."""
    return min(64, max(16, 8192 // head_bytes))


def segmented(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    segments: torch.Tensor,
    merges: torch.Tensor,
    num_parts: int,
    tables: torch.Tensor,
    block_tokens: int,
    scale: float,
    out: torch.Tensor,
) -> None:
    """Fill the packed positions that the segments cover.

    q, out: [n, heads, head_dim]; caches: [kv_heads, slots, head_dim]; segments: int32
    [segments, FIELDS], at most WIDE[bytes per element] queries times heads of a group each, and at
    most NARROW where it has a part; merges: int32 [split runs, 4], first part, parts, first packed
    query, queries; num_parts: of all runs; tables: int32 [rows, blocks].
    """
    _, heads, head_dim = q.shape
    kv_heads = k_cache.shape[0]
    group_size = heads // kv_heads
    assert heads % kv_heads == 0
    assert group_size <= NARROW, f"{group_size} query heads a KV head do not fit a tile of {NARROW}"
    assert head_dim == k_cache.shape[2]
    assert k_cache.stride() == v_cache.stride()
    assert q.stride(2) == k_cache.stride(2) == out.stride(2) == 1
    assert segments.is_contiguous()
    assert segments.shape[1:] == (FIELDS,)
    assert merges.is_contiguous()
    assert merges.shape[1:] == (4,)
    assert tables.stride(1) == 1
    size = q.element_size()
    shape = (num_parts, kv_heads, NARROW)
    partial = torch.empty((*shape, head_dim), dtype=torch.float32, device=q.device)
    stats = torch.empty((*shape, 2), dtype=torch.float32, device=q.device)
    _segmented[(len(segments), kv_heads)](
        q, k_cache, v_cache, out, segments, tables, partial, stats,
        scale, group_size, kv_heads,
        q.stride(0), q.stride(1), out.stride(0), out.stride(1),
        k_cache.stride(0), k_cache.stride(1), tables.stride(0),
        HEAD_DIM=head_dim, BLOCK_TOKENS=block_tokens,
        NARROW_ROWS=NARROW, WIDE_ROWS=WIDE[size], TILE=tile_tokens(head_dim * size), NUM_FIELDS=FIELDS,
    )  # fmt: skip
    if len(merges):
        _segmented_merge[(len(merges), kv_heads)](
            partial, stats, merges, out,
            group_size, kv_heads, out.stride(0), out.stride(1),
            HEAD_DIM=head_dim, ROWS=NARROW,
        )  # fmt: skip
