"""A computation over fixed buffers, kept so that it can be done again with whatever they hold then.

On a GPU that is a CUDA graph: the launches are recorded once and replayed by one call, without the
host looking at any of them. Elsewhere the same computation is called again, which costs what it costs
but runs the same code over the same buffers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch

Compute = Callable[[], None]
"""Reads and writes buffers that stay where they are; returns nothing."""


class Recording(Protocol):
    def replay(self) -> None: ...


class Repetition:
    """Calls the computation again."""

    def __init__(self, compute: Compute) -> None:
        self.replay = compute


class CudaGraph:
    """The launches of a computation as one CUDA graph.

    The computation runs once before it is recorded: kernels compile, libraries allocate what they keep.
    pool: graphs that never run at the same time share their temporary memory through it.
    """

    def __init__(self, compute: Compute, pool: Any) -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            compute()
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=pool):
            compute()

    def replay(self) -> None:
        self._graph.replay()


Record = Callable[[Compute], Recording]


def recorder(graphs: bool) -> Record:
    """What makes recordings that share memory with each other and nobody else."""
    if not graphs:
        return Repetition
    pool = torch.cuda.graph_pool_handle()
    return lambda compute: CudaGraph(compute, pool)
