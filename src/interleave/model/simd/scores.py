"""What attention needs beside tiles: dot products with keys as they lie, and squares turned over.

Keys lie position by position, `[positions, dim]`. A decode row reads each once, so its products with
the query heads that share a KV head are summed across the lanes, `dim` being a multiple of LANES; a chunk's
queries meet many keys, so they are turned over once, LANES queries x LANES dims at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from interleave.model.simd.loops import FLOAT_AT, cases, loop
from interleave.model.simd.vector import (
    I32,
    I64,
    LANES,
    Builder,
    constant,
    element_pointer,
    emitted,
    fma,
    load,
    prefetch,
    store,
    total,
)

GROUPS = 8
"""Most query heads of one KV head that a single call serves."""


def _dots(group: int) -> Callable[[Builder, Any], None]:
    def emit(builder: Builder, arguments: Any) -> None:
        scores, stride, q, k, following, dim, count = arguments
        vectors = builder.sdiv(dim, I64(LANES))

        def position(index: Any, _: list[Any]) -> list[Any]:
            key = builder.gep(k, [builder.mul(index, dim)])
            later = builder.gep(following, [builder.mul(index, dim)])

            def step(part: Any, sums: list[Any]) -> list[Any]:
                at = builder.mul(part, I64(LANES))
                prefetch(builder, builder.gep(later, [at]))
                keys = load(builder, builder.gep(key, [at]))
                queries = [
                    load(builder, builder.gep(q, [builder.add(at, builder.mul(dim, I64(head)))]))
                    for head in range(group)
                ]
                return [fma(builder, query, keys, one) for query, one in zip(queries, sums, strict=True)]

            for head, one in enumerate(loop(builder, vectors, [constant(0.0)] * group, step)):
                place = builder.gep(scores, [builder.add(builder.mul(stride, I64(head)), index)])
                builder.store(total(builder, one), place)
            return []

        loop(builder, count, [], position)

    return emit


@emitted
def dot_keys(  # type: ignore[no-untyped-def]
    typingctx, group, scores, scores_at, stride, q, q_at, k, k_at, ahead, ahead_at, dim, count
):
    """scores[group, count] (rows `stride` apart) = q[group, dim] times each of k[count, dim]; group <= GROUPS.

    ahead[count, dim] is what will be read next, and is fetched meanwhile.
    """
    at = types.int64
    signature = types.void(at, scores, at, at, q, at, k, at, ahead, at, at, at)

    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        group, scores, scores_at, stride, q, q_at, k, k_at, ahead, ahead_at, dim, count = arguments
        kinds = [FLOAT_AT, I64, FLOAT_AT, FLOAT_AT, FLOAT_AT, I64, I64]
        function = cases(builder, "dots", kinds, {n: _dots(n) for n in range(1, GROUPS + 1)})
        scores = element_pointer(context, builder, signature.args[1], scores, scores_at)
        q = element_pointer(context, builder, signature.args[4], q, q_at)
        k = element_pointer(context, builder, signature.args[6], k, k_at)
        ahead = element_pointer(context, builder, signature.args[8], ahead, ahead_at)
        builder.call(function, [group, scores, stride, q, k, ahead, dim, count])
        return context.get_dummy_value()

    return signature, codegen


def _swapped(builder: Builder, rows: list[Any]) -> list[Any]:
    """A LANES x LANES matrix turned over: one bit of the row and column numbers trades places per round."""
    bit = 1
    while bit < LANES:
        out = list(rows)
        for upper in (row for row in range(LANES) if not row & bit):
            lower = upper | bit
            for target, move in ((upper, 0), (lower, bit)):
                lanes = [
                    (lane + move if not lane & bit else LANES + lane - (bit - move)) for lane in range(LANES)
                ]
                mask = ir.Constant(ir.VectorType(I32, LANES), lanes)
                out[target] = builder.shuffle_vector(rows[upper], rows[lower], mask)
        rows = out
        bit *= 2
    return rows


@emitted
def turn_over(typingctx, target, target_at, target_stride, source, source_at, source_stride):  # type: ignore[no-untyped-def]
    """target[column, row] = source[row, column] for LANES x LANES floats."""
    at = types.int64
    signature = types.void(target, at, at, source, at, at)

    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        target, target_at, target_stride, source, source_at, source_stride = arguments
        target = element_pointer(context, builder, signature.args[0], target, target_at)
        source = element_pointer(context, builder, signature.args[3], source, source_at)
        rows = [
            load(builder, builder.gep(source, [builder.mul(source_stride, I64(row))])) for row in range(LANES)
        ]
        for column, values in enumerate(_swapped(builder, rows)):
            store(builder, values, builder.gep(target, [builder.mul(target_stride, I64(column))]))
        return context.get_dummy_value()

    return signature, codegen
