"""Ops of the decoder on the CPU in explicit vectors; the signatures of `ops/reference.py`, in float32.

Weights are packed once into the narrowest form that loses no bit. Results agree with the reference up
to rounding, and a row's do not depend on the other rows of the forward.
"""

from __future__ import annotations

import torch
from torch import Tensor

from interleave.model.ops.finite import NOT_FINITE
from interleave.model.ops.reference import rope_table
from interleave.model.simd import glue
from interleave.model.simd.gated import fits, multiply_gated
from interleave.model.simd.greedy import greedy_rows
from interleave.model.simd.linear import PackedMatrix, multiply
from interleave.model.simd.pack import pack_matrix
from interleave.model.simd.threads import start_threads
from interleave.model.simd.vector import HAS_FMA

__all__ = [
    "add_norm",
    "gated",
    "greedy",
    "linear",
    "pack",
    "rope_table",
    "rotate",
    "rotate_and_write",
    "swiglu",
    "usable",
]


def usable(weight: Tensor) -> bool:
    """Whether these ops serve this model here: float32 on a CPU that multiplies and adds in one go."""
    return HAS_FMA and weight.device.type == "cpu" and weight.dtype == torch.float32


def pack(weight: Tensor) -> PackedMatrix:
    """[out, in] -> panels for `linear`."""
    start_threads()
    return pack_matrix(weight.contiguous().numpy())


def linear(x: Tensor, weight: PackedMatrix, bias: Tensor | None = None) -> Tensor:
    """x [n, in] times a packed weight [out, in] transposed."""
    if bias is None:
        out = torch.empty((len(x), weight.width))
    else:
        out = bias.repeat(len(x), 1)
    multiply(x.contiguous().numpy(), weight, out.numpy(), add=bias is not None)
    return out


def add_norm(residual: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """(residual + delta, its RMS norm times weight); the sum overwrites `residual`."""
    out = torch.empty_like(residual)
    glue.add_norm(
        residual.numpy(), None if delta is None else delta.numpy(), weight.numpy(), eps, out.numpy()
    )
    return residual, out


def rotate(qkv: Tensor, cos: Tensor, sin: Tensor, num_rotated: int) -> Tensor:
    """Rotate the first heads of qkv [n, heads, head_dim] by cos and sin [n, head_dim / 2], in place."""
    glue.rotate(qkv.numpy(), cos.numpy(), sin.numpy(), num_rotated)
    return qkv


def rotate_and_write(
    qkv: Tensor, cos: Tensor, sin: Tensor, slots: Tensor, k_cache: Tensor, v_cache: Tensor
) -> Tensor:
    """The rotated queries; keys and values go to the caches. For attention that does not write itself."""
    kv_heads = len(k_cache)
    heads = qkv.shape[1] - 2 * kv_heads
    q, k, v = rotate(qkv, cos, sin, heads + kv_heads).split([heads, kv_heads, kv_heads], dim=1)
    k_cache.index_copy_(1, slots, k.transpose(0, 1))
    v_cache.index_copy_(1, slots, v.transpose(0, 1))
    return q


def swiglu(gate_up: Tensor) -> Tensor:
    """silu(gate) * up for [n, 2 * intermediate], gate first."""
    out = torch.empty((len(gate_up), gate_up.shape[1] // 2))
    glue.swiglu(gate_up.numpy(), out.numpy())
    return out


def gated(x: Tensor, gate_up: PackedMatrix) -> Tensor:
    """The first half of a SwiGLU layer; the product of both never reaches memory where panels are whole."""
    if not fits(gate_up):
        return swiglu(linear(x, gate_up))
    out = torch.empty((len(x), gate_up.width // 2))
    multiply_gated(x.contiguous().numpy(), gate_up, out.numpy())
    return out


def greedy(logits: Tensor) -> Tensor:
    """Greedy token per row of [rows, vocab]; a tie goes to the lowest id. NOT_FINITE for a spoiled row."""
    out = torch.empty(len(logits), dtype=torch.int64)
    greedy_rows(logits.contiguous().numpy(), NOT_FINITE, out.numpy())
    return out
