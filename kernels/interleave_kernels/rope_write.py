"""Rotates queries and keys, and stores keys and values in the cache, in one pass over a fused QKV.

One program a position, all heads in one tile of halves. Reads (heads + 2 * kv_heads) * head_dim
elements and writes them once; rotating and writing apart would read and write the keys once more,
and the values too.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["num_heads", "num_out", "num_rotated"])
def _rope_write(
    qkv_ptr,
    cos_ptr,
    sin_ptr,
    out_ptr,
    slots_ptr,
    k_cache_ptr,  # None: no cache is written
    v_cache_ptr,
    num_heads,
    num_out,
    num_rotated,
    half,
    stride_in_row,
    stride_in_head,
    stride_out_row,
    stride_out_head,
    stride_cache_head,
    stride_cache_slot,
    HEADS: tl.constexpr,  # all heads of a position, padded to a power of two
    LANES: tl.constexpr,  # half a head, padded likewise
):
    row = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, HEADS)
    lane = tl.arange(0, LANES)
    inside = (lane < half)[None, :]
    real = (head < num_heads)[:, None] & inside
    at = qkv_ptr + row * stride_in_row + head[:, None] * stride_in_head + lane[None, :]
    first = tl.load(at, mask=real, other=0.0)
    second = tl.load(at + half, mask=real, other=0.0)
    kind = first.dtype
    # Rounded to the type of the heads first, as the reference does.
    cos = tl.load(cos_ptr + row * half + lane, mask=lane < half, other=0.0).to(kind).to(tl.float32)[None, :]
    sin = tl.load(sin_ptr + row * half + lane, mask=lane < half, other=0.0).to(kind).to(tl.float32)[None, :]
    turned = (head < num_rotated)[:, None]
    x, y = first.to(tl.float32), second.to(tl.float32)
    first = tl.where(turned, (x * cos - y * sin).to(kind), first)
    second = tl.where(turned, (y * cos + x * sin).to(kind), second)
    to = out_ptr + row * stride_out_row + head[:, None] * stride_out_head + lane[None, :]
    asked = (head < num_out)[:, None] & inside
    tl.store(to, first, mask=asked)
    tl.store(to + half, second, mask=asked)
    if k_cache_ptr is not None:
        slot = tl.load(slots_ptr + row) * stride_cache_slot
        key = head - num_out
        to = k_cache_ptr + key.to(tl.int64)[:, None] * stride_cache_head + slot + lane[None, :]
        asked = ((key >= 0) & (head < num_rotated))[:, None] & inside
        tl.store(to, first, mask=asked)
        tl.store(to + half, second, mask=asked)
        value = head - num_rotated
        to = v_cache_ptr + value.to(tl.int64)[:, None] * stride_cache_head + slot + lane[None, :]
        asked = ((value >= 0) & (head < num_heads))[:, None] & inside
        tl.store(to, first, mask=asked)
        tl.store(to + half, second, mask=asked)


def rotate(qkv: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, num_rotated: int) -> None:
    """Rotate the first `num_rotated` heads in place, halves paired as in GPT-NeoX.

    qkv: [n, heads, head_dim]; cos, sin: float32 [n, head_dim / 2], contiguous.
    """
    heads = qkv[:, :num_rotated]
    assert heads.shape[1] == num_rotated
    _launch(heads, cos, sin, heads, None, None, None, num_rotated)


def rope_write(
    qkv: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    out: torch.Tensor,
    slots: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
) -> None:
    """out = the rotated queries; rotated keys and values go to the caches.

    qkv: [n, heads + 2 * kv_heads, head_dim]; out: [n, heads, head_dim]; cos, sin: float32
    [n, head_dim / 2], contiguous; slots: int64 [n]; caches: [kv_heads, slots, head_dim].
    """
    n, heads, _ = out.shape
    kv_heads = k_cache.shape[0]
    assert qkv.shape[1] == heads + 2 * kv_heads
    assert slots.shape == (n,)
    assert slots.dtype == torch.int64
    assert k_cache.shape == v_cache.shape
    assert k_cache.stride() == v_cache.stride()
    assert k_cache.shape[2] == out.shape[2]
    assert k_cache.stride(2) == 1
    assert k_cache.dtype == v_cache.dtype == qkv.dtype
    _launch(qkv, cos, sin, out, slots, k_cache, v_cache, heads + kv_heads)


def _launch(
    qkv: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    out: torch.Tensor,
    slots: torch.Tensor | None,
    k_cache: torch.Tensor | None,
    v_cache: torch.Tensor | None,
    num_rotated: int,
) -> None:
    n, heads, head_dim = qkv.shape
    half = head_dim // 2
    assert head_dim == 2 * half
    assert cos.shape == sin.shape == (n, half)
    assert cos.is_contiguous()
    assert sin.is_contiguous()
    assert out.dtype == qkv.dtype
    assert out.shape[0] == n
    assert out.shape[2] == head_dim
    assert qkv.stride(2) == out.stride(2) == 1
    _rope_write[(n,)](
        qkv, cos, sin, out, slots, k_cache, v_cache,
        heads, out.shape[1], num_rotated, half,
        qkv.stride(0), qkv.stride(1), out.stride(0), out.stride(1),
        0 if k_cache is None else k_cache.stride(0), 0 if k_cache is None else k_cache.stride(1),
        HEADS=triton.next_power_of_2(heads), LANES=triton.next_power_of_2(half),
    )  # fmt: skip
