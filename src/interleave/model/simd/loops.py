"""Control flow inside compiled kernels, said in LLVM's terms: loops whose values stay in registers.

It does not know what the loops compute.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from interleave.model.simd.vector import F32, I8, I64, LANES, Builder

UNROLLED = 1 if LANES == 16 else 4
"""Depth steps of a tile between two tests for the end. With 16 lanes a step has more products for the same
counting, and several steps of a full tile lose sums to memory."""

FLAG = ir.IntType(1)
FLOAT_AT, BYTE_AT = F32.as_pointer(), I8.as_pointer()


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


def stay_rolled(builder: Builder) -> None:
    """An empty instruction that LLVM knows nothing about, so that it does not unroll the loop around it.

    A step has enough independent sums as it is. Two at once, as LLVM's model of some CPUs wants them, have
    their loads moved to the front, and the sums, which take most registers, then live in memory.
    """
    builder.asm(ir.FunctionType(ir.VoidType(), []), "", "", [], side_effect=True)


def flag(builder: Builder, value: Any) -> Any:
    return builder.icmp_unsigned("!=", value, ir.Constant(value.type, 0))
