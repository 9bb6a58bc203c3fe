"""Progressive allocation by hand: who gets blocks when, who gives way, and what comes back."""

from __future__ import annotations

import pytest
from schedule_ledger import Ledger, one_step, run_all

from interleave.schedule.allocation import ALLOCATIONS
from interleave.schedule.block_pool import BlockPool
from interleave.schedule.config import SchedulerConfig
from interleave.schedule.policies import POLICIES
from interleave.schedule.request import Request
from interleave.schedule.row import Row
from interleave.schedule.scheduler import Scheduler
from interleave.schedule.tpot_target import TpotTarget

GROWING = sorted(set(POLICIES) - {"static"})
EVERY_GROWING = pytest.mark.parametrize("policy", GROWING)


def scheduler(policy: str, num_blocks: int, block_tokens: int = 4, **limits: int) -> Scheduler:
    config = SchedulerConfig(policy, allocation="progressive", **limits)  # type: ignore[arg-type]
    return Scheduler(config, BlockPool(num_blocks, block_tokens))


def ledger_of(subject: Scheduler, *lengths: tuple[str, int, int]) -> Ledger:
    """(id, prompt, new) each submitted."""
    ledger = Ledger(subject)
    for name, prompt_len, max_new_tokens in lengths:
        request = Request(name, range(prompt_len), max_new_tokens)
        subject.submit(request)
        ledger.submitted(request)
    return ledger


def blocks(subject: Scheduler) -> dict[str, int]:
    return {row.request_id: len(row.blocks) for row in subject.rows}


def to_the_end(ledger: Ledger) -> None:
    while ledger.scheduler.has_work:
        one_step(ledger)
        assert len(ledger.steps) < 1000


def test_blocks_come_with_chunks_and_with_decodes_that_cross_an_edge() -> None:
    subject = scheduler("chunked", 10, chunk_budget=5)
    ledger = ledger_of(subject, ("a", 12, 7))
    held = []
    while subject.has_work:
        one_step(ledger)
        held.append(blocks(subject).get("a", 0))
    # Chunks end at 5, 10 and 12; decodes compute 12 to 17, the last token is never computed.
    assert held == [2, 3, 3, 4, 4, 4, 4, 5, 0]


@EVERY_GROWING
def test_two_rows_outgrow_the_pool_and_the_younger_gives_way(policy: str) -> None:
    """Six blocks of 4. Both claim 3 on admission: two for the prompt and one more."""
    subject = scheduler(policy, 6)
    ledger = ledger_of(subject, ("a", 6, 9), ("b", 5, 9))
    to_the_end(ledger)
    gone = [(n, step.preempted) for n, step in enumerate(ledger.steps) if step.preempted]
    back = [(n, step.resumed) for n, step in enumerate(ledger.steps) if step.resumed]
    # Both hold 3 blocks when a comes to compute position 12, in step 7: b has emitted 7 tokens.
    assert gone == [(7, ["b"])]
    # a has one more token to emit in step 8 and ends; b comes back with 12 known tokens, 11 to recompute.
    assert back == [(9, ["b"])]
    assert ledger.steps[9].prefill == [("b", 0, 11)]
    assert ledger.steps[9].sampled == []
    assert ledger.steps[10].decode == [("b", 11, 1)]
    assert [account.ended for account in ledger.accounts.values()] == ["length", "length"]
    assert [len(account.emitted) for account in ledger.accounts.values()] == [9, 9]
    assert ledger.accounts["b"].admit_step == 0


@EVERY_GROWING
def test_a_preempted_row_stands_before_requests_never_admitted(policy: str) -> None:
    subject = scheduler(policy, 6, max_rows=8)
    ledger = ledger_of(subject, ("a", 6, 9), ("b", 5, 9), ("c", 2, 1), ("d", 1, 1))
    to_the_end(ledger)
    first = {i: account.admit_step for i, account in ledger.accounts.items()}
    assert first["a"] == first["b"] == 0
    back = next(n for n, step in enumerate(ledger.steps) if step.resumed)
    assert back <= first["c"] <= first["d"]  # type: ignore[operator]


