"""silu(gate) * up of a fused gate-up product.

Reads 2 * intermediate elements a position and writes half as many, each once.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

WIDTH = 1024
"""Elements per program."""


@triton.jit
def _swiglu(
    gate_up_ptr,
    out_ptr,
    intermediate,
    stride_in,
    stride_out,
    TILE: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.program_id(1) * TILE + tl.arange(0, TILE)
    real = lane < intermediate
    gate = tl.load(gate_up_ptr + row * stride_in + lane, mask=real, other=0.0).to(tl.float32)
    up = tl.load(gate_up_ptr + row * stride_in + intermediate + lane, mask=real, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * stride_out + lane, gate / (1.0 + tl.exp(-gate)) * up, mask=real)


def swiglu(gate_up: torch.Tensor, out: torch.Tensor) -> None:
    """gate_up: [n, 2 * intermediate], gate first; out: [n, intermediate] of the same dtype."""
    n, intermediate = out.shape
    assert gate_up.shape == (n, 2 * intermediate)
    assert gate_up.dtype == out.dtype
    assert gate_up.stride(1) == out.stride(1) == 1
    _swiglu[(n, triton.cdiv(intermediate, WIDTH))](
        gate_up, out, intermediate, gate_up.stride(0), out.stride(0), TILE=WIDTH
    )
