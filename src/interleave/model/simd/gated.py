"""The first half of a SwiGLU layer in one go: silu(x @ gate) * (x @ up), column panel by column panel.

The two products of a tile of rows meet while they are in the first-level cache; the wide matrix of both,
four times as large as the layer's input for each row, is never written. The bits are those of
`linear.multiply` followed by `glue.swiglu`.
"""

from __future__ import annotations

import numba
import numpy as np

from interleave.model.simd.compiled import compiled, compiled_parallel
from interleave.model.simd.forms import PANEL
from interleave.model.simd.glue import silu_times
from interleave.model.simd.linear import LinearPaths, PackedMatrix, part_size, place_of
from interleave.model.simd.narrow import NARROW_ROWS, multiply_narrow_tile, widen_panel
from interleave.model.simd.queue import new_queue, take
from interleave.model.simd.tiles import ROWS, multiply_tile
from interleave.model.simd.vector import LANES, vload, vstore

DEPTH = 2048
"""Most depths of a layer's input: its two panels are widened whole, in 256 KiB with 8 lanes, 512 with 16,
which a second-level cache holds."""

TOGETHER = 2
"""Pairs of panels that are widened at once, where the depth leaves room for them: a row tile, which comes
from afar, meets all of them while it is near."""


def fits(matrix: PackedMatrix) -> bool:
    """Whether gate and up are whole panels of a depth that is widened in one piece."""
    return matrix.width % (2 * PANEL) == 0 and matrix.depth <= DEPTH


def multiply_gated(
    x: np.ndarray,
    matrix: PackedMatrix,
    out: np.ndarray,
    paths: LinearPaths = LinearPaths(),  # noqa: B008
) -> None:
    """out [rows, width / 2] from x [rows, depth] and a matrix [width, depth] that `fits`, gate first."""
    pairs = len(matrix.panels) // 2
    together = max(1, min(TOGETHER, DEPTH // matrix.depth))
    threads = min(numba.get_num_threads(), pairs)
    size = part_size(pairs, threads) if len(x) <= paths.narrow_rows else together
    _multiply_gated(
        x, matrix.panels, matrix.form, out, paths.narrow_rows, size, _queue, threads, _scratch(threads)
    )


_queue = new_queue()
_kept: list[np.ndarray] = []


def _scratch(threads: int) -> np.ndarray:
    """float32 [threads, two widened panels and two tiles], made once."""
    if not _kept or len(_kept[0]) < threads:
        _kept[:] = [np.empty((threads, 2 * (DEPTH + ROWS) * PANEL), dtype=np.float32)]
    return _kept[0]


@compiled_parallel
def _multiply_gated(
    x: np.ndarray,
    panels: np.ndarray,
    form: int,
    out: np.ndarray,
    narrow_rows: int,
    size: int,
    queue: np.ndarray,
    threads: int,
    scratch: np.ndarray,
) -> None:
    queue[0] = 0
    pairs = len(panels) // 2
    together = 1 if len(x) <= narrow_rows else size
    for thread in numba.prange(threads):
        begin = size * take(queue)
        while begin < pairs:
            stop = min(begin + size, pairs)
            for pair in range(begin, stop, together):
                _some_pairs(
                    x, panels, pair, min(together, stop - pair), form, out, narrow_rows, scratch, thread
                )
            begin = size * take(queue)


@compiled
def _some_pairs(
    x: np.ndarray,
    panels: np.ndarray,
    first_pair: int,
    num_pairs: int,
    form: int,
    out: np.ndarray,
    narrow_rows: int,
    scratch: np.ndarray,
    thread: int,
) -> None:
    """All rows of `out` in the columns of a few gate panels and their up panels."""
    rows, depth = x.shape
    width, size = out.shape[1], panels.shape[1]
    up_panel = len(panels) // 2
    gate_wide = thread * scratch.shape[1]
    up_wide = gate_wide + DEPTH * PANEL
    gate_tile = up_wide + DEPTH * PANEL
    up_tile = gate_tile + ROWS * PANEL
    narrow = rows <= narrow_rows
    if not narrow:
        for index in range(num_pairs):
            wide = index * depth * PANEL
            blocks, block_depth, gate_at = place_of(form, (first_pair + index) * size, 0, depth)
            _, _, up_at = place_of(form, (first_pair + index + up_panel) * size, 0, depth)
            widen_panel(form, scratch, gate_wide + wide, panels, gate_at, blocks, block_depth)
            widen_panel(form, scratch, up_wide + wide, panels, up_at, blocks, block_depth)
    most = NARROW_ROWS if narrow else ROWS
    num_tiles = (rows + most - 1) // most
    for tile in range(num_tiles):
        start, stop = rows * tile // num_tiles, rows * (tile + 1) // num_tiles
        count, x_at = stop - start, start * depth
        for index in range(num_pairs):
            pair, wide = first_pair + index, index * depth * PANEL
            if narrow:
                blocks, block_depth, gate_at = place_of(form, pair * size, 0, depth)
                _, _, up_at = place_of(form, (pair + up_panel) * size, 0, depth)
                multiply_narrow_tile(
                    form, count, scratch, gate_tile, PANEL, x, x_at, depth, panels, gate_at,
                    blocks, block_depth, False,
                )  # fmt: skip
                multiply_narrow_tile(
                    form, count, scratch, up_tile, PANEL, x, x_at, depth, panels, up_at,
                    blocks, block_depth, False,
                )  # fmt: skip
            else:
                multiply_tile(
                    count, scratch, gate_tile, PANEL, x, x_at, depth,
                    scratch, gate_wide + wide, PANEL, depth, False,
                )  # fmt: skip
                multiply_tile(
                    count, scratch, up_tile, PANEL, x, x_at, depth,
                    scratch, up_wide + wide, PANEL, depth, False,
                )  # fmt: skip
            for row in range(count):
                for j in range(row * PANEL, (row + 1) * PANEL, LANES):
                    gated = silu_times(vload(scratch, gate_tile + j), vload(scratch, up_tile + j))
                    vstore(out, (start + row) * width + pair * PANEL + j - row * PANEL, gated)
