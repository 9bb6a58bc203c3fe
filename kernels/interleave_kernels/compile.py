"""Compiles the kernels ahead of time, for GPUs that need not be there, and counts what they take.

Registers and spills of an NVIDIA target come from `ptxas -v` on the PTX, those of an AMD target from
the metadata in its assembly. Needs no driver; needs TRITON_INTERPRET unset.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from interleave_kernels.launches import Launch

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
