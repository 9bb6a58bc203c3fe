"""Which code multiplies how many rows: a table that was measured once on this machine, or a fixed one.

A choice timed whenever a model is loaded would change sums with the neighbour's load, so `interleave
machine` measures and writes the table, and loading only reads it. It belongs to a processor, a thread
count, versions, kernels and matrix shapes; for any other there is none, and the fixed one holds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numba
import torch

from interleave.model.simd.compiled import code_folder
from interleave.model.user_cache import cache_folder
from interleave.schedule.names import nearest

PATHS = ("simd", "cpu", "reference")
"""Modules of `model/ops` that multiply float32 on a CPU: explicit vectors, oneDNN, plain torch."""
MARGIN = 0.05
"""By how much a path has to beat the fixed one to replace it: a second layout of the weights costs memory."""

Shapes = Sequence[tuple[int, int]]
"""[out, in] of one layer's matrices: QKV, output, gate and up, down."""


@dataclass(frozen=True, slots=True)
class RowPaths:
    """limits: (most rows, path), ascending, the last without a limit (None). source: fixed or measured.

    Raises ValueError for limits that do not ascend, or an unknown path.
    """

    limits: tuple[tuple[int | None, str], ...]
    source: str

    def __post_init__(self) -> None:
        bounds = [most for most, _ in self.limits]
        inner = [most for most in bounds[:-1] if isinstance(most, int)]
        ascending = all(a < b for a, b in zip([0, *inner], inner, strict=False))
        if not bounds or bounds[-1] is not None or len(inner) != len(bounds) - 1 or not ascending:
            raise ValueError(f"row limits must ascend and end without one, got {bounds}")
        for _, path in self.limits:
            if path not in PATHS:
                raise ValueError(nearest("linear path", path, PATHS))

    def path_for(self, rows: int) -> str:
        return next(path for most, path in self.limits if most is None or rows <= most)

    @property
    def names(self) -> tuple[str, ...]:
        """Every path that some row count takes, each once."""
        return tuple(dict.fromkeys(path for _, path in self.limits))

    @property
    def described(self) -> str:
        """`simd`, or `simd to 32 rows, cpu beyond`; and where the table is from."""
        parts = [f"{path} to {most} rows" for most, path in self.limits[:-1]]
        beyond = f"{self.limits[-1][1]} beyond" if parts else self.limits[-1][1]
        return f"{', '.join([*parts, beyond])} ({self.source})"


def fixed_paths(has_vectors: bool) -> RowPaths:
    """One path for all rows: explicit vectors where the processor has what they need, else oneDNN."""
    return RowPaths(((None, "simd" if has_vectors else "cpu"),), "fixed")


def best_paths(seconds: Mapping[int, Mapping[str, float]], usual: str) -> RowPaths:
    """The table that measured times ask for: `usual` wherever no path beats it by more than MARGIN.

    seconds: by row count and path. A row count that was not measured goes with the next larger one.
    """
    limits: list[tuple[int | None, str]] = []
    for rows in sorted(seconds):
        times = seconds[rows]
        best = min(times, key=lambda path: times[path])
        chosen = best if times[best] < (1 - MARGIN) * times[usual] else usual
        if limits and limits[-1][1] == chosen:
            limits.pop()
        limits.append((rows, chosen))
    limits[-1] = (None, limits[-1][1])
    return RowPaths(tuple(limits), "measured")


def paths_file(shapes: Shapes) -> Path:
    """Where the table for matrices of these shapes on this machine, on torch's threads, is kept."""
    identity = {
        "kernels": code_folder().name,  # their sources, the processor and the compiler's versions
        "torch": torch.__version__,
        "numba": numba.__version__,
        "threads": torch.get_num_threads(),
        "shapes": [list(shape) for shape in shapes],
    }
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
    return cache_folder() / "linear-paths" / f"{digest}.json"


def stored_paths(shapes: Shapes) -> RowPaths | None:
    """The table measured on this machine; None where there is none, or one that cannot be used."""
    try:
        limits = json.loads(paths_file(shapes).read_text(encoding="utf-8"))["limits"]
        return RowPaths(tuple((most, path) for most, path in limits), "measured")
    except (OSError, ValueError, KeyError, TypeError):
        return None
