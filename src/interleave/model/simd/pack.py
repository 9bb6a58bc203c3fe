"""A float32 matrix -> panels in the narrowest form from which every bit of it comes back.

Nothing is told what the weights were before: from the values of 32 depths the scale and the minimum
are recovered, every value is computed again from its byte or nibble, and one that differs in one bit
rules the form out for the whole matrix. Published bf16 and fp16 weights are found the same way.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types

from interleave.model.simd.compiled import compiled, compiled_parallel
from interleave.model.simd.forms import BF16, BLOCK, FP16, FP32, HEADER_BYTES, PANEL, Q4_1, Q8_0, panel_bytes
from interleave.model.simd.linear import PackedMatrix
from interleave.model.simd.vector import LANES, emitted

NARROWEST_FIRST = (Q4_1, Q8_0, BF16, FP16, FP32)
FULL_NIBBLE = 15


def pack_matrix(matrix: np.ndarray) -> PackedMatrix:
    """Panels of a float32 matrix [width, depth]; columns beyond the width are zero."""
    width, depth = matrix.shape
    num_panels = -(-width // PANEL)
    for form in NARROWEST_FIRST:
        if HEADER_BYTES[form] and depth % BLOCK:
            continue
        panels = np.zeros((num_panels, panel_bytes(form, depth)), dtype=np.uint8)
        lost = np.zeros(1, dtype=np.uint8)
        _PACKERS[form](matrix, panels, lost)
        if not lost[0]:
            return PackedMatrix(form, width, depth, panels)
    raise AssertionError("float32 always fits")


@emitted
def bits(typingctx, value):  # type: ignore[no-untyped-def]
    """The bits of a float32."""

    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.uint32(types.float32), codegen


@emitted
def half_bits(typingctx, value):  # type: ignore[no-untyped-def]
    """The bits of a float32 rounded to a half."""

    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.bitcast(builder.fptrunc(arguments[0], ir.HalfType()), ir.IntType(16))

    return types.uint16(types.float32), codegen


@emitted
def half_value(typingctx, value):  # type: ignore[no-untyped-def]
    """The float32 of a half's bits."""

    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.fpext(builder.bitcast(arguments[0], ir.HalfType()), ir.FloatType())

    return types.float32(types.uint16), codegen


@compiled
def _put_short(panels: np.ndarray, panel: int, at: int, value: int) -> None:
    panels[panel, at] = value & 255
    panels[panel, at + 1] = value >> 8


@compiled_parallel
def _pack_fp32(matrix: np.ndarray, panels: np.ndarray, lost: np.ndarray) -> None:
    width, depth = matrix.shape
    for panel in numba.prange(len(panels)):
        for j in range(min(PANEL, width - panel * PANEL)):
            for k in range(depth):
                value = bits(matrix[panel * PANEL + j, k])
                at = 4 * (k * PANEL + j)
                _put_short(panels, panel, at, value & 65535)
                _put_short(panels, panel, at + 2, value >> 16)


@compiled_parallel
def _pack_bf16(matrix: np.ndarray, panels: np.ndarray, lost: np.ndarray) -> None:
    width, depth = matrix.shape
    for panel in numba.prange(len(panels)):
        if not lost[0]:
            for j in range(min(PANEL, width - panel * PANEL)):
                for k in range(depth):
                    value = bits(matrix[panel * PANEL + j, k])
                    if value & 65535:
                        lost[0] = 1
                    _put_short(panels, panel, 2 * (k * PANEL + j), value >> 16)


@compiled_parallel
def _pack_fp16(matrix: np.ndarray, panels: np.ndarray, lost: np.ndarray) -> None:
    width, depth = matrix.shape
    for panel in numba.prange(len(panels)):
        if not lost[0]:
            for j in range(min(PANEL, width - panel * PANEL)):
                for k in range(depth):
                    value = matrix[panel * PANEL + j, k]
                    half = half_bits(value)
                    if bits(half_value(half)) != bits(value):
                        lost[0] = 1
                    _put_short(panels, panel, 2 * (k * PANEL + j), half)


