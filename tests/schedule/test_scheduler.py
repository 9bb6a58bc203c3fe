"""Configurations that are refused, admission, and the only way out."""

from __future__ import annotations

import math

import pytest
from schedule_ledger import Ledger, one_step, run_all

from interleave.schedule.block_pool import BlockPool
from interleave.schedule.config import SchedulerConfig
from interleave.schedule.policies import POLICIES
from interleave.schedule.request import Request
from interleave.schedule.scheduler import Scheduler

EVERY_POLICY = pytest.mark.parametrize("policy", sorted(POLICIES))


def request(request_id: str, prompt_len: int = 4, max_new_tokens: int = 2) -> Request:
    return Request(request_id, range(prompt_len), max_new_tokens)


@pytest.mark.parametrize("policy", ["whole", "chunked", "mixed"])
@pytest.mark.parametrize(("token_budget", "max_rows"), [(1, 1), (1, 32), (4, 6), (6, 6), (32, 32)])
def test_a_token_budget_that_decodes_could_fill(policy: str, token_budget: int, max_rows: int) -> None:
    with pytest.raises(ValueError, match=f"token_budget {token_budget} .* at least {max_rows + 1}"):
        SchedulerConfig(policy, token_budget=token_budget, max_rows=max_rows)
    SchedulerConfig(policy, token_budget=max_rows + 1, max_rows=max_rows)


