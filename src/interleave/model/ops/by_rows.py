"""Ops of the decoder on the CPU whose linear layers are multiplied by one of several paths, by row count.

Every matrix is kept in the layout of each path that some row count takes. Everything but the linear
layers is the first path's. Which row count goes where is a table's business (`model/row_paths.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from inspect import isfunction
from types import ModuleType
from typing import Any

from torch import Tensor

from interleave.model.row_paths import RowPaths


@dataclass(frozen=True, slots=True, eq=False)
class PackedByPath:
    """One matrix in several layouts. nbytes: of all; read_nbytes: of the smallest, which a step reads at least."""

    layouts: Mapping[str, Any]

    @property
    def nbytes(self) -> int:
        return sum(layout.nbytes for layout in self.layouts.values())

    @property
    def read_nbytes(self) -> int:
        return min(layout.nbytes for layout in self.layouts.values())


class OpsByRows(ModuleType):
    """A module of ops made from others, since that is what a decoder takes; named after its table."""

    def __init__(self, paths: RowPaths, modules: Mapping[str, ModuleType]) -> None:
        super().__init__(f"interleave.model.ops.{paths.described.rpartition(' (')[0]}")
        self._paths, self._modules = paths, dict(modules)
        usual = self._modules[paths.names[0]]
        # Whatever it offers, so that an op added there is not missing here.
        for name, op in vars(usual).items():
            if isfunction(op) and not name.startswith("_") and not hasattr(type(self), name):
                setattr(self, name, op)

    def pack(self, weight: Tensor) -> PackedByPath:
        return PackedByPath({name: self._modules[name].pack(weight) for name in self._paths.names})

    def linear(self, x: Tensor, weight: PackedByPath, bias: Tensor | None = None) -> Tensor:
        path = self._paths.path_for(len(x))
        out: Tensor = self._modules[path].linear(x, weight.layouts[path], bias)
        return out

    def gated(self, x: Tensor, gate_up: PackedByPath) -> Tensor:
        path = self._paths.path_for(len(x))
        out: Tensor = self._modules[path].gated(x, gate_up.layouts[path])
        return out
