"""The narrow forms in which a weight matrix may be kept, and how each is widened in registers.

A panel holds `PANEL` columns (output features), depth by depth. In every form the float32 that comes
out is bit for bit the weight that went in; `pack.py` proves it before it chooses one.

    FP32, BF16, FP16   [depth, PANEL] values
    Q8_0   per 32 depths: PANEL half scales, [32, PANEL] signed bytes: scale * byte
    Q4_1   per 32 depths: PANEL half scales, PANEL half minima, [32, LANES] bytes whose low nibbles are
           the first LANES columns: scale * nibble + minimum

The products with a half scale (11 bits) are exact, so a fused multiply-add rounds as two steps do.
The block formats are those of GGUF. Does not know about rows, tiles or threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from interleave.model.simd.vector import FLOATS, I8, I64, INTS, LANES, Builder, constant, fma, load

PANEL = 2 * LANES
"""Columns of a panel: two registers."""

FP32, BF16, FP16, Q8_0, Q4_1 = range(5)
NAMES = ("fp32", "bf16", "fp16", "q8_0", "q4_1")
BLOCK = 32
"""Depths that share a scale in the quantised forms."""

HEADER_BYTES = (0, 0, 0, 2 * PANEL, 4 * PANEL)
STEP_BYTES = (4 * PANEL, 2 * PANEL, 2 * PANEL, PANEL, LANES)
"""Bytes before a block's first depth, and of one depth, by form."""

HALVES = ir.VectorType(ir.HalfType(), LANES)
BYTES = ir.VectorType(I8, LANES)
SHORTS = ir.VectorType(ir.IntType(16), LANES)

Columns = list[Any]
"""A panel's two vectors at one depth."""


def panel_bytes(form: int, depth: int) -> int:
    """Bytes of one panel; the quantised forms need a depth of whole blocks."""
    blocks = depth // BLOCK if HEADER_BYTES[form] else 1
    return blocks * HEADER_BYTES[form] + depth * STEP_BYTES[form]


def at_byte(builder: Builder, pointer: Any, offset: Any) -> Any:
    return builder.gep(pointer, [I64(offset) if isinstance(offset, int) else offset])


def header(builder: Builder, form: int, block: Any) -> list[Columns]:
    """What a block's depths share, widened: its scales, its minima."""
    return [
        [
            builder.fpext(load(builder, at_byte(builder, block, start + half * 2 * LANES), HALVES), FLOATS)
            for half in range(2)
        ]
        for start in range(0, HEADER_BYTES[form], 2 * PANEL)
    ]


def columns(builder: Builder, form: int, shared: list[Columns], step: Any) -> Columns:
    """The two vectors of float32 at the depth whose bytes begin at `step`."""
    return _WIDEN[form](builder, shared, step)


def _fp32(builder: Builder, shared: list[Columns], step: Any) -> Columns:
    return [load(builder, at_byte(builder, step, half * 4 * LANES)) for half in range(2)]


def _bf16(builder: Builder, shared: list[Columns], step: Any) -> Columns:
    parts = [load(builder, at_byte(builder, step, half * 2 * LANES), SHORTS) for half in range(2)]
    wide = [builder.shl(builder.zext(part, INTS), constant(16, INTS)) for part in parts]
    return [builder.bitcast(part, FLOATS) for part in wide]


def _fp16(builder: Builder, shared: list[Columns], step: Any) -> Columns:
    parts = [load(builder, at_byte(builder, step, half * 2 * LANES), HALVES) for half in range(2)]
    return [builder.fpext(part, FLOATS) for part in parts]


def _q8_0(builder: Builder, shared: list[Columns], step: Any) -> Columns:
    (scales,) = shared
    parts = [load(builder, at_byte(builder, step, half * LANES), BYTES) for half in range(2)]
    wide = [builder.sitofp(builder.sext(part, INTS), FLOATS) for part in parts]
    return [builder.fmul(value, scale) for value, scale in zip(wide, scales, strict=True)]


def _q4_1(builder: Builder, shared: list[Columns], step: Any) -> Columns:
    both = builder.zext(load(builder, step, BYTES), INTS)
    nibbles = [builder.and_(both, constant(15, INTS)), builder.lshr(both, constant(4, INTS))]
    wide = [builder.sitofp(part, FLOATS) for part in nibbles]
    scales, minima = shared
    return [fma(builder, *parts) for parts in zip(wide, scales, minima, strict=True)]


_WIDEN: tuple[Callable[[Builder, list[Columns], Any], Columns], ...] = (_fp32, _bf16, _fp16, _q8_0, _q4_1)
