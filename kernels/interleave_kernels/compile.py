"""Compiles the kernels ahead of time, for GPUs that need not be there, and counts what they take.

The launchers themselves are called, on tensors without data, and what they would launch is recorded
and specialised as `triton.jit` would: the table holds what an engine runs, not a second list of
signatures. Registers and spills of an NVIDIA target come from `ptxas -v` on the PTX, those of an AMD
target from the metadata in its assembly. Needs no driver; needs TRITON_INTERPRET unset.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_86": GPUTarget("cuda", 86, 32),
    "sm_89": GPUTarget("cuda", 89, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
SHARED_LIMITS = {"sm_80": 166912, "sm_86": 101376, "sm_89": 101376, "sm_90": 232448, "gfx942": 65536}
"""Bytes of shared memory that one block may have (CUDA C++ Programming Guide, "Technical
Specifications per Compute Capability"; AMD CDNA 3 ISA, LDS): a kernel above it compiles, and fails
when it is launched."""
_TYPES = {
    torch.float32: "*fp32",
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.int32: "*i32",
    torch.int64: "*i64",
}


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel as `triton.jit` would compile it; hashable, and made of plain values.

    signature: (argument, type) in order; constants and options: sorted (name, value); aligned:
    indices of arguments known to be multiples of 16.
    """

    module: str
    function: str
    signature: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, Any], ...]
    aligned: tuple[int, ...]
    options: tuple[tuple[str, Any], ...]

    @property
    def kernel(self) -> str:
        return self.function.lstrip("_")

    @property
    def config(self) -> str:
        """What tells this compilation from others of its kernel: constants and element types."""
        names = [f"{name}={value}" for name, value in (*self.constants, *self.options)]
        types = dict.fromkeys(kind[1:] for _, kind in self.signature if kind[1:] in ("fp16", "bf16", "fp32"))
        floats = [kind for kind in types if kind != "fp32"] or ["fp32"]
        return " ".join([*floats, *names])


@contextmanager
def recording(*modules: str) -> Iterator[list[Launch]]:
    """Within it the kernels of `modules` (names in this package) are not launched but listed."""
    found: list[Launch] = []
    replaced: list[tuple[Any, str, Any]] = []
    try:
        for name in modules:
            module = importlib.import_module(f"interleave_kernels.{name}")
            for attribute, value in list(vars(module).items()):
                if isinstance(value, triton.runtime.JITFunction) and value.module == module.__name__:
                    replaced.append((module, attribute, value))
                    setattr(module, attribute, _Recorder(value, found))
        yield found
    finally:
        for module, attribute, value in replaced:
            setattr(module, attribute, value)


class _Recorder:
    """Stands in for a kernel: `kernel[grid](...)` lists the launch."""

    def __init__(self, function: Any, found: list[Launch]) -> None:
        self._function, self._found = function, found

    def __getitem__(self, grid: object) -> Callable[..., None]:
        return self._record

    def _record(self, *arguments: Any, **named: Any) -> None:
        function = self._function
        values = dict(zip(function.arg_names, arguments, strict=False)) | named
        options = {name: values.pop(name) for name in list(values) if name not in function.arg_names}
        signature, constants, aligned = [], {}, []
        for index, parameter in enumerate(function.params):
            value = values[parameter.name]
            kind, multiple = _specialise(value, parameter)
            signature.append((parameter.name, kind))
            if kind == "constexpr":
                constants[parameter.name] = value
            elif multiple:
                aligned.append(index)
        self._found.append(
            Launch(
                function.module,
                function.__name__,
                tuple(signature),
                tuple(sorted(constants.items())),
                tuple(aligned),
                tuple(sorted(options.items())),
            )
        )


def _specialise(value: Any, parameter: Any) -> tuple[str, bool]:
    """(type, whether it is known to be a multiple of 16), by the rules of `triton.jit`."""
    if parameter.is_constexpr or value is None:
        return "constexpr", False
    free = not parameter.do_not_specialize
    if isinstance(value, torch.Tensor):
        return _TYPES[value.dtype], free and value.storage_offset() * value.element_size() % 16 == 0
    if isinstance(value, float):
        return "fp32", False
    if isinstance(value, int) and not isinstance(value, bool):
        if value == 1 and free:
            return "constexpr", False
        return ("i32" if -(2**31) <= value < 2**31 else "i64"), free and value % 16 == 0
    raise TypeError(f"cannot specialise {parameter.name} on {value!r}")


