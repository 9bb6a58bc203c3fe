"""Ops of the decoder on the CPU: linear layers on weights that oneDNN has laid out beforehand.

The rest is shared with the plain torch versions. Works in float32; the signatures and, up to
rounding, the results are those of `ops/reference.py`.
"""

from __future__ import annotations

from torch import Tensor, ops

from interleave.model.ops.reference import (
    add_norm,
    greedy,
    rms_norm,
    rope,
    rope_table,
    rotate,
    rotate_and_write,
    swiglu,
)

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

PACK_ROWS = 32
"""Rows that oneDNN lays weights out for. The layout serves every other row count as well."""


def pack(weight: Tensor) -> Tensor:
    """[out, in] -> the same matrix in oneDNN's blocked layout, for `linear`."""
    return ops.mkldnn._reorder_linear_weight(weight, PACK_ROWS)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [n, in] times a packed weight [out, in] transposed."""
    return ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def gated(x: Tensor, gate_up: Tensor) -> Tensor:
    """The first half of a SwiGLU layer."""
    return swiglu(linear(x, gate_up))