def test_a_row_in_the_middle_of_its_prompt_gives_way_and_starts_again() -> None:
    """Decodes of a take the last blocks while b, younger, is prefilled one position a step."""
    subject = scheduler("chunked", 8, block_tokens=2, chunk_budget=1, max_rows=4)
    ledger = ledger_of(subject, ("a", 1, 14), ("b", 9, 2))
    seen: list[tuple[int, int]] = []
    while subject.has_work:
        step = one_step(ledger)
        if step.preempted:
            seen.append((len(ledger.steps) - 1, ledger.accounts["b"].prefill_target))
    assert seen
    assert all(target == 9 for _, target in seen[:1])
    computed = [start for step in ledger.steps for i, start, _ in step.prefill if i == "b"]
    assert computed.count(0) == 1 + len(seen)
    assert len(ledger.accounts["b"].emitted) == 2


def test_several_give_way_youngest_first_in_one_step() -> None:
    """Four rows of two blocks each fill the pool of 8; the oldest two need two more, the youngest holds one."""
    subject = scheduler("mixed", 8, max_rows=4)
    ledger = ledger_of(subject, ("a", 4, 12), ("b", 4, 12), ("c", 4, 12), ("d", 4, 12))
    to_the_end(ledger)
    gone = [step.preempted for step in ledger.steps if step.preempted]
    assert gone[0] == ["d", "c"]
    assert all(account.ended == "length" for account in ledger.accounts.values())


def test_all_pieces_of_both_forwards_are_counted_before_any_block_is_handed_out() -> None:
    """One block is free; a decode and a chunk of the same step want one each: the chunk's row gives way."""
    subject = scheduler("chunked", 4, chunk_budget=4, max_rows=4)
    pool = subject.pool
    old, young = (
        Row(Request("old", range(4), 5), [], 0, 4),
        Row(Request("young", range(12), 1), [], 0, 12, number=1),
    )
    for row, computed in ((old, 4), (young, 4)):
        row.blocks = pool.allocate(1, row.request_id)
        row.num_computed = computed
        subject._rows.append(row)
        subject._live.add(row.request_id)
    old.emit(0)
    pool.allocate(1, "elsewhere")
    plan = subject.plan()
    assert [gone.row.request_id for gone in plan.preempted] == ["young"]
    assert plan.composition() == ((("old", 4, 1),),)
    assert (len(old.blocks), young.blocks, pool.num_free) == (2, [], 1)


@EVERY_GROWING
def test_abort_while_preempted(policy: str) -> None:
    subject = scheduler(policy, 6)
    ledger = ledger_of(subject, ("a", 6, 9), ("b", 5, 9), ("c", 4, 2))
    while not subject.queue.preempted:
        one_step(ledger)
    aborted = subject.abort("b")
    assert isinstance(aborted, Row)
    assert aborted.finish_reason == "abort"
    assert len(aborted.emitted) == len(ledger.accounts["b"].emitted) > 0
    ledger.ended("b", "abort")
    ledger.conserved()
    assert subject.abort("b") is None
    to_the_end(ledger)
    assert [account.ended for account in ledger.accounts.values()] == ["length", "abort", "length"]
    subject.submit(Request("b", range(3), 1))  # the id is free again


@EVERY_GROWING
def test_a_stop_id_after_a_preemption(policy: str) -> None:
    subject = scheduler(policy, 6)
    stops = frozenset({7})
    requests = [Request("a", range(6), 9, stops), Request("b", range(5), 9, stops)]
    ledger = run_all(subject, requests, lambda i, n: 7 if (i, n) == ("b", 7) else 0)
    assert any("b" in step.preempted for step in ledger.steps)
    account = ledger.accounts["b"]
    assert (account.emitted, account.ended) == ([0] * 7 + [7], "stop")


