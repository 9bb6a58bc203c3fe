"""A scheduler that looks ahead plans what a plain one plans, whatever of its recurrences is booked at once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_ledger import GROUP_POLICIES, Ledger, one_step

from interleave.schedule.allocation import ALLOCATIONS
from interleave.schedule.block_pool import BlockPool, need_blocks
from interleave.schedule.config import SchedulerConfig
from interleave.schedule.lockstep import LockstepForward, LockstepTokens
from interleave.schedule.plan import StepPlan
from interleave.schedule.policies import POLICIES
from interleave.schedule.request import Request
from interleave.schedule.scheduler import Scheduler

Composition = tuple[tuple[tuple[str, int, int], ...], ...]


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Scheduler, Scheduler, list[Request]]:
    """(looking ahead, plain) with the same limits, and requests that both can serve."""
    policy = draw(st.sampled_from(sorted(POLICIES)))
    max_rows = draw(st.integers(1, 6))
    group = policy in GROUP_POLICIES
    config = SchedulerConfig(
        policy,
        order=None if group else draw(st.sampled_from([None, "decode_first", "prefill_first"])),
        chunk_budget=draw(st.none() | st.integers(1, 20)),
        max_chunk=draw(st.none() | st.integers(1, 20)) if policy in ("chunked", "mixed") else None,
        token_budget=None if group else draw(st.none() | st.integers(max_rows + 1, max_rows + 20)),
        max_rows=max_rows,
        allocation="reserve" if policy == "static" else draw(st.sampled_from(sorted(ALLOCATIONS))),
    )
    lengths = draw(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 20)), min_size=1, max_size=10))
    requests = [Request(f"r{n}", range(prompt), new) for n, (prompt, new) in enumerate(lengths)]
    widest = max(need_blocks(request.total_len, 4) for request in requests)
    num_blocks = draw(st.integers(widest, 3 * widest))
    return (
        Scheduler(config, BlockPool(num_blocks, 4), look_ahead=True),
        Scheduler(config, BlockPool(num_blocks, 4)),
        requests,
    )


def changes(plan: StepPlan) -> tuple[tuple[str, ...], ...]:
    """Who comes and goes with a plan: ids admitted, resumed, and preempted."""
    gone = tuple(preemption.row for preemption in plan.preempted)
    return tuple(tuple(row.request_id for row in rows) for rows in (plan.admitted, plan.resumed, gone))


def zeros(scheduler: Scheduler) -> dict[str, int]:
    return dict.fromkeys(scheduler.live_ids, 0)


@settings(max_examples=50)
@given(pairs(), st.data())
def test_recurrences_are_steps_of_a_plain_scheduler(
    case: tuple[Scheduler, Scheduler, list[Request]], data: st.DataObject
) -> None:
    ahead, plain, requests = case
    late = data.draw(st.integers(0, len(requests) - 1))
    for request in requests[late:]:
        ahead.submit(request)
        plain.submit(request)
    waiting = requests[:late]
    while ahead.has_work or waiting:
        if waiting and (not ahead.has_work or data.draw(st.booleans())):
            request = waiting.pop()
            ahead.submit(request)
            plain.submit(request)
        plan = ahead.plan()
        repeats = data.draw(st.integers(1, plan.repeats))
        planned: Composition = plan.composition()
        tokens: list[tuple[str, int]] = []
        released: list[str] = []
        for step in range(repeats):
            other = plain.plan()
            moved = tuple(tuple((i, start + step * count, count) for i, start, count in f) for f in planned)
            assert other.composition() == moved
            assert other.step == plan.step + step
            assert changes(other) == (changes(plan) if step == 0 else ((), (), ()))
            committed = plain.commit(other, zeros(plain))
            tokens = list(committed.tokens)
            released += [row.request_id for row in committed.released]
        booked = ahead.commit(plan, zeros(ahead), repeats)
        assert list(booked.tokens) == tokens
        assert [row.request_id for row in booked.released] == released
        assert [(r.request_id, r.num_computed, r.emitted, r.last_served_step) for r in ahead.rows] == [
            (r.request_id, r.num_computed, r.emitted, r.last_served_step) for r in plain.rows
        ]
        assert ahead.pool.num_free == plain.pool.num_free
        ahead.check()
    assert not plain.has_work


@settings(max_examples=50)
@given(pairs(), st.data())
def test_the_ledger_accepts_it_with_aborts(
    case: tuple[Scheduler, Scheduler, list[Request]], data: st.DataObject
) -> None:
    ahead, _, requests = case
    ledger = Ledger(ahead)
    for request in requests:
        ahead.submit(request)
        ledger.submitted(request)
    while ahead.has_work:
        if data.draw(st.integers(0, 5)) == 0:
            victim = data.draw(st.sampled_from(ahead.live_ids))
            if ahead.abort(victim) is not None:  # a row that its batch holds has all its tokens
                ledger.ended(victim, "abort")
            ledger.conserved()
            continue
        one_step(ledger)


def decoding() -> Scheduler:
    scheduler = Scheduler(SchedulerConfig("chunked"), BlockPool(64, 4), look_ahead=True)
    for name in ("a", "b"):
        scheduler.submit(Request(name, range(4), 10))
    scheduler.commit(scheduler.plan(), {"a": 0, "b": 0})
    return scheduler


def test_a_decode_is_made_into_pieces_only_when_looked_at() -> None:
    scheduler = decoding()
    plan = scheduler.plan()
    (forward,) = plan.forwards
    assert isinstance(forward, LockstepForward)
    assert (len(forward), plan.repeats, plan.full) == (2, 9, False)
    assert forward.attended == 10
    committed = scheduler.commit(plan, {"a": 0, "b": 0}, 4)
    assert isinstance(committed.tokens, LockstepTokens)
    assert list(committed.tokens) == [("a", 0), ("b", 0)]
    with pytest.raises(RuntimeError, match="not looked at before their step was committed"):
        list(forward)
    assert [(row.num_computed, row.known_len) for row in scheduler.rows] == [(8, 9), (8, 9)]


def test_stop_ids_are_refused() -> None:
    with pytest.raises(ValueError, match="'s' has stop ids"):
        decoding().submit(Request("s", [1], 5, frozenset({3})))
