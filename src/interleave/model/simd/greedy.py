"""The greedy token of each row of logits, and whether all of them are finite, in one pass over memory.

A row is walked in blocks that lie in the first-level cache; only a block with a new best is looked at
again, to find the place. A row's result depends on that row only.
"""

from __future__ import annotations

import numba
import numpy as np

from interleave.model.simd.compiled import compiled, compiled_parallel
from interleave.model.simd.glue import threads_for
from interleave.model.simd.vector import LANES, vadd, vfma, vload, vmax, vsplat, vsum, vtop

BLOCK = 1024
"""Logits between two looks at the maximum."""


def greedy_rows(logits: np.ndarray, not_finite: int, out: np.ndarray) -> None:
    """out[r] = the lowest id of the highest of logits[r], or `not_finite`. float32 [rows, vocab], int64 [rows]."""
    threads = min(len(logits), threads_for(logits.size))
    if threads <= 1:
        _greedy_rows(logits, not_finite, out, 0, len(logits))
    else:
        _greedy(logits, not_finite, out, threads)


@compiled
def _greedy_rows(logits: np.ndarray, not_finite: int, out: np.ndarray, start: int, stop: int) -> None:
    vocab = logits.shape[1]
    zero, lowest = vsplat(np.float32(0.0)), vsplat(np.float32(-np.inf))
    for row in range(start, stop):
        best, best_at = np.float32(-np.inf), 0
        spoiled = np.float32(0.0)
        for begin in range(0, vocab, BLOCK):
            end = min(begin + BLOCK, vocab)
            whole = begin + (end - begin) // (2 * LANES) * 2 * LANES
            top_even, top_odd = lowest, lowest
            # 0 * x is 0 for a finite x and NaN for every other.
            products_even, products_odd = zero, zero
            for j in range(begin, whole, 2 * LANES):
                even = vload(logits, row * vocab + j)
                odd = vload(logits, row * vocab + j + LANES)
                top_even, top_odd = vmax(even, top_even), vmax(odd, top_odd)
                products_even = vfma(even, zero, products_even)
                products_odd = vfma(odd, zero, products_odd)
            top = vtop(vmax(top_even, top_odd))
            spoiled += vsum(vadd(products_even, products_odd))
            for j in range(whole, end):
                top = max(top, logits[row, j])
                spoiled += np.float32(0.0) * logits[row, j]
            if top > best:
                best, best_at = top, begin
        token = best_at
        while token < vocab - 1 and logits[row, token] != best:
            token += 1
        out[row] = token if spoiled == np.float32(0.0) else not_finite


@compiled_parallel
def _greedy(logits: np.ndarray, not_finite: int, out: np.ndarray, threads: int) -> None:
    rows = len(logits)
    for thread in numba.prange(threads):
        _greedy_rows(logits, not_finite, out, rows * thread // threads, rows * (thread + 1) // threads)
