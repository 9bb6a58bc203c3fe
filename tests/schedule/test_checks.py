"""What the scheduler's own check sees: each of its promises broken by hand, and named."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from outgrown import outgrown

from interleave.schedule.block_pool import BlockPool
from interleave.schedule.config import SchedulerConfig
from interleave.schedule.request import Request
from interleave.schedule.row import Row
from interleave.schedule.scheduler import Scheduler


def scheduler() -> Scheduler:
    """a and b hold two blocks of 4 each and are at position 4; c and d wait; two blocks are free."""
    config = SchedulerConfig("chunked", chunk_budget=8, max_rows=2)
    each = Scheduler(config, BlockPool(6, 4))
    for name in "abcd":
        each.submit(Request(name, range(5), 3))
    each.commit(each.plan(), {"a": 0})
    each.check()
    return each


def lose_a_row(each: Scheduler) -> None:
    del each.rows[0]


def lose_a_block(each: Scheduler) -> None:
    each.rows[0].blocks.pop()


def gain_a_block(each: Scheduler) -> None:
    each.rows[0].blocks.append(5)


def hold_anothers_block(each: Scheduler) -> None:
    first, second = each.rows
    first.blocks, second.blocks = second.blocks, first.blocks


def forget_an_id(each: Scheduler) -> None:
    each._live.discard("c")


def forget_who_waits(each: Scheduler) -> None:
    each.queue.waiting.pop()


def compute_too_much(each: Scheduler) -> None:
    row = each.rows[0]
    each.pool.free(row.blocks[1:], row.request_id)
    del row.blocks[1:]
    assert row.num_computed == 5


def lag(each: Scheduler) -> None:
    each.rows[1].known_len += 1


def let_too_many_in(each: Scheduler) -> None:
    each.rows.append(Row(each.queue.waiting.popleft(), [], 0, 5, number=2))


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lose_a_row, "rows hold 2 blocks, 2 are free of 6"),
        (lose_a_block, "rows hold 3 blocks, 2 are free of 6"),
        (gain_a_block, "rows hold 5 blocks, 2 are free of 6"),
        (hold_anothers_block, "'a' and the pool disagree on its blocks"),
        (forget_an_id, "live ids do not match rows and queue"),
        (forget_who_waits, "live ids do not match rows and queue"),
        (compute_too_much, "'a' has computed more than its blocks can keep"),
        (lag, "'b': known_len 6 is stale"),
        (let_too_many_in, "3 rows exceed max_rows 2"),
    ],
)
def test_check_names_what_is_broken(break_it: Callable[[Scheduler], None], message: str) -> None:
    each = scheduler()
    break_it(each)
    with pytest.raises(AssertionError, match=message):
        each.check()


def test_check_sees_rows_out_of_order() -> None:
    each = scheduler()
    each.rows.reverse()
    with pytest.raises(AssertionError, match=r"out of order: \[1, 0\]"):
        each.check()


def test_check_sees_preempted_rows_out_of_order() -> None:
    each = outgrown()
    each.queue.preempted.reverse()
    with pytest.raises(AssertionError, match=r"out of order: \[0, 2, 1\]"):
        each.check()


@pytest.mark.parametrize("left", [{"num_computed": 1}, {"blocks": [0]}])
def test_check_sees_what_a_preempted_row_kept(left: dict[str, object]) -> None:
    each = outgrown()
    for name, value in left.items():
        setattr(each.queue.preempted[1], name, value)
    with pytest.raises(AssertionError, match="a preempted row holds blocks or computed positions"):
        each.queue.check(each.rows)