def compile_launch(launch: Launch, arch: str) -> dict[str, Any]:
    """A row of the table: kernel, config, arch, registers, shared_bytes, spills, seconds.

    registers and spills: per thread, in registers of 4 bytes.
    Raises ValueError for an arch that is not in TARGETS, and under Triton's interpreter.
    """
    if arch not in TARGETS:
        raise ValueError(f"unknown arch {arch!r}; allowed are {', '.join(TARGETS)}")
    function = getattr(importlib.import_module(launch.module), launch.function)
    if not isinstance(function, triton.runtime.JITFunction):
        raise ValueError("kernels imported under TRITON_INTERPRET=1 cannot be compiled; unset it")
    source = ASTSource(
        function,
        dict(launch.signature),
        constexprs={(function.arg_names.index(name),): value for name, value in launch.constants},
        attrs={(index,): [["tt.divisibility", 16]] for index in launch.aligned},
    )
    started = time.perf_counter()
    compiled = triton.compile(source, target=TARGETS[arch], options=dict(launch.options))
    seconds = time.perf_counter() - started
    if arch.startswith("sm_"):
        registers, spills = _count_ptx(compiled.asm["ptx"])
    else:
        registers, spills = count_amdgcn(compiled.asm["amdgcn"])
    return {
        "kernel": launch.kernel,
        "config": launch.config,
        "arch": arch,
        "registers": registers,
        "shared_bytes": compiled.metadata.shared,
        "spills": spills,
        "seconds": round(seconds, 2),
    }


def ptxas_path() -> Path:
    """The assembler that comes with triton."""
    return Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"


def _count_ptx(ptx: str) -> tuple[int, int]:
    target = re.search(r"^\.target (\w+)", ptx, re.MULTILINE)
    assert target is not None, "PTX names its target"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.ptx"
        path.write_text(ptx)
        done = subprocess.run(
            [ptxas_path(), "-v", f"--gpu-name={target[1]}", path, "-o", path.with_suffix(".cubin")],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"ptxas failed: {done.stderr.strip()}")
    return count_ptxas_log(done.stderr)


def count_ptxas_log(log: str) -> tuple[int, int]:
    """(registers, spilled registers) a thread, from what `ptxas -v` prints; stores are counted."""
    registers = re.search(r"Used (\d+) registers", log)
    spills = re.search(r"(\d+) bytes spill stores", log)
    if registers is None or spills is None:
        raise RuntimeError(f"no counts in the output of ptxas: {log.strip()!r}")
    return int(registers[1]), -(-int(spills[1]) // 4)


def count_amdgcn(assembly: str) -> tuple[int, int]:
    """(vector registers, spilled registers of either kind) a thread, from the code object's metadata.

    Accumulation registers count as vector registers: they come from the same file.
    """
    counts = dict(re.findall(r"^\s*\.(\w+_count):\s+(\d+)", assembly, re.MULTILINE))
    missing = {"vgpr_count", "vgpr_spill_count", "sgpr_spill_count"} - set(counts)
    if missing:
        raise RuntimeError(f"no {', '.join(sorted(missing))} in the amdgcn assembly")
    return int(counts["vgpr_count"]), int(counts["vgpr_spill_count"]) + int(counts["sgpr_spill_count"])


def compile_table(
    launches: Sequence[Launch],
    archs: Sequence[str] = tuple(TARGETS),
    processes: int = 1,
    say: Callable[[str], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """A row per launch and arch, in that order, compiled afresh in `processes` processes.

    say hears of progress. Raises the first failure, naming kernel, config and arch.
    """
    jobs = [(launch, arch) for launch in launches for arch in archs]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as cache:
        pool = ProcessPoolExecutor(processes, get_context("spawn"), initializer=_start, initargs=(cache,))
        with pool:
            for row in pool.map(_compile_job, jobs):
                rows.append(row)
                if len(rows) % 25 == 0 or len(rows) == len(jobs):
                    say(f"{len(rows)} of {len(jobs)} compiled")
    return rows


def _start(cache: str) -> None:
    os.environ["TRITON_CACHE_DIR"] = cache
    triton.knobs.cache.dir = cache


def _compile_job(job: tuple[Launch, str]) -> dict[str, Any]:
    launch, arch = job
    try:
        return compile_launch(launch, arch)
    except Exception as error:
        raise RuntimeError(f"{launch.kernel} ({launch.config}) for {arch}: {error}") from error
