"""A plan that breaks off, by Ctrl-C or any other exception, at each of its lines: nobody and no block is lost."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from interleave.schedule import scheduler as module
from interleave.schedule.block_pool import BlockPool
from interleave.schedule.config import SchedulerConfig
from interleave.schedule.policies import POLICIES
from interleave.schedule.request import Request
from interleave.schedule.scheduler import Scheduler

SOURCES = module.__file__.removesuffix("scheduler.py")


def breaks_off(run: Callable[[], object], nth: int) -> bool:
    """Interrupt `run` at the nth line that it runs in `schedule`; False if it ends before."""
    left = nth

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.startswith(SOURCES):
            return None
        left -= event == "line"
        if left == 0:
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def assert_ended(subject: Scheduler, names: list[str]) -> None:
    known = {id(row): row for row in (*subject.rows, *subject.queue.preempted)}
    ids, rows, blocks = subject.end_all("error")
    assert ids == names
    assert {id(row) for row in rows} == known.keys()
    assert len(rows) == len(known) == len(blocks)
    assert all(row.finish_reason == "error" and row.blocks == [] for row in rows)
    subject.check()
    assert not subject.has_work
    assert subject.pool.num_free == subject.pool.num_blocks
    for name in names:  # each id is free again
        subject.submit(Request(name, range(3), 2))
    while subject.has_work:
        subject.commit(subject.plan(), dict.fromkeys(names, 0))
        subject.check()


def admitting(policy: str, allocation: str, look_ahead: bool) -> Scheduler:
    """One runs, two come in with the next plan, or wait for a static batch to end."""
    config = SchedulerConfig(policy, allocation=allocation, max_rows=3, chunk_budget=4)
    subject = Scheduler(config, BlockPool(16, 4), look_ahead=look_ahead)
    subject.submit(Request("a", range(5), 6))
    subject.commit(subject.plan(), {"a": 0})
    for name in ("b", "c"):
        subject.submit(Request(name, range(9), 4, num_computed=8))
    return subject


@pytest.mark.parametrize("look_ahead", [False, True])
@pytest.mark.parametrize(
    ("policy", "allocation"),
    [
        *[(policy, "reserve") for policy in sorted(POLICIES)],
        *[(policy, "progressive") for policy in sorted(POLICIES) if policy != "static"],
    ],
)
def test_while_requests_come_in(policy: str, allocation: str, look_ahead: bool) -> None:
    nth = 1
    while breaks_off((subject := admitting(policy, allocation, look_ahead)).plan, nth):
        assert_ended(subject, ["a", "b", "c"])
        nth += 1
    assert nth > 20


def outgrowing(steps: int) -> Scheduler:
    """a, b and c outgrow the pool: b and c give way, and run again once a has ended."""
    subject = Scheduler(SchedulerConfig("mixed", max_rows=3, allocation="progressive"), BlockPool(6, 4))
    for name in "abc":
        subject.submit(Request(name, range(4), 12))
    for _ in range(steps):
        subject.commit(subject.plan(), dict.fromkeys("abc", 0))
    return subject


def test_while_rows_give_way_and_come_back() -> None:
    """Each plan of a run, at each line."""
    preempted = resumed = steps = 0
    while (subject := outgrowing(steps)).has_work:
        nth, live = 1, subject.live_ids
        while breaks_off(subject.plan, nth):
            assert_ended(subject, live)
            subject, nth = outgrowing(steps), nth + 1
        plan = outgrowing(steps).plan()
        preempted, resumed = preempted + len(plan.preempted), resumed + len(plan.resumed)
        steps += 1
    assert preempted >= 2
    assert resumed >= 2