@compiled_parallel
def _pack_q8_0(matrix: np.ndarray, panels: np.ndarray, lost: np.ndarray) -> None:
    width, depth = matrix.shape
    size = (2 + BLOCK) * PANEL
    for panel in numba.prange(len(panels)):
        if not lost[0]:
            for j in range(min(PANEL, width - panel * PANEL)):
                for block in range(depth // BLOCK):
                    if not _q8_0_block(
                        matrix, panel * PANEL + j, block * BLOCK, panels, panel, block * size, j
                    ):
                        lost[0] = 1
                        break


@compiled
def _q8_0_block(
    matrix: np.ndarray, row: int, first: int, panels: np.ndarray, panel: int, at: int, j: int
) -> bool:
    largest = np.float32(0.0)
    for k in range(BLOCK):
        largest = max(largest, abs(matrix[row, first + k]))
    # The largest value was a byte of 127, unless the scale was rounded up when it became a half.
    for full in range(127, 125, -1):
        half = half_bits(np.float32(largest / np.float32(full)))
        scale = half_value(half)
        inverse = np.float32(1.0) / scale if scale > 0 else np.float32(0.0)
        right = True
        for k in range(BLOCK):
            value = matrix[row, first + k]
            byte = np.float32(np.rint(value * inverse))
            if abs(byte) > 127 or bits(byte * scale) != bits(value):
                right = False
            panels[panel, at + (2 + k) * PANEL + j] = np.uint8(np.int64(byte) & 255)
        if right:
            _put_short(panels, panel, at + 2 * j, half)
            return True
    return False


@compiled_parallel
def _pack_q4_1(matrix: np.ndarray, panels: np.ndarray, lost: np.ndarray) -> None:
    width, depth = matrix.shape
    size = 4 * PANEL + BLOCK * LANES
    for panel in numba.prange(len(panels)):
        if not lost[0]:
            for j in range(min(PANEL, width - panel * PANEL)):
                for block in range(depth // BLOCK):
                    if not _q4_1_block(
                        matrix, panel * PANEL + j, block * BLOCK, panels, panel, block * size, j
                    ):
                        lost[0] = 1
                        break


@compiled
def _q4_1_block(
    matrix: np.ndarray, row: int, first: int, panels: np.ndarray, panel: int, at: int, j: int
) -> bool:
    low = high = matrix[row, first]
    for k in range(1, BLOCK):
        low, high = min(low, matrix[row, first + k]), max(high, matrix[row, first + k])
    minimum = half_bits(low)
    if bits(half_value(minimum)) != bits(low):
        return False
    nibbles = np.empty(BLOCK, dtype=np.uint8)
    # The highest value was a nibble of 15, unless the scale was rounded up when it became a half.
    for full in range(FULL_NIBBLE, 0, -1):
        half = half_bits(np.float32((high - low) / np.float32(full)))
        scale = half_value(half)
        inverse = np.float32(1.0) / scale if scale > 0 else np.float32(0.0)
        right = True
        for k in range(BLOCK):
            value = matrix[row, first + k]
            nibble = np.float32(np.rint((value - low) * inverse))
            if not 0 <= nibble <= FULL_NIBBLE or bits(np.float32(scale * nibble) + low) != bits(value):
                right = False
            nibbles[k] = np.uint8(np.int64(nibble) & FULL_NIBBLE)
        if right:
            _put_short(panels, panel, at + 2 * j, half)
            _put_short(panels, panel, at + 2 * PANEL + 2 * j, minimum)
            shift = 4 * (j // LANES)
            for k in range(BLOCK):
                panels[panel, at + 4 * PANEL + k * LANES + j % LANES] |= nibbles[k] << shift
            return True
    return False


_PACKERS: tuple[Any, ...] = (_pack_fp32, _pack_bf16, _pack_fp16, _pack_q8_0, _pack_q4_1)
