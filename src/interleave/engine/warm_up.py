"""A rehearsal: every kind of forward that an engine can reach, before anything is timed.

The rehearsal runs on the engine's executor under a scheduler and a pool of its own, by the same policy,
so that the engine begins as if nothing had happened. It does not know what there is to warm up.
"""

from __future__ import annotations

from interleave.engine.batched import Engine
from interleave.schedule.block_pool import BlockPool
from interleave.schedule.request import Request
from interleave.schedule.scheduler import Scheduler

DEEP = 600
"""A context that kernels split over programs: they do above 512 positions."""


def warm_up(engine: Engine, longest_request: int) -> None:
    """Serve requests that meet at every stage: one row alone, chunks with and without history, decodes
    beside chunks, as many rows as there may be, contexts deep and shallow. Shorter where the engine's
    limits are; blocks stay as they were handed in, free."""
    scheduler = engine.scheduler
    config, pool = scheduler.config, scheduler.pool
    stage = Engine(
        engine.name,
        Scheduler(config, BlockPool(pool.num_blocks, pool.block_tokens)),
        engine.executor,
        engine.vocab_size,
    )
    most = min(longest_request, pool.num_blocks * pool.block_tokens)
    deep = max(DEEP, config.chunk_budget or 0)
    for number, (prompt_len, new) in enumerate([(1, 9), (deep, 9), (17, 6), (deep + 9, 3)]):
        _submit(stage, f"deep {number}", prompt_len, new, most)
        stage.step()
        stage.step()
    _drain(stage)
    for number in range(config.max_rows):
        _submit(stage, f"wide {number}", 2, 3, most)
    _drain(stage)


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
