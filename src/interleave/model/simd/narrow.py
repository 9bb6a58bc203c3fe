"""Panels in a narrow form: multiplied straight from it for few rows, or widened for many.

The sums of both ways are those of `multiply_tile` on the widened panel, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types

from interleave.model.simd.forms import FP32, HEADER_BYTES, NAMES, STEP_BYTES, at_byte, columns, header
from interleave.model.simd.loops import BYTE_AT, FLAG, FLOAT_AT, cases, deep_loop, flag, loop
from interleave.model.simd.tiles import begin, finish, multiply_step, row_pointers
from interleave.model.simd.vector import I8, I64, LANES, Builder, element_pointer, emitted, store

NARROW_ROWS = 12 if LANES == 16 else 4
"""Rows of a tile whose panel is widened in registers, some of which that takes itself."""


def _narrow_tile(form: int, rows: int) -> Callable[[Builder, Any], None]:
    def emit(builder: Builder, arguments: Any) -> None:
        c, c_stride, a, a_stride, b, blocks, depth, add = arguments
        at_row = row_pointers(builder, rows, a, a_stride)
        size = _block_bytes(builder, form, depth)

        def block(number: Any, sums: list[Any]) -> list[Any]:
            start = at_byte(builder, b, builder.mul(number, size))
            shared = header(builder, form, start)
            first = builder.mul(number, depth)

            def step(index: Any, sums: list[Any]) -> list[Any]:
                place = _step_place(builder, form, start, index)
                return multiply_step(
                    builder, sums, at_row, builder.add(first, index), columns(builder, form, shared, place)
                )

            return deep_loop(builder, depth, sums, step)

        places, start = begin(builder, rows, c, c_stride, add)
        finish(builder, places, loop(builder, blocks, start, block))

    return emit


def _widener(form: int) -> Callable[[Builder, Any], None]:
    def emit(builder: Builder, arguments: Any) -> None:
        wide, b, blocks, depth = arguments
        size = _block_bytes(builder, form, depth)

        def block(number: Any, _: list[Any]) -> list[Any]:
            start = at_byte(builder, b, builder.mul(number, size))
            shared = header(builder, form, start)
            first = builder.mul(number, depth)

            def step(index: Any, _: list[Any]) -> list[Any]:
                panel = columns(builder, form, shared, _step_place(builder, form, start, index))
                row = builder.mul(builder.add(first, index), I64(2 * LANES))
                for half in range(2):
                    store(builder, panel[half], builder.gep(wide, [builder.add(row, I64(half * LANES))]))
                return []

            return loop(builder, depth, [], step)

        loop(builder, blocks, [], block)

    return emit


def _block_bytes(builder: Builder, form: int, depth: Any) -> Any:
    return builder.add(builder.mul(depth, I64(STEP_BYTES[form])), I64(HEADER_BYTES[form]))


def _step_place(builder: Builder, form: int, block: Any, index: Any) -> Any:
    offset = builder.add(builder.mul(index, I64(STEP_BYTES[form])), I64(HEADER_BYTES[form]))
    return at_byte(builder, block, offset)


@emitted
def multiply_narrow_tile(  # type: ignore[no-untyped-def]
    typingctx, form, rows, c, c_at, c_stride, a, a_at, a_stride, b, b_at, blocks, depth, add
):
    """As `multiply_tile`, with b a panel of bytes in `form`: `blocks` of `depth`; rows <= NARROW_ROWS."""
    at = types.int64
    signature = types.void(at, at, c, at, at, a, at, at, b, at, at, at, types.boolean)

    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        form, rows, c, c_at, c_stride, a, a_at, a_stride, b, b_at, blocks, depth, add = arguments
        kinds = [FLOAT_AT, I64, FLOAT_AT, I64, BYTE_AT, I64, I64, FLAG]
        emitters = {
            one * NARROW_ROWS + n - 1: _narrow_tile(one, n)
            for one in range(FP32, len(NAMES))
            for n in range(1, NARROW_ROWS + 1)
        }
        function = cases(builder, "narrow_tile", kinds, emitters)
        which = builder.add(builder.mul(form, I64(NARROW_ROWS)), builder.sub(rows, I64(1)))
        c = element_pointer(context, builder, signature.args[2], c, c_at)
        a = element_pointer(context, builder, signature.args[5], a, a_at)
        b = element_pointer(context, builder, signature.args[8], b, b_at, I8)
        builder.call(function, [which, c, c_stride, a, a_stride, b, blocks, depth, flag(builder, add)])
        return context.get_dummy_value()

    return signature, codegen


@emitted
def widen_panel(typingctx, form, wide, wide_at, b, b_at, blocks, depth):  # type: ignore[no-untyped-def]
    """Write a panel of bytes in `form` (`blocks` of `depth`) as float32 [blocks * depth, PANEL]."""
    at = types.int64
    signature = types.void(at, wide, at, b, at, at, at)

    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        form, wide, wide_at, b, b_at, blocks, depth = arguments
        emitters = {one: _widener(one) for one in range(FP32, len(NAMES))}
        function = cases(builder, "widen", [FLOAT_AT, BYTE_AT, I64, I64], emitters)
        wide = element_pointer(context, builder, signature.args[1], wide, wide_at)
        b = element_pointer(context, builder, signature.args[3], b, b_at, I8)
        builder.call(function, [form, wide, b, blocks, depth])
        return context.get_dummy_value()

    return signature, codegen
