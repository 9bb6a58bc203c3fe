"""How kernels are compiled and where their machine code is kept between runs.

Numba's own cache notices that a kernel's file changed, not that something it calls in another file
did, and one folder would serve two CPUs. So the folder's name holds a hash of every source in this
package, the CPU as the compiler sees it, and the versions that made the code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba

from interleave.model.simd.vector import CPU_FEATURES, CPU_NAME, config
from interleave.model.user_cache import cache_folder


@cache
def code_folder() -> Path:
    """Where this version of the kernels keeps its machine code for this CPU."""
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.name.encode() + source.read_bytes())
    for fact in (numba.__version__, llvmlite.__version__, CPU_NAME, CPU_FEATURES):
        digest.update(b"\0" + fact.encode())
    return cache_folder() / "kernels" / digest.hexdigest()[:16]


def compiled(kernel: Callable[..., Any]) -> Any:
    """Decorator: a kernel on one thread."""
    return _njit(kernel, parallel=False)


def compiled_parallel(kernel: Callable[..., Any]) -> Any:
    """Decorator: a kernel whose `prange` loops share numba's threads."""
    return _njit(kernel, parallel=True)


def _njit(kernel: Callable[..., Any], parallel: bool) -> Any:
    before = config.CACHE_DIR
    config.CACHE_DIR = str(code_folder())
    try:
        return numba.njit(parallel=parallel, cache=True, nogil=True, error_model="numpy")(kernel)
    except RuntimeError:  # nowhere to write: compile anew in every process
        return numba.njit(parallel=parallel, nogil=True, error_model="numpy")(kernel)
    finally:
        config.CACHE_DIR = before
