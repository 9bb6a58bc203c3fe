"""One team of threads for torch and for the kernels here.

Numba's OpenMP layer shares torch's library when torch is loaded first, and its first parallel launch
resets the thread count that both use. So that launch is made on purpose, and torch's count put back.
"""

from __future__ import annotations

import numba
import torch


def start_threads() -> None:
    """As many numba threads as torch has, started now; what a run records is what computes."""
    threads = torch.get_num_threads()
    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))  # type: ignore[attr-defined]
    torch.set_num_threads(threads)
