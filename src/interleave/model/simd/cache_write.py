"""New keys and values into the slots of the cache, before anything attends to them."""

from __future__ import annotations

import numba
import numpy as np

from interleave.model.simd.compiled import compiled, compiled_parallel


@compiled
def write_rows(
    k: np.ndarray,
    v: np.ndarray,
    strides: tuple[int, int],
    slots: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    start: int,
    stop: int,
) -> None:
    """Store positions start to stop of k and v, flat with position n at n * stride, at slots [n]."""
    kv_heads, _, dim = keys.shape
    for index in range(start, stop):
        slot = slots[index]
        for head in range(kv_heads):
            for d in range(dim):
                keys[head, slot, d] = k[index * strides[0] + head * dim + d]
                values[head, slot, d] = v[index * strides[1] + head * dim + d]


@compiled_parallel
def write(
    k: np.ndarray,
    v: np.ndarray,
    strides: tuple[int, int],
    slots: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    threads: int,
) -> None:
    """`write_rows` for all positions, shared out."""
    count = len(slots)
    for thread in numba.prange(threads):
        start, stop = count * thread // threads, count * (thread + 1) // threads
        write_rows(k, v, strides, slots, keys, values, start, stop)
