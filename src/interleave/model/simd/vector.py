"""Vectors of float32 as values inside compiled kernels, as wide as this CPU's registers.

Numba compiles scalar loops and hopes that LLVM finds the vectors in them. Here they are said: a
numba type for an LLVM vector of `LANES` floats, and the operations that kernels use. Arrays are
addressed flat: `at` counts elements from an array's start, and nothing checks it. It does not
know what the numbers mean.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import config as numba_config
from numba import types
from numba.core import cgutils
from numba.core.codegen import get_host_cpu_features
from numba.core.datamodel import models
from numba.extending import intrinsic, register_model

Builder = Any

config: Any = numba_config

CPU_NAME: str = config.CPU_NAME or llvm.get_host_cpu_name()
CPU_FEATURES: str = config.CPU_FEATURES if config.CPU_FEATURES is not None else get_host_cpu_features()
"""What numba compiles for: this machine, or what NUMBA_CPU_NAME and NUMBA_CPU_FEATURES say."""

LANES = 16 if "+avx512f" in CPU_FEATURES.split(",") else 8
"""Floats in one register. Where registers hold four, LLVM makes two operations of one."""

_ARM = llvm.get_default_triple().startswith(("aarch64", "arm64"))
HAS_FMA = _ARM or {"+avx2", "+fma", "+f16c"} <= set(CPU_FEATURES.split(","))
"""Whether a fused multiply-add is an instruction; as a library call it would make all this slow."""

F32, I8, I32, I64 = ir.FloatType(), ir.IntType(8), ir.IntType(32), ir.IntType(64)
FLOATS = ir.VectorType(F32, LANES)
INTS = ir.VectorType(I32, LANES)


def emitted(function: Callable[..., Any]) -> Any:
    """`numba.extending.intrinsic`, as type checkers should see it: a call takes no typing context."""
    return intrinsic(function)


class _Vector(types.Type):
    def __init__(self) -> None:
        super().__init__(name=f"float32x{LANES}")


vector = _Vector()


@register_model(_Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, FLOATS)


def element_pointer(
    context: Any, builder: Builder, kind: Any, array: Any, at: Any, pointee: ir.Type = F32
) -> Any:
    """Address of element `at` of an array, as a pointer to `pointee`."""
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [at]), pointee.as_pointer())


def load(builder: Builder, pointer: Any, kind: ir.Type = FLOATS) -> Any:
    """A vector load that assumes no more than the alignment of one element."""
    value = builder.load(builder.bitcast(pointer, kind.as_pointer()))
    value.align = {ir.FloatType(): 4, ir.HalfType(): 2}.get(kind.element) or kind.element.width // 8
    return value


def store(builder: Builder, value: Any, pointer: Any) -> None:
    builder.store(value, builder.bitcast(pointer, value.type.as_pointer())).align = 4


def constant(value: float, kind: ir.VectorType = FLOATS) -> ir.Constant:
    return ir.Constant(kind, [value] * kind.count)


def splat(builder: Builder, scalar: Any) -> Any:
    """A scalar in every lane."""
    kind = ir.VectorType(scalar.type, LANES)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), scalar, I32(0))
    return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), constant(0, INTS))


def call(builder: Builder, name: str, result: ir.Type, *arguments: Any) -> Any:
    """An LLVM intrinsic by its full name."""
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)


def fma(builder: Builder, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once."""
    return call(builder, f"llvm.fma.v{LANES}f32", FLOATS, a, b, c)


def prefetch(builder: Builder, pointer: Any) -> None:
    """Have the line at an address fetched into the second-level cache; any address will do."""
    bytes_at = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [bytes_at, I32, I32, I32])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
    builder.call(function, [builder.bitcast(pointer, bytes_at), I32(0), I32(2), I32(1)])


def total(builder: Builder, value: Any) -> Any:
    """The sum of all lanes, added up pairwise by halves."""
    return builder.extract_element(_folded(builder, value, builder.fadd), I32(0))


def _folded(builder: Builder, value: Any, join: Callable[[Any, Any], Any]) -> Any:
    """A vector joined with its other half until one lane is left."""
    count = value.type.count
    while count > 1:
        count //= 2
        low, high = (ir.Constant(ir.VectorType(I32, count), [*range(s, s + count)]) for s in (0, count))
        value = join(*(builder.shuffle_vector(value, value, half) for half in (low, high)))
    return value


def _operation(arity: int, emit: Callable[..., Any], result: Any = vector) -> Any:
    """An intrinsic from `arity` vectors to `result`."""

    def codegen(context: Any, builder: Builder, signature: Any, arguments: Any) -> Any:
        return emit(builder, *arguments)

    if arity == 1:

        @emitted
        def one(typingctx, a):  # type: ignore[no-untyped-def]
            return result(vector), codegen

        return one
    if arity == 2:

        @emitted
        def two(typingctx, a, b):  # type: ignore[no-untyped-def]
            return result(vector, vector), codegen

        return two

    @emitted
    def three(typingctx, a, b, c):  # type: ignore[no-untyped-def]
        return result(vector, vector, vector), codegen

    return three


