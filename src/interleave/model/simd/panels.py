"""Queries into panels of lanes, and their context back: [positions, heads, dim] <-> [dim, PANEL].

LANES x LANES floats at a time are turned over in registers. Does not know what attention does between.
"""

from __future__ import annotations

import numpy as np

from interleave.model.simd.compiled import compiled
from interleave.model.simd.forms import PANEL
from interleave.model.simd.scores import turn_over
from interleave.model.simd.vector import LANES, vload, vmul, vsplat, vstore


@compiled
def fill_panel(
    q: np.ndarray, q_at: int, q_stride: int, group: int, dim: int, first: int, lanes: int, scale: np.float32,
    scratch: np.ndarray, at: int, square: int,
) -> None:  # fmt: skip
    """scratch[at:] [dim, PANEL] = scale * the queries of lanes `first` and on, zero from `lanes` on.

    Lane i * group + g lies at q_at + i * q_stride + g * dim. scratch[square:] has room for LANES**2.
    """
    whole = dim // LANES * LANES
    factor = vsplat(scale)
    for half in range(0, PANEL, LANES):
        for d in range(0, whole, LANES):
            for j in range(LANES):
                lane = first + half + j
                if lane < lanes:
                    source = q_at + lane // group * q_stride + lane % group * dim + d
                    vstore(scratch, square + j * LANES, vmul(vload(q, source), factor))
                else:
                    vstore(scratch, square + j * LANES, vsplat(np.float32(0.0)))
            turn_over(scratch, at + d * PANEL + half, PANEL, scratch, square, LANES)
    for j in range(PANEL):
        lane = first + j
        for d in range(whole, dim):
            value = np.float32(0.0)
            if lane < lanes:
                value = q[q_at + lane // group * q_stride + lane % group * dim + d] * scale
            scratch[at + d * PANEL + j] = value


@compiled
def spill_panel(
    scratch: np.ndarray, at: int, sum_at: int, square: int, first: int, lanes: int, group: int, dim: int,
    out: np.ndarray, out_at: int, out_stride: int,
) -> None:  # fmt: skip
    """The reverse: a panel's columns over their sums go to out, lane i * group + g to out_at + i * out_stride
    + g * dim."""
    whole = dim // LANES * LANES
    flat = out.reshape(out.size)
    for half in range(0, min(PANEL, lanes - first), LANES):
        count = min(LANES, lanes - first - half)
        for d in range(0, whole, LANES):
            turn_over(scratch, square, LANES, scratch, at + d * PANEL + half, PANEL)
            for j in range(count):
                lane = first + half + j
                share = vsplat(np.float32(1.0) / scratch[sum_at + half + j])
                target = out_at + lane // group * out_stride + lane % group * dim + d
                vstore(out, target, vmul(vload(scratch, square + j * LANES), share))
        for j in range(count):
            lane = first + half + j
            for d in range(whole, dim):
                target = out_at + lane // group * out_stride + lane % group * dim + d
                flat[target] = scratch[at + d * PANEL + half + j] / scratch[sum_at + half + j]
