"""What a decoder does between its matrix products: residual and norm, rotation, SwiGLU.

Each is one pass over rows that are still in the cache, in whole vectors and a scalar rest, shared out
over threads when there is enough to share. A row's result depends on that row only. It does not know
about layers or caches.
"""

from __future__ import annotations

import math

import numba
import numpy as np

from interleave.model.simd.compiled import compiled, compiled_parallel
from interleave.model.simd.vector import (
    LANES,
    vadd,
    vdiv,
    vexp,
    vfma,
    vload,
    vmul,
    vsplat,
    vstore,
    vsub,
    vsum,
)

SHARE = 1 << 15
"""Elements below which a second thread costs more than it saves."""


def threads_for(num_elements: int) -> int:
    return min(numba.get_num_threads(), 1 + num_elements // SHARE)


def add_norm(
    residual: np.ndarray, delta: np.ndarray | None, weight: np.ndarray, eps: float, out: np.ndarray
) -> None:
    """residual += delta (if there is one), then out = residual / rms(residual) * weight, by row."""
    threads = threads_for(residual.size)
    other = residual if delta is None else delta
    arguments = (residual, other, delta is not None, weight, np.float32(eps), out)
    if threads == 1:
        _add_norm_rows(*arguments, 0, len(residual))
    else:
        _add_norm(*arguments, threads)


@compiled
def _add_norm_rows(
    residual: np.ndarray,
    delta: np.ndarray,
    adding: bool,
    weight: np.ndarray,
    eps: np.float32,
    out: np.ndarray,
    start: int,
    stop: int,
) -> None:
    width = residual.shape[1]
    whole = width // LANES * LANES
    for row in range(start, stop):
        at = row * width
        squares = vsplat(np.float32(0.0))
        for j in range(0, whole, LANES):
            value = vload(residual, at + j)
            if adding:
                value = vadd(value, vload(delta, at + j))
                vstore(residual, at + j, value)
            squares = vfma(value, value, squares)
        total = vsum(squares)
        for j in range(whole, width):
            if adding:
                residual[row, j] += delta[row, j]
            total += residual[row, j] * residual[row, j]
        scale = np.float32(1.0) / np.float32(math.sqrt(total / np.float32(width) + eps))
        for j in range(0, whole, LANES):
            scaled = vmul(vload(residual, at + j), vsplat(scale))
            vstore(out, at + j, vmul(scaled, vload(weight, j)))
        for j in range(whole, width):
            out[row, j] = residual[row, j] * scale * weight[j]


@compiled_parallel
def _add_norm(
    residual: np.ndarray,
    delta: np.ndarray,
    adding: bool,
    weight: np.ndarray,
    eps: np.float32,
    out: np.ndarray,
    threads: int,
) -> None:
    rows = len(residual)
    for thread in numba.prange(threads):
        start, stop = rows * thread // threads, rows * (thread + 1) // threads
        _add_norm_rows(residual, delta, adding, weight, eps, out, start, stop)


@compiled
def silu_times(gate, up):  # type: ignore[no-untyped-def]
    """silu(gate) * up, a vector of each."""
    grown = vadd(vsplat(np.float32(1.0)), vexp(vsub(vsplat(np.float32(0.0)), gate)))
    return vmul(vdiv(gate, grown), up)


def swiglu(gate_up: np.ndarray, out: np.ndarray) -> None:
    """out [n, width] = silu(gate) * up for gate_up [n, 2 * width], gate first."""
    threads = threads_for(gate_up.size)
    if threads == 1:
        _swiglu_rows(gate_up, out, 0, len(out))
    else:
        _swiglu(gate_up, out, threads)


@compiled
def _swiglu_rows(gate_up: np.ndarray, out: np.ndarray, start: int, stop: int) -> None:
    width = out.shape[1]
    whole = width // LANES * LANES
    for row in range(start, stop):
        gate_at, up_at, out_at = row * 2 * width, row * 2 * width + width, row * width
        for j in range(0, whole, LANES):
            vstore(out, out_at + j, silu_times(vload(gate_up, gate_at + j), vload(gate_up, up_at + j)))
        for j in range(whole, width):
            gate_one = gate_up[row, j]
            out[row, j] = gate_one / (np.float32(1.0) + np.exp(-gate_one)) * gate_up[row, width + j]


@compiled_parallel
def _swiglu(gate_up: np.ndarray, out: np.ndarray, threads: int) -> None:
    rows = len(out)
    for thread in numba.prange(threads):
        _swiglu_rows(gate_up, out, rows * thread // threads, rows * (thread + 1) // threads)


def rotate(qkv: np.ndarray, cos: np.ndarray, sin: np.ndarray, num_heads: int) -> None:
    """Rotate the first `num_heads` heads of qkv [n, heads, dim] in place by cos, sin [n, dim / 2]."""
    threads = threads_for(qkv.size)
    if threads == 1:
        _rotate_rows(qkv, cos, sin, num_heads, 0, len(qkv))
    else:
        _rotate(qkv, cos, sin, num_heads, threads)


@compiled
def _rotate_rows(
    qkv: np.ndarray, cos: np.ndarray, sin: np.ndarray, num_heads: int, start: int, stop: int
) -> None:
    half = cos.shape[1]
    whole = half // LANES * LANES
    for row in range(start, stop):
        for head in range(num_heads):
            at = (row * qkv.shape[1] + head) * 2 * half
            for j in range(0, whole, LANES):
                c, s = vload(cos, row * half + j), vload(sin, row * half + j)
                first, second = vload(qkv, at + j), vload(qkv, at + half + j)
                vstore(qkv, at + j, vsub(vmul(first, c), vmul(second, s)))
                vstore(qkv, at + half + j, vadd(vmul(second, c), vmul(first, s)))
            for j in range(whole, half):
                c_one, s_one = cos[row, j], sin[row, j]
                a, b = qkv[row, head, j], qkv[row, head, half + j]
                qkv[row, head, j] = a * c_one - b * s_one
                qkv[row, head, half + j] = b * c_one + a * s_one


@compiled_parallel
def _rotate(qkv: np.ndarray, cos: np.ndarray, sin: np.ndarray, num_heads: int, threads: int) -> None:
    rows = len(qkv)
    for thread in numba.prange(threads):
        _rotate_rows(qkv, cos, sin, num_heads, rows * thread // threads, rows * (thread + 1) // threads)
