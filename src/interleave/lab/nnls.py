"""Non-negative least squares, by the active set method of Lawson and Hanson (1974), chapter 23.

scipy has one; it is not among this project's packages, and a step-time model has ten unknowns.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def nnls(matrix: Array, target: Array) -> Array:
    """The x >= 0 that minimises |matrix x - target|; matrix [rows, unknowns], target [rows].

    Columns are scaled to length 1 first, since counts of tokens and of pairs lie far apart; a column of
    zeros gets 0. Raises RuntimeError if it does not settle.
    """
    lengths = np.linalg.norm(matrix, axis=0)
    scaled = matrix / np.where(lengths > 0, lengths, 1.0)
    solution = np.zeros(matrix.shape[1])
    free = np.zeros(matrix.shape[1], dtype=bool)
    tolerance = 1e-10 * max(1.0, float(np.linalg.norm(target)))
    for _ in range(10 * matrix.shape[1] + 10):
        slope = scaled.T @ (target - scaled @ solution)
        slope[free | (lengths == 0)] = -np.inf
        best = int(np.argmax(slope)) if len(slope) else 0
        if len(slope) == 0 or slope[best] <= tolerance:
            return np.where(lengths > 0, solution / np.where(lengths > 0, lengths, 1.0), 0.0)
        free[best] = True
        while True:
            trial = np.zeros_like(solution)
            trial[free] = np.linalg.lstsq(scaled[:, free], target, rcond=None)[0]
            falling = free & (trial <= 0)
            if not falling.any():
                break
            step = solution[falling] / (solution[falling] - trial[falling])
            solution = solution + float(step.min()) * (trial - solution)
            free &= solution > 1e-14
            solution[~free] = 0.0
        solution = trial
    raise RuntimeError(f"non-negative least squares of {matrix.shape} did not settle")