@EVERY_GROWING
def test_a_need_of_the_whole_pool_is_served_among_others(policy: str) -> None:
    subject = scheduler(policy, 4, max_rows=4)
    with pytest.raises(ValueError, match=r"request 'big' can never fit: it needs 5 blocks .* the pool has 4"):
        subject.submit(Request("big", range(15), 2))
    ledger = ledger_of(subject, ("a", 3, 13), ("all", 15, 1), ("b", 3, 13))
    to_the_end(ledger)
    assert [account.ended for account in ledger.accounts.values()] == ["length"] * 3


@EVERY_GROWING
def test_more_rows_run_than_under_reserve(policy: str) -> None:
    """Short prompts with long budgets: `reserve` sets 4 blocks aside for each, the claim is 2 at first."""
    most = {}
    for allocation in sorted(ALLOCATIONS):
        config = SchedulerConfig(policy, max_rows=8, allocation=allocation)
        subject = Scheduler(config, BlockPool(8, 4))
        for n in range(8):
            subject.submit(Request(f"r{n}", range(2), 14))
        most[allocation] = 0
        while subject.has_work:
            plan = subject.plan()
            most[allocation] = max(most[allocation], subject.num_rows)
            subject.commit(plan, dict.fromkeys(subject.live_ids, 0))
    assert most == {"reserve": 2, "progressive": 4}


@pytest.mark.parametrize("policy", ["chunked", "mixed"])
def test_under_a_target_for_the_time_of_a_step(policy: str) -> None:
    """The budget is searched again for the rows that are left."""
    target = TpotTarget(20.0, lambda forwards: 10.0 + sum(p.num_tokens for f in forwards for p in f))
    config = SchedulerConfig(policy, chunk_budget=64, max_rows=4, allocation="progressive")
    subject = Scheduler(config, BlockPool(12, 4), tpot=target)
    for n, (prompt_len, new) in enumerate([(2, 30), (10, 20), (8, 20), (25, 8)]):
        subject.submit(Request(f"r{n}", range(prompt_len), new))
    emitted = preemptions = 0
    while subject.has_work:
        plan = subject.plan()
        preemptions += len(plan.preempted)
        pieces = [piece for forward in plan.forwards for piece in forward]
        chunks = sum(piece.num_tokens for piece in pieces if not piece.is_decode)
        if any(piece.is_decode for piece in pieces) and chunks:
            assert chunks == 1 or sum(piece.num_tokens for piece in pieces) <= 10
        emitted += len(subject.commit(plan, dict.fromkeys(subject.live_ids, 0)).tokens)
        subject.check()
    assert preemptions > 0
    assert emitted == 30 + 20 + 20 + 8


def test_positions_that_were_delivered_take_blocks_on_admission_and_are_lost_to_a_preemption() -> None:
    subject = scheduler("chunked", 6)
    subject.submit(Request("old", range(6), 9))
    subject.submit(Request("delivered", range(5), 9, num_computed=4))
    seen = []
    while subject.has_work:
        plan = subject.plan()
        if plan.step == 0:
            assert plan.composition() == ((("old", 0, 6),), (("delivered", 4, 1),))
            assert blocks(subject) == {"old": 2, "delivered": 2}
        seen += [(gone.row.request_id, gone.num_computed) for gone in plan.preempted]
        subject.commit(plan, dict.fromkeys(subject.live_ids, 0))
        subject.check()
    assert seen == [("delivered", 11)]


def test_unknown_allocation_names_the_nearest() -> None:
    with pytest.raises(ValueError, match="unknown allocation 'progresive'; did you mean 'progressive'"):
        SchedulerConfig("chunked", allocation="progresive")


def test_a_static_batch_does_not_grow() -> None:
    with pytest.raises(
        ValueError, match="allocation 'progressive' does not apply to policy 'static': its rows"
    ):
        SchedulerConfig("static", allocation="progressive")
