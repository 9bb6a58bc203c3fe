"""Linear layers whose weights stay narrow until the moment they are multiplied.

A step of a small model streams every weight from memory, so what counts is bytes. Each matrix lies in
panels of its narrowest exact form (`forms.py`); for few rows a panel is widened in registers, for more
into a scratch that stays in the cache, once for all rows. Panels are shared out over threads. The sums
of an element run over the depth in the same order for any number of rows, so a token's layer output
does not depend on which other tokens are in the forward.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from interleave.model.simd.compiled import compiled, compiled_parallel
from interleave.model.simd.forms import BLOCK, HEADER_BYTES, NAMES, PANEL, STEP_BYTES
from interleave.model.simd.narrow import NARROW_ROWS, multiply_narrow_tile, widen_panel
from interleave.model.simd.queue import new_queue, take
from interleave.model.simd.tiles import ROWS, multiply_tile
from interleave.model.simd.vector import LANES

DEPTH = 768
"""Depths of a panel that are widened at once and serve every row tile."""

TOGETHER = 2
"""Panels that are widened at once: a row tile, which comes from afar, meets all of them while it is near."""


@dataclass(frozen=True, slots=True)
class LinearPaths:
    """Which way serves which number of rows; the results are the same bits either way.

    narrow_rows: up to so many rows a panel is widened in registers, anew for each tile; beyond, in scratch.
    """

    narrow_rows: int = 16 if LANES == 16 else 8

    def __post_init__(self) -> None:
        if self.narrow_rows < 0:
            raise ValueError(f"narrow_rows must be at least 0, got {self.narrow_rows!r}")


@dataclass(frozen=True, slots=True, eq=False)
class PackedMatrix:
    """A matrix [width, depth] in panels: form (see `forms.py`) and bytes [panels, bytes of one]."""

    form: int
    width: int
    depth: int
    panels: np.ndarray

    @property
    def nbytes(self) -> int:
        return self.panels.nbytes

    @property
    def form_name(self) -> str:
        return NAMES[self.form]


def multiply(
    x: np.ndarray,
    matrix: PackedMatrix,
    out: np.ndarray,
    add: bool = False,
    paths: LinearPaths = LinearPaths(),
) -> None:
    """out [rows, width] = (out +, if `add`) x [rows, depth] @ matrix transposed."""
    num_panels = len(matrix.panels)
    threads = min(numba.get_num_threads(), num_panels)
    size = part_size(num_panels, threads) if len(x) <= paths.narrow_rows else TOGETHER
    _multiply(
        x, matrix.panels, matrix.form, out, add, paths.narrow_rows, size, _queue, threads, _scratch(threads)
    )


def part_size(count: int, threads: int) -> int:
    """Panels that a thread takes at once where each is multiplied by itself: few rows wait for memory, which
    is read fastest in long stretches."""
    return -(-count // threads)


_queue = new_queue()
_kept: list[np.ndarray] = []


def _scratch(threads: int) -> np.ndarray:
    """float32 [threads, widened panels and an edge tile], made once."""
    if not _kept or len(_kept[0]) < threads:
        _kept[:] = [np.empty((threads, (TOGETHER * DEPTH + ROWS) * PANEL), dtype=np.float32)]
    return _kept[0]


@compiled_parallel
def _multiply(
    x: np.ndarray,
    panels: np.ndarray,
    form: int,
    out: np.ndarray,
    add: bool,
    narrow_rows: int,
    size: int,
    queue: np.ndarray,
    threads: int,
    scratch: np.ndarray,
) -> None:
    queue[0] = 0
    together = 1 if len(x) <= narrow_rows else size
    for thread in numba.prange(threads):
        begin = size * take(queue)
        while begin < len(panels):
            stop = min(begin + size, len(panels))
            for panel in range(begin, stop, together):
                _some_panels(
                    x,
                    panels,
                    panel,
                    min(together, stop - panel),
                    form,
                    out,
                    add,
                    narrow_rows,
                    scratch,
                    thread,
                )
            begin = size * take(queue)


@compiled
def _some_panels(
    x: np.ndarray,
    panels: np.ndarray,
    first_panel: int,
    num_panels: int,
    form: int,
    out: np.ndarray,
    add: bool,
    narrow_rows: int,
    scratch: np.ndarray,
    thread: int,
) -> None:
    """All rows of `out` in the columns of a few panels, in pieces of the depth that fit the scratch."""
    rows, depth = x.shape
    width = out.shape[1]
    narrow = rows <= narrow_rows
    wide_at = thread * scratch.shape[1]
    edge_at = wide_at + TOGETHER * DEPTH * PANEL
    most = NARROW_ROWS if narrow else ROWS
    num_tiles = (rows + most - 1) // most
    piece = depth if narrow else DEPTH
    for first in range(0, depth, piece):
        length = min(piece, depth - first)
        if not narrow:
            for index in range(num_panels):
                panel_at = (first_panel + index) * panels.shape[1]
                blocks, block_depth, at = place_of(form, panel_at, first, length)
                widen_panel(form, scratch, wide_at + index * DEPTH * PANEL, panels, at, blocks, block_depth)
        adding = add or first > 0
        for tile in range(num_tiles):
            start, stop = rows * tile // num_tiles, rows * (tile + 1) // num_tiles
            x_at = start * depth + first
            for index in range(num_panels):
                panel = first_panel + index
                target, target_at, stride = out, start * width + panel * PANEL, width
                at_edge = (panel + 1) * PANEL > width
                if at_edge:
                    target, target_at, stride = scratch, edge_at, PANEL
                    _copy_in(scratch, edge_at, out, start, stop, panel * PANEL)
                if narrow:
                    blocks, block_depth, at = place_of(form, panel * panels.shape[1], first, length)
                    multiply_narrow_tile(
                        form, stop - start, target, target_at, stride, x, x_at, depth,
                        panels, at, blocks, block_depth, adding,
                    )  # fmt: skip
                else:
                    multiply_tile(
                        stop - start, target, target_at, stride, x, x_at, depth,
                        scratch, wide_at + index * DEPTH * PANEL, PANEL, length, adding,
                    )  # fmt: skip
                if at_edge:
                    _copy_out(scratch, edge_at, out, start, stop, panel * PANEL)


@compiled
def place_of(form: int, panel_at: int, first: int, length: int) -> tuple[int, int, int]:
    """(blocks, depths of each, byte where they begin) of a piece of a panel."""
    if HEADER_BYTES[form] == 0:
        return 1, length, panel_at + first * STEP_BYTES[form]
    block_bytes = HEADER_BYTES[form] + BLOCK * STEP_BYTES[form]
    return length // BLOCK, BLOCK, panel_at + first // BLOCK * block_bytes


@compiled
def _copy_in(edge: np.ndarray, edge_at: int, out: np.ndarray, start: int, stop: int, column: int) -> None:
    thread, at = divmod(edge_at, edge.shape[1])
    for row in range(start, stop):
        for j in range(column, out.shape[1]):
            edge[thread, at + (row - start) * PANEL + j - column] = out[row, j]


@compiled
def _copy_out(edge: np.ndarray, edge_at: int, out: np.ndarray, start: int, stop: int, column: int) -> None:
    thread, at = divmod(edge_at, edge.shape[1])
    for row in range(start, stop):
        for j in range(column, out.shape[1]):
            out[row, j] = edge[thread, at + (row - start) * PANEL + j - column]