@EVERY_POLICY
@pytest.mark.parametrize("value", [0, -1, 2.5, True, math.nan, "8"])
@pytest.mark.parametrize(
    "name", ["chunk_budget", "max_chunk", "token_budget", "max_rows", "max_request_tokens"]
)
def test_counts_must_be_at_least_one(policy: str, name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{name} must be an integer of at least 1, got {value!r}"):
        SchedulerConfig(policy, **{name: value})  # type: ignore[arg-type]


def test_max_rows_has_no_none() -> None:
    with pytest.raises(ValueError, match="max_rows must be an integer of at least 1, got None"):
        SchedulerConfig("chunked", max_rows=None)  # type: ignore[arg-type]


@pytest.mark.parametrize(("given", "meant"), [("chunk", "chunked"), ("wole", "whole"), ("Mixed", "mixed")])
def test_unknown_policy_names_the_nearest(given: str, meant: str) -> None:
    with pytest.raises(ValueError, match=f"unknown policy {given!r}; did you mean {meant!r}.*padded"):
        SchedulerConfig(given)


@EVERY_POLICY
def test_unknown_order_names_the_nearest(policy: str) -> None:
    with pytest.raises(ValueError, match="unknown order 'decode-first'; did you mean 'decode_first'"):
        SchedulerConfig(policy, order="decode-first")


@pytest.mark.parametrize("policy", ["padded", "static"])
def test_a_group_policy_refuses_what_it_cannot_honour(policy: str) -> None:
    """A group runs first and whole: T and kappa could not hold, and decodes cannot go first."""
    with pytest.raises(ValueError, match="order 'decode_first' does not apply"):
        SchedulerConfig(policy, order="decode_first")
    with pytest.raises(ValueError, match="token_budget 600 does not apply"):
        SchedulerConfig(policy, token_budget=600)
    with pytest.raises(ValueError, match="max_chunk 64 does not apply"):
        SchedulerConfig(policy, max_chunk=64)


def test_whole_prompts_have_no_largest_chunk() -> None:
    with pytest.raises(ValueError, match="max_chunk 64 does not apply to policy 'whole'"):
        SchedulerConfig("whole", max_chunk=64)


@EVERY_POLICY
def test_need_of_the_whole_pool_and_of_one_block_more(policy: str) -> None:
    subject = Scheduler(SchedulerConfig(policy), BlockPool(4, 8))
    with pytest.raises(ValueError, match=r"request 'big' can never fit: it needs 5 blocks .* the pool has 4"):
        subject.submit(request("big", 30, 3))
    assert not subject.has_work
    ledger = run_all(subject, [request("all", 30, 2), request("next", 1, 1)])
    assert ledger.steps[0].num_free == 0
    assert [account.ended for account in ledger.accounts.values()] == ["length", "length"]
    assert subject.pool.num_free == 4


def test_longer_than_the_model() -> None:
    subject = Scheduler(SchedulerConfig("chunked", max_request_tokens=10), BlockPool(4, 8))
    with pytest.raises(ValueError, match=r"prompt 8 [+] max_new_tokens 3 = 11 tokens, the limit is 10"):
        subject.submit(request("r", 8, 3))
    subject.submit(request("r", 8, 2))


@EVERY_POLICY
def test_a_pool_of_one_request_serves_two_in_turn(policy: str) -> None:
    subject = Scheduler(SchedulerConfig(policy, max_rows=4), BlockPool(3, 4))
    ledger = run_all(subject, [request("a", 8, 4), request("b", 8, 4), request("tiny", 1, 1)])
    admit = {i: account.admit_step for i, account in ledger.accounts.items()}
    last_a = max(n for n, step in enumerate(ledger.steps) if "a" in step.sampled)
    last_b = max(n for n, step in enumerate(ledger.steps) if "b" in step.sampled)
    # What a step frees can be granted in the next, and `tiny` waits though a block would fit it.
    assert admit == {"a": 0, "b": last_a + 1, "tiny": last_b + 1}


@EVERY_POLICY
def test_head_of_line_blocks(policy: str) -> None:
    """The second request does not fit beside the first; the third would, and waits behind it."""
    subject = Scheduler(SchedulerConfig(policy, max_rows=4), BlockPool(4, 4))
    ledger = run_all(subject, [request("a", 6, 6), request("wide", 6, 6), request("c", 2, 1)])
    admit = {i: account.admit_step for i, account in ledger.accounts.items()}
    assert admit["a"] == 0
    assert 0 < admit["wide"] <= admit["c"]  # type: ignore[operator]


@EVERY_POLICY
def test_all_rows_end_together_and_the_next_step_admits(policy: str) -> None:
    subject = Scheduler(SchedulerConfig(policy, max_rows=3), BlockPool(64, 4))
    ledger = run_all(subject, [request(f"r{i}", 4, 3) for i in range(6)])
    assert [len(step.admitted) for step in ledger.steps] == [3, 0, 0, 3, 0, 0]


@EVERY_POLICY
def test_half_a_prefill_does_not_block_itself(policy: str) -> None:
    """One row, C = 64, L = 130."""
    subject = Scheduler(SchedulerConfig(policy, max_rows=1, chunk_budget=64), BlockPool(3, 64))
    ledger = run_all(subject, [request("one", 130, 1), request("two", 130, 1)])
    assert [account.ended for account in ledger.accounts.values()] == ["length", "length"]


@EVERY_POLICY
def test_one_token_each_needs_no_decode(policy: str) -> None:
    subject = Scheduler(SchedulerConfig(policy, max_rows=4, chunk_budget=64), BlockPool(20, 4))
    ledger = run_all(subject, [request(f"r{i}", 1 + i % 7, 1) for i in range(100)])
    assert not any(step.decode for step in ledger.steps)
    assert subject.pool.num_free == 20


@EVERY_POLICY
def test_stop_token_sampled_first(policy: str) -> None:
    subject = Scheduler(SchedulerConfig(policy), BlockPool(8, 4))
    ledger = run_all(subject, [Request("r", range(5), 9, stop_ids=frozenset({7}))], lambda i, n: 7)
    account = ledger.accounts["r"]
    assert (account.emitted, account.ended) == ([7], "stop")
    assert subject.pool.num_free == 8


@EVERY_POLICY
def test_duplicate_live_id(policy: str) -> None:
    subject = Scheduler(SchedulerConfig(policy, max_rows=1), BlockPool(8, 4))
    ledger = Ledger(subject)
    for name in ("running", "waiting"):
        subject.submit(request(name))
        ledger.submitted(request(name))
    one_step(ledger)
    for name in ("running", "waiting"):
        with pytest.raises(ValueError, match=f"request id {name!r} is already live"):
            subject.submit(request(name, 9, 9))
    while subject.has_work:
        one_step(ledger)
    assert [account.ended for account in ledger.accounts.values()] == ["length", "length"]
    subject.submit(request("running"))  # an id is free again once its request has ended


@EVERY_POLICY
def test_abort_at_every_stage(policy: str) -> None:
    subject = Scheduler(SchedulerConfig(policy, max_rows=2, chunk_budget=4), BlockPool(64, 4))
    ledger = Ledger(subject)
    for name in ("a", "b", "waiting"):
        subject.submit(request(name, 10, 5))
        ledger.submitted(request(name, 10, 5))
    one_step(ledger)
    one_step(ledger)
    for name in ("waiting", "b", "a"):
        assert subject.abort(name) is not None
        ledger.ended(name, "abort")
        ledger.conserved()
        assert subject.abort(name) is None
        ledger.conserved()
    assert subject.abort("never seen") is None
    assert not subject.has_work
    assert subject.pool.num_free == 64


@EVERY_POLICY
def test_abort_of_the_last_row_that_others_wait_for(policy: str) -> None:
    """A static batch holds rows that have ended until all have; one that is aborted is waited for no more."""
    subject = Scheduler(SchedulerConfig(policy, max_rows=2), BlockPool(64, 4))
    ledger = Ledger(subject)
    for name, budget in (("short", 1), ("long", 9), ("next", 2)):
        subject.submit(request(name, 3, budget))
        ledger.submitted(request(name, 3, budget))
    one_step(ledger)
    assert subject.abort("long") is not None
    ledger.ended("long", "abort")
    for _ in range(4):
        if subject.has_work:
            one_step(ledger)
    assert {name: account.ended for name, account in ledger.accounts.items()} == {
        "short": "length",
        "long": "abort",
        "next": "length",
    }
    assert not subject.has_work
    assert subject.pool.num_free == 64


def test_abort_of_a_row_that_is_held() -> None:
    """It has all its tokens: the abort comes too late, as for any other that has ended."""
    subject = Scheduler(SchedulerConfig("static", max_rows=2), BlockPool(64, 4))
    for name, budget in (("short", 1), ("long", 3)):
        subject.submit(request(name, 3, budget))
    subject.commit(subject.plan(), {"short": 7, "long": 8})
    held = subject.rows[0]
    assert subject.abort("short") is None
    subject.check()
    assert subject.rows[0] is held
    assert (held.emitted, held.finish_reason) == ([7], "length")
    released = [row for _ in range(2) for row in subject.commit(subject.plan(), {"long": 8}).released]
    assert [(row.request_id, row.finish_reason) for row in released] == [
        ("short", "length"),
        ("long", "length"),
    ]
    assert not subject.has_work


@EVERY_POLICY
def test_abort_between_plan_and_commit(policy: str) -> None:
    """A plan may outlive a request that it names; the commit passes over it."""
    subject = Scheduler(SchedulerConfig(policy, max_rows=4), BlockPool(64, 4))
    for name in ("a", "b"):
        subject.submit(request(name, 3, 3))
    plan = subject.plan()
    subject.abort("a")
    committed = subject.commit(plan, {"a": 1, "b": 2})
    assert committed.tokens == [("b", 2)]
    subject.check()
    assert subject.live_ids == ["b"]


def test_commit_that_lacks_a_token_changes_nothing() -> None:
    """An executor that forgets a token is a fault; the books stay as they were."""
    subject = Scheduler(SchedulerConfig("chunked"), BlockPool(64, 4))
    for name in ("a", "b"):
        subject.submit(request(name, 3, 3))
    plan = subject.plan()
    with pytest.raises(KeyError, match="b"):
        subject.commit(plan, {"a": 1})
    assert [(row.num_computed, row.emitted) for row in subject.rows] == [(0, []), (0, [])]
    assert subject.step == 0
