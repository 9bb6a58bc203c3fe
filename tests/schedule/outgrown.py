"""A scheduler in which rows have outgrown the pool."""

from __future__ import annotations

from interleave.schedule.block_pool import BlockPool
from interleave.schedule.config import SchedulerConfig
from interleave.schedule.request import Request
from interleave.schedule.scheduler import Scheduler


def outgrown(names: str = "abc") -> Scheduler:
    """a runs; b and c were preempted and wait, in this order; whoever else is named was never admitted."""
    each = Scheduler(SchedulerConfig("mixed", max_rows=3, allocation="progressive"), BlockPool(6, 4))
    for name in names:
        each.submit(Request(name, range(4), 12))
    while len(each.queue.preempted) < 2:
        each.commit(each.plan(), dict.fromkeys("abc", 0))
        each.check()
    return each
