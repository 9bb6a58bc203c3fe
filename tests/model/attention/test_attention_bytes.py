"""Chunked prefill on the CPU reads history where it lies: bytes are counted, not times.

Two counters. A dispatch mode sees every torch operation that reads the cache and makes something
new of it; the profiler sees every allocation, also those inside an operation.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from attention_cases import Shape, build, run
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from interleave.engine.build import build_engine
from interleave.model.kv_cache import KVCache
from interleave.model.sources import load_model
from interleave.schedule.request import Request

CHUNK, BLOCK = 64, 16


class CacheCopies(TorchDispatchMode):
    """Bytes of new tensors that an operation made from the cache, attention itself not counted."""

    def __init__(self, cache: KVCache) -> None:
        super().__init__()
        self.of_cache = {cache.k.untyped_storage().data_ptr(), cache.v.untyped_storage().data_ptr()}
        self.copied_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        reads = any(isinstance(a, Tensor) and self.is_cache(a) for a in args)
        if reads and "attention" not in func.name():
            made = out if isinstance(out, (tuple, list)) else (out,)
            self.copied_bytes += sum(t.nbytes for t in made if isinstance(t, Tensor) and not self.is_cache(t))
        return out

    def is_cache(self, tensor: Tensor) -> bool:
        return tensor.untyped_storage().data_ptr() in self.of_cache


def copied_in_prefill(backend: str, prompt_len: int, scattered: bool) -> tuple[int, int]:
    """(bytes copied out of the cache, bytes of K and V that were history) over all chunks of a prompt."""
    copied = history = 0
    for context in range(CHUNK, prompt_len + 1, CHUNK):
        built = build(Shape(((context, CHUNK),), block_tokens=BLOCK, group=1, scattered=scattered))
        with CacheCopies(built.cache) as counter:
            run(backend, built)
        copied += counter.copied_bytes
        history += 2 * (context - CHUNK) * built.k[0].nbytes
    return copied, history


@pytest.mark.parametrize("scattered", [False, True])
def test_no_byte_of_history_is_copied(scattered: bool) -> None:
    assert copied_in_prefill("cpu", 512, scattered)[0] == 0


def test_the_counter_sees_a_backend_that_gathers() -> None:
    """The oracle gathers its whole history for every chunk: the sum grows with the prompt's square."""
    copied, history = copied_in_prefill("reference", 256, True)
    assert copied >= history
    assert copied_in_prefill("reference", 512, True)[0] > 3 * copied


def allocated(work: Callable[[], object]) -> int:
    """Bytes of all allocations during `work`, torch's and, at their peak, numpy's; frees don't count."""
    tracemalloc.start()
    try:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            work()
        numpy_peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    results = profiler.profiler.kineto_results  # type: ignore[union-attr]
    return numpy_peak + sum(max(0, e.nbytes()) for e in results.events() if e.name() == "[memory]")


@pytest.mark.parametrize("num_rows", [1, 8])
def test_a_decode_takes_room_for_scores_only(num_rows: int) -> None:
    """A float per row, head and position, and the output; its history would take 128 times that."""
    built = build(Shape(((300, 1),) * num_rows, block_tokens=BLOCK, group=1, head_dim=64))
    run("cpu", built)
    history_bytes = 2 * len(built.history) * built.k[0].nbytes
    assert allocated(lambda: run("cpu", built)) < history_bytes / 4


def prefill_bytes(name: str, backend: str, prompt_len: int) -> int:
    subject = build_engine(
        name,
        load_model("tiny").decoder,
        chunk_budget=CHUNK,
        block_tokens=BLOCK,
        backend=backend,
        num_blocks=4 * prompt_len // BLOCK,
        max_request_tokens=2 * prompt_len,
    )

    def prefill() -> None:
        while subject.has_work:
            subject.step()

    subject.submit(Request("warm", range(CHUNK + 1), 2))
    prefill()
    subject.submit(Request("one", [n % 512 for n in range(prompt_len)], 1))
    return allocated(prefill)


@pytest.mark.parametrize("name", ["chunked", "mixed"])
def test_prefill_allocates_in_proportion_to_the_prompt(name: str) -> None:
    """Twice the prompt, twice the bytes, over the whole engine; a gather per chunk would make it more."""
    short, long = prefill_bytes(name, "cpu", 1024), prefill_bytes(name, "cpu", 2048)
    assert long < 2.1 * short
    gathered = prefill_bytes(name, "reference", 2048)
    assert gathered > 2 * long
    assert gathered > 3 * prefill_bytes(name, "reference", 1024)
