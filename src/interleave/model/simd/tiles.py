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
from numba.core import cgutils

from interleave.model.simd.vector import (
    F32,
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

UNROLLED = 1 if LANES == 16 else 4
"""Depth steps of a tile between two tests for the end. With 16 lanes a step has more products for the same
counting, and several steps of a full tile lose sums to memory."""

LINE = 16
"""Floats of a cache line."""

FLAG = ir.IntType(1)
FLOAT_AT = F32.as_pointer()


def loop(
    builder: Builder, count: Any, carried: Sequence[Any], body: Callable[[Any, list[Any]], list[Any]]
) -> list[Any]:
    """`body(index, values) -> values` for indices 0 to count - 1, values kept in registers; none if count <= 0."""
    before = builder.block
    inside, after = builder.append_basic_block("loop"), builder.append_basic_block("after")
    builder.cbranch(builder.icmp_signed(">", count, I64(0)), inside, after)
    builder.position_at_end(inside)
    index = builder.phi(I64)
    index.add_incoming(I64(0), before)
    phis = [builder.phi(value.type) for value in carried]
    for phi, value in zip(phis, carried, strict=True):
        phi.add_incoming(value, before)
    values = body(index, list(phis))
    following = builder.add(index, I64(1))
    index.add_incoming(following, builder.block)
    for phi, value in zip(phis, values, strict=True):
        phi.add_incoming(value, builder.block)
    last = builder.block
    builder.cbranch(builder.icmp_signed("<", following, count), inside, after)
    builder.position_at_end(after)
    results = [builder.phi(value.type) for value in carried]
    for phi, skipped, value in zip(results, carried, values, strict=True):
        phi.add_incoming(skipped, before)
        phi.add_incoming(value, last)
    return results


def deep_loop(
    builder: Builder, depth: Any, sums: list[Any], step: Callable[[Any, list[Any]], list[Any]]
) -> list[Any]:
    """`step(index, sums) -> sums` for every depth, UNROLLED of them between two tests for the end.

    Counting and addresses then take a tenth of the instructions instead of a third; how far apart the
    steps stay is `stay_rolled`'s business. The rest is done one by one.
    """
    if UNROLLED == 1:
        return loop(builder, depth, sums, step)
    whole = builder.sdiv(depth, I64(UNROLLED))

    def several(number: Any, sums: list[Any]) -> list[Any]:
        first = builder.mul(number, I64(UNROLLED))
        for index in range(UNROLLED):
            sums = step(builder.add(first, I64(index)), sums)
        return sums

    sums = loop(builder, whole, sums, several)
    done = builder.mul(whole, I64(UNROLLED))
    return loop(builder, builder.sub(depth, done), sums, lambda i, sums: step(builder.add(done, i), sums))


def cases(
    builder: Builder, name: str, kinds: Sequence[ir.Type], emitters: dict[int, Callable[[Builder, Any], None]]
) -> Any:
    """A function of this module that switches on its first argument; made on first use."""
    kind = ir.FunctionType(ir.VoidType(), [I64, *kinds])
    function = cgutils.get_or_insert_function(builder.module, kind, f"interleave_{name}")
    if function.blocks:
        return function
    function.linkage = "internal"
    inner = ir.IRBuilder(function.append_basic_block("entry"))
    done = function.append_basic_block("done")
    switch = inner.switch(function.args[0], done)
    for number, emit in emitters.items():
        block = function.append_basic_block(f"case{number}")
        switch.add_case(I64(number), block)
        inner.position_at_end(block)
        emit(inner, function.args[1:])
        inner.branch(done)
    inner.position_at_end(done)
    inner.ret_void()
    return function


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


def stay_rolled(builder: Builder) -> None:
    """An empty instruction that LLVM knows nothing about, so that it does not unroll the loop around it.

    A step has enough independent sums as it is. Two at once, as LLVM's model of some CPUs wants them, have
    their loads moved to the front, and the sums, which take most registers, then live in memory.
    """
    builder.asm(ir.FunctionType(ir.VoidType(), []), "", "", [], side_effect=True)


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


def flag(builder: Builder, value: Any) -> Any:
    return builder.icmp_unsigned("!=", value, ir.Constant(value.type, 0))


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
