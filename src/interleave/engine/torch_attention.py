"""Torch's own attention over dense tensors: no cache, no blocks. What the baselines compute with."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def causal(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention of one sequence over itself: q [n, heads, dim], or only its last position's."""
    every = len(q) == len(k)
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
    return grouped_sdpa(q, k, v, None, causal=every)[0].transpose(0, 1)


def grouped_sdpa(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """Scaled dot-product attention of q [rows, heads, n, dim] over k, v [rows, kv_heads, m, dim]."""
    if q.device.type != "cpu" and q.shape[1] != k.shape[1]:
        # Off the CPU the fused kernels that take a mask want as many KV heads as query heads.
        group = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1]
    )
