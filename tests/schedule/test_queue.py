"""Who waits, in which order, and who is taken out of line."""

from __future__ import annotations

import pytest
from outgrown import outgrown

from interleave.schedule.block_pool import BlockPool
from interleave.schedule.config import SchedulerConfig
from interleave.schedule.policies import POLICIES
from interleave.schedule.request import Request
from interleave.schedule.row import Row
from interleave.schedule.scheduler import Scheduler


def test_preempted_rows_stand_before_requests() -> None:
    each = outgrown("abcde")
    assert each.queue.ids == ["b", "c", "d", "e"]
    assert len(each.queue) == 4
    assert each.live_ids == ["a", "b", "c", "d", "e"]
    assert (each.num_rows, each.has_work) == (1, True)


def test_whoever_is_taken_out_is_handed_over() -> None:
    queue = outgrown("abcde").queue
    row, request = queue.remove("c"), queue.remove("d")
    assert isinstance(row, Row)
    assert isinstance(request, Request)
    assert (row.request_id, request.request_id, queue.ids, len(queue)) == ("c", "d", ["b", "e"], 2)
    assert queue.remove("c") is queue.remove("a") is None
    assert queue.ids == ["b", "e"]


@pytest.mark.parametrize("name", "abcde")
def test_an_abort_ends_whoever_runs_or_waits_with_its_reason(name: str) -> None:
    each = outgrown("abcde")
    ended = each.abort(name, "gone")
    assert ended is not None
    assert ended.request_id == name
    assert not isinstance(ended, Row) or (ended.finish_reason, ended.blocks) == ("gone", [])
    assert each.live_ids == [other for other in "abcde" if other != name]
    each.check()


def test_an_abort_is_called_one_by_default() -> None:
    row = outgrown("abcde").abort("b")
    assert isinstance(row, Row)
    assert row.finish_reason == "abort"


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_rows_are_numbered_as_they_are_admitted(policy: str) -> None:
    each = Scheduler(SchedulerConfig(policy, max_rows=2), BlockPool(16, 4))
    for n in range(5):
        each.submit(Request(f"r{n}", range(4), 1 + n % 3))
    numbers = []
    while each.has_work:
        plan = each.plan()
        assert all(row.admit_step == plan.step for row in plan.admitted)
        numbers += [(row.request_id, row.number) for row in plan.admitted]
        each.commit(plan, dict.fromkeys(each.live_ids, 0))
    assert numbers == [(f"r{n}", n) for n in range(5)]
    assert not each.queue
