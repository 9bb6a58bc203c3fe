"""Seconds of a piece of work, repeated: by a GPU's own clock where there is one."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch


def timed(work: Callable[[], object], repeats: int, device: str) -> list[float]:
    """Seconds of each repetition: between events on a GPU, of the host's clock elsewhere."""
    if device != "cuda":
        taken = []
        for _ in range(repeats):
            start = time.perf_counter()
            work()
            taken.append(time.perf_counter() - start)
        return taken
    pairs = [
        (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeats)
    ]
    for begin, end in pairs:
        begin.record()
        work()
        end.record()
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) / 1e3 for begin, end in pairs]
