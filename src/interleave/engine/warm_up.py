"""A rehearsal: every kind of forward that an engine can reach, before anything is timed.

The rehearsal runs on the engine's executor under a scheduler and a pool of its own, by the same policy,
so that the engine begins as if nothing had happened. What is compiled stays for the process: an engine
like one that was rehearsed is not rehearsed again.
"""

from __future__ import annotations

from typing import Any

from interleave.engine.batched import Engine
from interleave.engine.executor import BatchExecutor
from interleave.schedule.block_pool import BlockPool
from interleave.schedule.request import Request
from interleave.schedule.scheduler import Scheduler

DEEP = 600
"""A context that the device's kernels split over programs: they do above 512 positions."""
SHALLOW = 70
"""The host's attention has no such limit, and prompts are slow there."""

_rehearsed: set[tuple[Any, ...]] = set()


def warm_up(engine: Engine, longest_request: int) -> None:
    """Serve requests that meet at every stage: one row alone, chunks with and without history, decodes
    beside chunks, as many rows as there may be, contexts deep and shallow. Shorter where the engine's
    limits are; blocks stay as they were handed in, free."""
    executor = engine.executor
    batched = executor if isinstance(executor, BatchExecutor) else None
    if batched is not None and batched.recorded is not None:
        batched.recorded.record_all()
    scheduler = engine.scheduler
    config, pool = scheduler.config, scheduler.pool
    most = min(longest_request, pool.num_blocks * pool.block_tokens)
    on_device = batched is not None and batched.attention.on_device
    deep = DEEP if on_device else SHALLOW
    limits = (config.max_rows, config.chunk_budget, config.max_chunk, config.token_budget)
    kind = (engine.name, config.order, *limits, batched and pool.block_tokens, min(most, deep + 9))
    if (like := (*kind, *_computing(executor))) in _rehearsed:
        return
    stage = Engine(
        engine.name,
        Scheduler(config, BlockPool(pool.num_blocks, pool.block_tokens)),
        executor,
        engine.vocab_size,
    )
    # The earlier, the longer: the first still decode when the last prompt is computed.
    for number, (prompt_len, new) in enumerate([(1, 7), (deep, 5), (17, 3), (deep + 9, 2)]):
        _submit(stage, f"deep {number}", prompt_len, new, most)
        stage.step()
        stage.step()
    _drain(stage)
    for number in range(config.max_rows):
        _submit(stage, f"wide {number}", 2, 3, most)
    _drain(stage)
    _rehearsed.add(like)


def _computing(executor: Any) -> tuple[Any, ...]:
    """What compiles: the model's shape and type, the code for its ops and for attention, the device."""
    decoder = executor.decoder
    attention = type(executor.attention).__name__ if isinstance(executor, BatchExecutor) else None
    return decoder.config, decoder.dtype, str(decoder.device), decoder.ops.__name__, attention


def _submit(stage: Engine, name: str, prompt_len: int, new: int, most: int) -> None:
    new = max(1, min(new, most - 1))
    prompt_len = max(1, min(prompt_len, most - new))
    if prompt_len + new <= most:
        vocab_size = stage.vocab_size or 1
        stage.submit(Request(name, [token % vocab_size for token in range(prompt_len)], new))


def _drain(stage: Engine) -> None:
    while stage.has_work:
        stage.step()
    stage.check()
