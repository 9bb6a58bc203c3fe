"""Stores a forward's keys and values in the cache, one program a position.

Bytes per position: reads and writes 2 * kv_heads * head_dim elements once each.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["kv_heads"])
def _kv_write(
    k_ptr,
    v_ptr,
    slots_ptr,
    k_cache_ptr,
    v_cache_ptr,
    kv_heads,
    stride_k_row,
    stride_k_head,
    stride_v_row,
    stride_v_head,
    stride_cache_head,
    stride_cache_slot,
    HEAD_DIM: tl.constexpr,  # the tile's width: loads need it at compile time
):
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots_ptr + row)
    lane = tl.arange(0, HEAD_DIM)
    for head in range(kv_heads):
        # int64: a pool of some gigabytes has more elements than an int32 counts.
        to = tl.cast(head, tl.int64) * stride_cache_head + slot * stride_cache_slot
        k = tl.load(k_ptr + row * stride_k_row + head * stride_k_head + lane)
        v = tl.load(v_ptr + row * stride_v_row + head * stride_v_head + lane)
        tl.store(k_cache_ptr + to + lane, k)
        tl.store(v_cache_ptr + to + lane, v)


def kv_write(
    k: torch.Tensor, v: torch.Tensor, slots: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor
) -> None:
    """k, v: [n, kv_heads, head_dim]; slots: int64 [n]; caches: [kv_heads, slots, head_dim]."""
    n, kv_heads, head_dim = k.shape
    assert v.shape == k.shape
    assert slots.shape == (n,)
    assert slots.dtype == torch.int64
    assert k_cache.shape == v_cache.shape
    assert k_cache.stride() == v_cache.stride()
    assert k.stride(2) == v.stride(2) == k_cache.stride(2) == 1, "head_dim must be contiguous"
    _kv_write[(n,)](
        k, v, slots, k_cache, v_cache,
        kv_heads,
        k.stride(0), k.stride(1), v.stride(0), v.stride(1), k_cache.stride(0), k_cache.stride(1),
        HEAD_DIM=head_dim,
    )  # fmt: skip
