"""The inner loop of every matrix product here: a tile of sums that never leaves the registers.

A tile is up to `ROWS` rows by one panel of columns. At every depth step it has the panel's two vectors
once and multiplies them by each row's element. Sums run over the depth in order, whatever the number
of rows and the form of the panel: an element of a product does not depend on its company. It does not
know about threads, whole matrices or attention.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types

from interleave.model.simd.loops import FLAG, FLOAT_AT, cases, deep_loop, flag, stay_rolled
from interleave.model.simd.vector import (
    I64,
    LANES,
    Builder,
    constant,
    element_pointer,
    emitted,
    fma,
    load,
    prefetch,
    splat,
    store,
)

ROWS = 12 if LANES == 16 else 6
"""Rows of a full tile: 24 of 32 registers hold its sums where vectors have 16 lanes, else 12 of 16."""

LINE = 16
"""Floats of a cache line."""


def multiply_step(
    builder: Builder, sums: list[Any], rows: Sequence[Any], index: Any, panel: list[Any]
) -> list[Any]:
    """One depth step: each row's element times the panel's two vectors."""
    out = []
    for number, row in enumerate(rows):
        x = splat(builder, builder.load(builder.gep(row, [index])))
        out += [fma(builder, x, panel[half], sums[2 * number + half]) for half in range(2)]
    stay_rolled(builder)
    return out


def begin(builder: Builder, rows: int, c: Any, c_stride: Any, add: Any) -> tuple[list[Any], list[Any]]:
    """(where a tile's sums go, what they begin with): what is there if `add`, else zero, unread.

    Sums that go on from what is there, and are not added to it at the end, have the same bits whether
    the depth is walked at once or in pieces.
    """
    places = [
        builder.gep(c, [builder.add(builder.mul(c_stride, I64(row)), I64(half * LANES))])
        for row in range(rows)
        for half in range(2)
    ]
    before = builder.block
    reading, ready = builder.append_basic_block("reading"), builder.append_basic_block("ready")
    builder.cbranch(add, reading, ready)
    builder.position_at_end(reading)
    found = [load(builder, place) for place in places]
    builder.branch(ready)
    builder.position_at_end(ready)
    sums = [builder.phi(value.type) for value in found]
    for phi, value in zip(sums, found, strict=True):
        phi.add_incoming(constant(0.0), before)
        phi.add_incoming(value, reading)
    return places, sums


def finish(builder: Builder, places: Sequence[Any], sums: Sequence[Any]) -> None:
    for place, value in zip(places, sums, strict=True):
        store(builder, value, place)


def row_pointers(builder: Builder, rows: int, a: Any, a_stride: Any) -> list[Any]:
    return [builder.gep(a, [builder.mul(a_stride, I64(row))]) for row in range(rows)]


def _wide_tile(rows: int, turned: bool, ahead: bool = False) -> Callable[[Builder, Any], None]:
    def emit(builder: Builder, arguments: Any) -> None:
        c, c_stride, a, a_stride, b, b_stride, depth, add, following = arguments
        at_row = row_pointers(builder, rows, a, I64(1) if turned else a_stride)

        def step(index: Any, sums: list[Any]) -> list[Any]:
            place = builder.gep(b, [builder.mul(index, b_stride)])
            panel = [load(builder, builder.gep(place, [I64(half * LANES)])) for half in range(2)]
            if ahead:
                later = builder.gep(following, [builder.mul(index, b_stride)])
                for line in range(0, 2 * LANES, LINE):
                    prefetch(builder, builder.gep(later, [I64(line)]))
            along = builder.mul(index, a_stride) if turned else index
            return multiply_step(builder, sums, at_row, along, panel)

        places, start = begin(builder, rows, c, c_stride, add)
        finish(builder, places, deep_loop(builder, depth, start, step))

    return emit


def _multiply(name: str, turned: bool = False) -> Any:
    """The intrinsic over `_wide_tile`s; `name` is that of the function that they share in a module."""

    @emitted
    def multiply(typingctx, rows, c, c_at, c_stride, a, a_at, a_stride, b, b_at, b_stride, depth, add):  # type: ignore[no-untyped-def]
        at = types.int64
        signature = types.void(at, c, at, at, a, at, at, b, at, at, at, types.boolean)

        def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            emitters = {n: _wide_tile(n, turned) for n in range(1, ROWS + 1)}
            _call(context, builder, signature, arguments, name, emitters, ir.Constant(FLOAT_AT, None))
            return context.get_dummy_value()

        return signature, codegen

    return multiply


def _call(
    context: Any, builder: Builder, signature: Any, arguments: Any, name: str, emitters: Any, following: Any
) -> None:
    """Call the function of `emitters` by the name of `name` with a product's arguments."""
    rows, c, c_at, c_stride, a, a_at, a_stride, b, b_at, b_stride, depth, add = arguments[:12]
    kinds = [FLOAT_AT, I64, FLOAT_AT, I64, FLOAT_AT, I64, I64, FLAG, FLOAT_AT]
    function = cases(builder, name, kinds, emitters)
    c, a, b = (
        element_pointer(context, builder, signature.args[place], *pair)
        for place, pair in ((1, (c, c_at)), (4, (a, a_at)), (7, (b, b_at)))
    )
    builder.call(
        function, [rows, c, c_stride, a, a_stride, b, b_stride, depth, flag(builder, add), following]
    )


multiply_tile = _multiply("wide_tile")
"""c[rows, PANEL] = (from c on, if add) a[rows, depth] @ b[depth, PANEL], all float32, rows <= ROWS."""

multiply_turned_tile = _multiply("turned_tile", turned=True)
"""As `multiply_tile`, with a[depth, rows] turned over: a_stride is from one depth to the next."""


@emitted
def multiply_tile_ahead(  # type: ignore[no-untyped-def]
    typingctx, rows, c, c_at, c_stride, a, a_at, a_stride, b, b_at, b_stride, depth, add, ahead, ahead_at
):
    """As `multiply_tile`, fetching the panel at ahead[ahead_at:] meanwhile, laid out like b."""
    at = types.int64
    signature = types.void(at, c, at, at, a, at, at, b, at, at, at, types.boolean, ahead, at)

    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        emitters = {n: _wide_tile(n, False, ahead=True) for n in range(1, ROWS + 1)}
        following = element_pointer(context, builder, signature.args[12], *arguments[12:])
        _call(context, builder, signature, arguments, "tile_ahead", emitters, following)
        return context.get_dummy_value()

    return signature, codegen
