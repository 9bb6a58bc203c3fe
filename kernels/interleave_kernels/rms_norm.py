"""RMS norm of each position, with the residual's sum in the same pass.

One program a position: reads hidden elements of x (and of the addend), writes as many (and the sum).
Separate kernels would read and write the sum once more.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _rms_norm(
    x_ptr,
    delta_ptr,  # None: nothing is added
    weight_ptr,
    out_ptr,
    eps,
    hidden,
    stride_x,
    stride_delta,
    stride_out,
    WIDTH: tl.constexpr,  # hidden, padded to a power of two: a row is one tile
):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, WIDTH)
    real = lane < hidden
    x = tl.load(x_ptr + row * stride_x + lane, mask=real, other=0.0)
    if delta_ptr is not None:
        delta = tl.load(delta_ptr + row * stride_delta + lane, mask=real, other=0.0)
        # Rounded to the stored type before it is squared, as the residual stream itself is.
        x = (x.to(tl.float32) + delta.to(tl.float32)).to(x.dtype)
        tl.store(x_ptr + row * stride_x + lane, x, mask=real)
    wide = x.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide) / hidden + eps)
    weight = tl.load(weight_ptr + lane, mask=real, other=0.0)
    normed = (wide * scale).to(x.dtype).to(tl.float32) * weight.to(tl.float32)
    tl.store(out_ptr + row * stride_out + lane, normed, mask=real)


def rms_norm(
    x: torch.Tensor, delta: torch.Tensor | None, weight: torch.Tensor, eps: float, out: torch.Tensor
) -> None:
    """out = x / rms(x) * weight over the last axis; a delta is added to x, in place, before.

    x, delta, out: [n, hidden] of one dtype, positions contiguous; weight: [hidden].
    """
    n, hidden = x.shape
    assert out.shape == x.shape
    assert weight.shape == (hidden,)
    assert x.stride(1) == out.stride(1) == weight.stride(0) == 1
    assert out.dtype == x.dtype
    if delta is not None:
        assert delta.shape == x.shape
        assert delta.dtype == x.dtype
        assert delta.stride(1) == 1
    width = triton.next_power_of_2(hidden)
    _rms_norm[(n,)](
        x, delta, weight, out,
        eps, hidden,
        x.stride(0), 0 if delta is None else delta.stride(0), out.stride(0),
        WIDTH=width, num_warps=min(8, max(1, width // 256)),
    )  # fmt: skip