def greater(builder: Builder, a: Any, b: Any) -> Any:
    """The larger of each lane; NaN in `b` stays."""
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


LOWEST_EXPONENT = -87.3
LOWEST_POWER = -127.0


def exponential(builder: Builder, x: Any) -> Any:
    """e**x to about one unit in the last place; 0 below -87.3, at most e**88, NaN for NaN."""
    high, low = constant(88.0), constant(LOWEST_EXPONENT)
    tiny = builder.fcmp_ordered("<", x, low)
    x = builder.select(builder.fcmp_ordered(">", x, high), high, x)
    return builder.select(tiny, constant(0.0), _exponential(builder, builder.select(tiny, low, x)))


def power(builder: Builder, x: Any) -> Any:
    """2**x for x < 128 to about one unit in the last place; 0 where x rounds to -127 or less, NaN for NaN.

    0 and not a denormal number, each product of which costs a hundred steps: an exponent field of zero.
    Adding 1.5 * 2**23 + 127 rounds and leaves that field in the low bits; what is left, of at most a
    half, goes into the minimax polynomial of degree 6, whose own relative error is 2e-9.
    """
    magic = constant(12582912.0 + 127.0)
    x = greater(builder, constant(LOWEST_POWER), x)
    rounded = builder.fadd(x, magic)
    rest = builder.fsub(x, builder.fsub(rounded, magic))
    sum_ = constant(POWER_TERMS[0])
    for term in POWER_TERMS[1:]:
        sum_ = fma(builder, sum_, rest, constant(term))
    scale = builder.bitcast(builder.shl(builder.bitcast(rounded, INTS), constant(23, INTS)), FLOATS)
    return builder.fmul(sum_, scale)


POWER_TERMS = (
    1.5345812003852215e-4,
    1.33999312191463e-3,
    9.618488957108396e-3,
    5.550328776965639e-2,
    2.4022646890634294e-1,
    6.931472057372673e-1,
    1.0,
)


def _exponential(builder: Builder, x: Any) -> Any:
    """Range reduction by a rounded multiple of ln 2 in two parts, then the minimax polynomial of
    Cephes (Moshier). Adding 1.5 * 2**23 rounds and leaves the integer in the low bits.
    """
    magic = constant(12582912.0)
    rounded = fma(builder, x, constant(1.44269504088896341), magic)
    power = builder.fsub(rounded, magic)
    rest = fma(builder, power, constant(-0.693359375), x)
    rest = fma(builder, power, constant(2.12194440e-4), rest)
    sum_ = constant(1.9875691500e-4)
    for term in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        sum_ = fma(builder, sum_, rest, constant(term))
    sum_ = fma(builder, sum_, builder.fmul(rest, rest), builder.fadd(rest, constant(1.0)))
    shifted = builder.shl(builder.bitcast(rounded, INTS), constant(23, INTS))
    scale = builder.bitcast(builder.add(shifted, constant(127 << 23, INTS)), FLOATS)
    return builder.fmul(sum_, scale)


def _largest(builder: Builder, value: Any) -> Any:
    """The largest lane, by halves."""
    return builder.extract_element(_folded(builder, value, lambda a, b: greater(builder, a, b)), I32(0))


vadd = _operation(2, lambda builder, a, b: builder.fadd(a, b))
vsub = _operation(2, lambda builder, a, b: builder.fsub(a, b))
vmul = _operation(2, lambda builder, a, b: builder.fmul(a, b))
vdiv = _operation(2, lambda builder, a, b: builder.fdiv(a, b))
vmax = _operation(2, greater)
vfma = _operation(3, fma)
vexp = _operation(1, exponential)
vpower = _operation(1, power)
vsum = _operation(1, total, types.float32)
vtop = _operation(1, _largest, types.float32)


@emitted
def vload(typingctx, array, at):  # type: ignore[no-untyped-def]
    """LANES floats of a float32 array from element `at` on."""

    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return load(builder, element_pointer(context, builder, signature.args[0], *arguments))

    return vector(array, types.int64), codegen


@emitted
def vstore(typingctx, array, at, value):  # type: ignore[no-untyped-def]
    """Store LANES floats at elements `at` and on."""

    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        store(builder, arguments[2], element_pointer(context, builder, signature.args[0], *arguments[:2]))
        return context.get_dummy_value()

    return types.void(array, types.int64, vector), codegen


@emitted
def vsplat(typingctx, value):  # type: ignore[no-untyped-def]
    """A float32 in every lane."""

    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return splat(builder, arguments[0])

    return vector(types.float32), codegen
