"""What a commit writes into the rows that a step served, and who is released with it."""

from __future__ import annotations

import pytest

from interleave.schedule.block_pool import BlockPool
from interleave.schedule.config import SchedulerConfig
from interleave.schedule.request import Request
from interleave.schedule.scheduler import Scheduler


def request(request_id: str, prompt_len: int, max_new_tokens: int) -> Request:
    return Request(request_id, range(prompt_len), max_new_tokens)


@pytest.mark.parametrize("look_ahead", [False, True])
@pytest.mark.parametrize("policy", ["chunked", "mixed"])
def test_rows_that_end_together_are_released_in_order_of_admission(policy: str, look_ahead: bool) -> None:
    """`short` decodes, and ends in the step that computes the last chunk of `long` and its only token."""
    config = SchedulerConfig(policy, max_rows=2, chunk_budget=5, max_chunk=4)
    subject = Scheduler(config, BlockPool(64, 4), look_ahead=look_ahead)
    for one in (request("long", 8, 1), request("short", 1, 2)):
        subject.submit(one)
    for step in range(2):
        plan = subject.plan()
        held = [row.blocks for row in subject.rows]
        committed = subject.commit(plan, dict.fromkeys(subject.live_ids, 0))
        assert subject.step == step + 1
        if step == 0:
            assert (committed.released, committed.freed) == ([], [])
    assert [row.request_id for row in committed.released] == ["long", "short"]
    assert committed.freed == held == [[0, 1, 2], [3]]
    assert [(row.blocks, row.finish_reason) for row in committed.released] == [([], "length")] * 2
    assert not subject.has_work


def test_a_step_is_booked_in_the_rows_that_it_serves() -> None:
    """Prefill-first with T = 5 and chunks of 4: one of two decodes has room beside a chunk."""
    config = SchedulerConfig("mixed", order="prefill_first", chunk_budget=4, token_budget=5, max_rows=3)
    subject = Scheduler(config, BlockPool(64, 4))
    for one in (request("a", 2, 9), request("b", 2, 9)):
        subject.submit(one)
    seen = []
    for step in range(3):
        plan = subject.plan()
        assert plan.step == step
        subject.commit(plan, dict.fromkeys("ab", 0))
        seen.append([(row.num_computed, row.last_served_step, len(row.emitted)) for row in subject.rows])
        if step == 0:
            subject.submit(request("long", 16, 1))
    assert seen[0] == [(2, 0, 1), (2, 0, 1)]
    assert seen[1] == [(3, 1, 2), (2, 0, 1), (4, 1, 0)]
    assert seen[2] == [(3, 1, 2), (3, 2, 2), (8, 2, 0)]


def test_a_stop_id_ends_a_row_and_another_token_does_not() -> None:
    subject = Scheduler(SchedulerConfig("chunked"), BlockPool(64, 4))
    for name in "ab":
        subject.submit(Request(name, range(4), 3, frozenset({7, 8})))
    assert subject.commit(subject.plan(), {"a": 8, "b": 9}).released[0].finish_reason == "stop"
    assert subject.live_ids == ["b"]
    assert subject.commit(subject.plan(), {"b": 0}).released == []
    (ended,) = subject.commit(subject.plan(), {"b": 7}).released  # the last of its budget, and a stop id
    assert (ended.request_id, ended.emitted, ended.finish_reason) == ("b", [9, 0, 7], "stop")


@pytest.mark.parametrize("allocation", ["reserve", "progressive"])
def test_recurrences_booked_at_once_count_each(allocation: str) -> None:
    subject = Scheduler(
        SchedulerConfig("chunked", chunk_budget=3, allocation=allocation), BlockPool(64, 4), look_ahead=True
    )
    subject.submit(request("a", 10, 9))
    seen = []
    for repeats in (2, 1, 1, 3):
        plan = subject.plan()
        committed = subject.commit(plan, {"a": 0}, repeats)
        (row,) = subject.rows
        seen.append((plan.step, subject.step, row.num_computed, len(row.emitted), row.last_served_step))
        assert list(committed.tokens) == ([("a", 0)] if row.emitted else [])
    assert seen == [(0, 2, 6, 0, 1), (2, 3, 9, 0, 2), (3, 4, 10, 1, 3), (4, 7, 13, 4, 6)]
