"""Ops of the decoder as fused Triton kernels; signatures and, up to rounding, results of `reference`.

Linear layers stay the vendor's. Runs on a GPU, and on a CPU under Triton's interpreter.
"""

from __future__ import annotations

import torch
from torch import Tensor

from interleave.model.ops.finite import only_finite
from interleave.model.ops.reference import linear, pack, rope_table
from interleave_kernels import argmax as argmax_kernel
from interleave_kernels import rms_norm as rms_norm_kernel
from interleave_kernels import rope_write as rope_kernel
from interleave_kernels import swiglu as swiglu_kernel

__all__ = [
    "add_norm",
    "gated",
    "greedy",
    "linear",
    "pack",
    "rms_norm",
    "rope",
    "rope_table",
    "rotate",
    "rotate_and_write",
    "swiglu",
]


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / rms(x) * weight over the last axis of [n, hidden]."""
    out = torch.empty_like(x)
    rms_norm_kernel.rms_norm(x, None, weight, eps, out)
    return out


def add_norm(residual: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """(residual + delta, the RMS norm of that sum); the sum overwrites `residual`."""
    out = torch.empty_like(residual)
    rms_norm_kernel.rms_norm(residual, delta, weight, eps, out)
    return residual, out


def rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate [n, heads, head_dim] by cos and sin [n, head_dim / 2]."""
    return rotate(x.clone(), cos, sin, x.shape[1])


def rotate(qkv: Tensor, cos: Tensor, sin: Tensor, num_rotated: int) -> Tensor:
    """`rope` on the first `num_rotated` heads of [n, heads, head_dim], in place; the others stay."""
    rope_kernel.rotate(qkv, cos, sin, num_rotated)
    return qkv


def rotate_and_write(
    qkv: Tensor, cos: Tensor, sin: Tensor, slots: Tensor, k_cache: Tensor, v_cache: Tensor
) -> Tensor:
    """The rotated queries; keys (rotated) and values of [n, heads, head_dim] go to the caches' slots."""
    heads = qkv.shape[1] - 2 * k_cache.shape[0]
    out = torch.empty((qkv.shape[0], heads, qkv.shape[2]), dtype=qkv.dtype, device=qkv.device)
    rope_kernel.rope_write(qkv, cos, sin, out, slots, k_cache, v_cache)
    return out


def swiglu(gate_up: Tensor) -> Tensor:
    """silu(gate) * up for [n, 2 * intermediate], gate first."""
    n, width = gate_up.shape
    out = torch.empty((n, width // 2), dtype=gate_up.dtype, device=gate_up.device)
    swiglu_kernel.swiglu(gate_up, out)
    return out


def gated(x: Tensor, gate_up: Tensor) -> Tensor:
    """The first half of a SwiGLU layer: x [n, in] and a packed [2 * intermediate, in] -> [n, intermediate]."""
    return swiglu(linear(x, gate_up))


def greedy(logits: Tensor) -> Tensor:
    """Greedy token per row of [rows, vocab]; a tie goes to the lowest id. NOT_FINITE for a spoiled row."""
    out = torch.empty(len(logits), dtype=torch.int64, device=logits.device)
    argmax_kernel.argmax(logits, out)
    return only_finite(logits, out)
