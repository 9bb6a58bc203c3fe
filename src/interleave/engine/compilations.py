"""Counts what is compiled while something runs: Triton's kernels and Numba's functions.

A version that is taken from a cache on disk counts as well: it is one that a warm-up has missed. Imports
neither package, so that a machine without one is no different from a run that does not use it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Compilations:
    """Versions of kernels and functions that were made ready. numba is filled in at the end."""

    triton: int = 0
    numba: int = 0

    @property
    def total(self) -> int:
        return self.triton + self.numba


@contextmanager
def compilations() -> Iterator[Compilations]:
    """Counts until it ends. Under Triton's interpreter nothing is compiled, and none counted."""
    count = Compilations()
    before = _numba_versions()
    runtime = _triton_runtime()
    if runtime is None:
        yield count
    else:
        # Triton calls it for every version that this process has not launched yet (3.4 and later).
        earlier = runtime.jit_post_compile_hook

        def hear(*arguments: Any, **named: Any) -> Any:
            count.triton += 1
            return earlier(*arguments, **named) if earlier else None

        runtime.jit_post_compile_hook = hear
        try:
            yield count
        finally:
            runtime.jit_post_compile_hook = earlier
    count.numba = _numba_versions() - before


def _triton_runtime() -> Any:
    triton = sys.modules.get("triton")
    return None if triton is None else triton.knobs.runtime


def _numba_versions() -> int:
    """Compiled versions of all of this project's Numba functions that are loaded."""
    dispatchers = sys.modules.get("numba.core.dispatcher")
    if dispatchers is None:
        return 0
    found = {
        id(value): len(value.overloads)
        for name, module in list(sys.modules.items())
        if name.startswith("interleave.")
        for value in list(vars(module).values())
        if isinstance(value, dispatchers.Dispatcher)
    }
    return sum(found.values())
