"""The inner loop of the products, as machine code: sums stay in registers, whatever CPU it is made for."""

from __future__ import annotations

import re

import llvmlite.binding as llvm
import pytest
from llvmlite import ir

from interleave.model.simd.loops import FLAG, FLOAT_AT, UNROLLED
from interleave.model.simd.tiles import ROWS, _wide_tile
from interleave.model.simd.vector import I64, LANES

CPUS = ["znver4", "sapphirerapids", "skylake-avx512"] if LANES == 16 else ["haswell", "znver3"]


def assembly(cpu: str, rows: int, turned: bool) -> list[str]:
    """A tile's function for a CPU that need not be this one."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = ir.Module()
    kinds = [FLOAT_AT, I64, FLOAT_AT, I64, FLOAT_AT, I64, I64, FLAG, FLOAT_AT]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), "tile")
    builder = ir.IRBuilder(function.append_basic_block())
    _wide_tile(rows, turned)(builder, function.args)
    builder.ret_void()
    target = llvm.Target.from_triple("x86_64-unknown-linux-gnu").create_target_machine(cpu=cpu, opt=3)
    parsed = llvm.parse_assembly(str(module))
    passes = llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(speed_level=3))
    passes.getModulePassManager().run(parsed, passes)
    return target.emit_assembly(parsed).splitlines()


def loops(lines: list[str]) -> list[list[str]]:
    """Stretches of code that end with a jump back to where they begin."""
    begins = {line.split(":")[0]: number for number, line in enumerate(lines) if line.startswith(".L")}
    found = []
    for number, line in enumerate(lines):
        jump = re.match(r"\s+j\w+\s+(\.L\w+)", line)
        if jump and begins.get(jump[1], number) < number:
            found.append(lines[begins[jump[1]] : number + 1])
    return found


@pytest.mark.skipif(not llvm.get_default_triple().startswith("x86_64"), reason="reads x86 machine code")
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("rows", [1, ROWS - 1, ROWS])
@pytest.mark.parametrize("cpu", CPUS)
def test_sums_stay_in_registers(cpu: str, rows: int, turned: bool) -> None:
    """As many steps a turn as were asked for, a loop for the rest, and no vector on the stack in either: with
    steps that LLVM may mix, its znver4 halves the rate of a full tile."""
    bodies = loops(assembly(cpu, rows, turned))
    products = [sum("vfmadd" in line for line in body) for body in bodies]
    assert products == [2 * rows * UNROLLED, 2 * rows][-UNROLLED:]
    for body in bodies:
        assert not [line for line in body if re.search(r"[xyz]mm", line) and "(%rsp" in line]
