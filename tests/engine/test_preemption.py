"""Preemptions under real forwards: the same tokens, no block lost, nobody's draw or end changed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from breakable import Breakable, Fault
from tiny_engines import (
    EVERY_POOLED,
    POOLED,
    drain,
    engine,
    expected,
    kv_of,
    prompt,
    request,
    tiny,
    tokens_of,
)

from interleave.engine.batched import Engine, EngineFault
from interleave.engine.build import ENGINES, build_engine
from interleave.engine.executor import BatchExecutor
from interleave.engine.loop import serve
from interleave.engine.records import RunLog
from interleave.lab.metrics import check_budget, check_order
from interleave.schedule.policies import ORDERS
from interleave.schedule.request import Request, SamplingParams

ORDERED = [
    (name, order) for name in POOLED for order in ((None,) if ENGINES[name].policy == "padded" else ORDERS)
]
BLOCK_TOKENS = 4
NUM_BLOCKS = 12
# All claim little at first and grow to 9 to 12 blocks; the last is at its prompt for 20 steps at a budget of 3.
REQUESTS = [
    request("a", 6, 30),
    request("b", 9, 24),
    request("c", 3, 34),
    request("d", 30, 5),
    request("e", 1, 20),
]


def growing(name: str, decoder: Any = None, **settings: Any) -> Engine:
    usual = {
        "allocation": "progressive",
        "block_tokens": BLOCK_TOKENS,
        "num_blocks": NUM_BLOCKS,
        "max_rows": 4,
        "poison_freed": True,
    }
    subject = engine(name, decoder, **(usual | settings))
    kv_of(subject).poison(list(range(kv_of(subject).num_blocks)))
    return subject


def serve_growing(name: str, requests: Sequence[Request] = REQUESTS, **settings: Any) -> RunLog:
    log = serve(growing(name, **settings), requests)
    assert sum(step.preempted for step in log.steps) > 0, "nobody was preempted"
    return log


@pytest.mark.parametrize("chunk_budget", [3, 64])
@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize(("name", "order"), ORDERED)
def test_greedy_tokens_are_those_of_one_request_alone(
    name: str, order: str | None, backend: str, chunk_budget: int
) -> None:
    log = serve_growing(name, backend=backend, order=order, chunk_budget=chunk_budget)
    assert tokens_of(log) == expected(REQUESTS)
    for record in log.requests:
        check_order(record)
        check_budget(record)
        assert all(earlier < later for earlier, later in pairwise(record.token_times_s))


@EVERY_POOLED
def test_what_the_steps_say_adds_up(name: str) -> None:
    subject = growing(name, chunk_budget=8)
    lost: list[int] = []

    def on_step(outcome: Any, _: float) -> None:
        subject.check()
        lost.extend(gone.num_computed for gone in outcome.plan.preempted)

    log = serve(subject, REQUESTS, on_step=on_step)
    steps = log.steps
    assert sum(step.preempted for step in steps) == sum(step.resumed for step in steps) == len(lost) > 0
    # What was lost is computed once more, whatever becomes of it, and nothing else is.
    assert sum(step.recomputed_tokens for step in steps) == sum(lost)
    computed = sum(step.prefill_tokens + step.decode_rows for step in steps)
    assert computed - sum(lost) == sum(r.total_len - 1 for r in REQUESTS)
    assert sum(step.admitted for step in steps) == len(REQUESTS)
    admits = [record.admit_step for record in log.requests]
    assert admits == sorted(admits)  # type: ignore[type-var]
    for step in steps:
        assert step.used_blocks <= step.owned_blocks <= NUM_BLOCKS
        assert step.used_blocks * BLOCK_TOKENS - step.rows * BLOCK_TOKENS < step.cached_tokens
        assert step.cached_tokens <= step.used_blocks * BLOCK_TOKENS
        assert step.running <= step.rows
    # Blocks are taken as they are needed, so what is owned is used, but for the row that has just ended.
    assert all(step.used_blocks == step.owned_blocks for step in steps)


@EVERY_POOLED
def test_under_reserve_the_pool_is_owned_and_not_used(name: str) -> None:
    log = serve(engine(name, block_tokens=4, num_blocks=12, max_rows=4), REQUESTS)
    need = {r.request_id: -(-r.total_len // 4) for r in REQUESTS}
    first = log.steps[0]
    assert (first.rows, first.owned_blocks) == (1, need["a"])
    assert sum(step.preempted + step.resumed + step.recomputed_tokens for step in log.steps) == 0
    assert any(step.used_blocks < step.owned_blocks for step in log.steps)
    assert max(step.rows for step in log.steps) < max(step.rows for step in serve_growing(name).steps)


@EVERY_POOLED
def test_draws_go_on_where_they_were(name: str) -> None:
    """A sampled request that is preempted draws what it draws alone: its generator waits with it."""
    hot = [
        Request(f"hot{n}", prompt(5 + n), 24, sampling=SamplingParams(0.9, 0.95, seed=n)) for n in range(3)
    ]
    together = tokens_of(serve_growing(name, hot))
    alone = {one.request_id: tokens_of(serve(engine(name), [one]))[one.request_id] for one in hot}
    assert together == alone
    assert together != expected(hot)


@EVERY_POOLED
def test_stop_ids_after_a_preemption(name: str) -> None:
    answers = expected(REQUESTS)
    stopping = [
        Request(r.request_id, r.prompt, r.max_new_tokens, stop_ids=frozenset(answers[r.request_id][-2:-1]))
        for r in REQUESTS
    ]
    log = serve_growing(name, stopping)
    for record in log.requests:
        stop = answers[record.request_id][-2]
        first = answers[record.request_id].index(stop)
        assert record.tokens == answers[record.request_id][: first + 1]
        assert record.finish_reason == "stop"


@EVERY_POOLED
def test_abort_while_preempted(name: str) -> None:
    subject = growing(name)
    aborted: list[str] = []

    def on_step(outcome: Any, _: float) -> None:
        if not aborted and subject.scheduler.queue.preempted:
            aborted.append(subject.scheduler.queue.preempted[-1].request_id)
            assert subject.abort(aborted[0])
            subject.check()
            assert not subject.abort(aborted[0])

    log = serve(subject, REQUESTS, on_step=on_step)
    (gone,) = aborted
    for record in log.requests:
        right = expected(REQUESTS)[record.request_id]
        if record.request_id == gone:
            assert record.finish_reason == "abort"
            assert 0 < len(record.tokens) < len(right)
        assert record.tokens == right[: len(record.tokens)]
        assert record.finish_reason == ("abort" if record.request_id == gone else "length")
    assert generators(subject) == {}


@EVERY_POOLED
def test_a_fault_while_somebody_is_preempted(name: str) -> None:
    """The forwards of a good run are counted up to its first preemption; the same run fails in the next."""
    counting = Breakable(tiny())
    probe = growing(name, counting)
    for one in REQUESTS:
        probe.submit(one)
    while not probe.scheduler.queue.preempted:
        probe.step()
    subject = growing(name, Breakable(tiny(), Fault("end", counting.calls + 1, RuntimeError("broken"))))
    for one in REQUESTS:
        subject.submit(one)
    with pytest.raises(EngineFault, match="broken") as caught:
        drain(subject)
    assert sorted(caught.value.failed_ids) == probe_live(probe)
    assert generators(subject) == {}
    subject.check()
    assert subject.scheduler.pool.num_free == NUM_BLOCKS
    assert tokens_of(serve(subject, REQUESTS)) == expected(REQUESTS)


def probe_live(probe: Engine) -> list[str]:
    return sorted(probe.scheduler.live_ids)


def generators(subject: Engine) -> dict[str, Any]:
    assert isinstance(subject.executor, BatchExecutor)
    return subject.executor._sample._generators


@pytest.mark.parametrize("name", sorted(set(ENGINES) - set(POOLED)))
def test_an_engine_without_a_block_pool_refuses_it(name: str) -> None:
    with pytest.raises(
        ValueError, match=f"'progressive' does not apply to engine '{name}': .* paged, whole, chunked"
    ):
        build_engine(name, tiny(), allocation="progressive")
