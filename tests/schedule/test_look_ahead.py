"""How often a plan recurs, by hand: as often as it can, and no more. That recurrences are right: `test_lockstep`."""

from __future__ import annotations

import pytest
from plan_counts import counts

from interleave.schedule.block_pool import BlockPool
from interleave.schedule.config import SchedulerConfig
from interleave.schedule.lockstep import Lockstep, LockstepForward, LockstepTokens
from interleave.schedule.plan import Piece
from interleave.schedule.recurrence import recurrences
from interleave.schedule.request import Request
from interleave.schedule.row import Row
from interleave.schedule.scheduler import Scheduler


def scheduler(policy: str, num_blocks: int = 64, **limits: object) -> Scheduler:
    return Scheduler(SchedulerConfig(policy, **limits), BlockPool(num_blocks, 4), look_ahead=True)  # type: ignore[arg-type]


def leaps(each: Scheduler, *lengths: tuple[int, int]) -> list[tuple[int, int, int]]:
    """(prompt positions, decodes, recurrences) of every plan, each booked as often as it recurs."""
    for n, (prompt_len, max_new_tokens) in enumerate(lengths):
        each.submit(Request(f"r{n}", range(prompt_len), max_new_tokens))
    seen = []
    while each.has_work:
        plan = each.plan()
        seen.append((*counts(plan), plan.repeats))
        each.commit(plan, dict.fromkeys(each.live_ids, 0), plan.repeats)
        each.check()
    return seen


EVERY_ALLOCATION = pytest.mark.parametrize("allocation", ["reserve", "progressive"])


@EVERY_ALLOCATION
@pytest.mark.parametrize("policy", ["chunked", "mixed"])
@pytest.mark.parametrize(
    ("prompt_len", "chunks"),
    [
        (3, [(3, 0, 1)]),
        (4, [(4, 0, 1)]),
        (5, [(4, 0, 1), (1, 0, 1)]),
        (8, [(4, 0, 1), (4, 0, 1)]),
        (9, [(4, 0, 2), (1, 0, 1)]),
        (14, [(4, 0, 3), (2, 0, 1)]),
        (16, [(4, 0, 3), (4, 0, 1)]),
    ],
)
def test_a_chunk_recurs_up_to_the_last_of_its_prompt(
    policy: str, allocation: str, prompt_len: int, chunks: list[tuple[int, int, int]]
) -> None:
    each = scheduler(policy, chunk_budget=4, allocation=allocation)
    assert leaps(each, (prompt_len, 5)) == [*chunks, (0, 1, 4)]


@EVERY_ALLOCATION
@pytest.mark.parametrize("policy", ["whole", "padded", "chunked", "mixed"])
def test_decodes_recur_until_the_first_of_them_ends(policy: str, allocation: str) -> None:
    each = scheduler(policy, allocation=allocation)
    assert leaps(each, (4, 9), (3, 2), (4, 5), (2, 1)) == [(13, 0, 1), (0, 3, 1), (0, 2, 3), (0, 1, 4)]


@EVERY_ALLOCATION
@pytest.mark.parametrize("policy", ["chunked", "mixed"])
@pytest.mark.parametrize(
    ("max_new_tokens", "expected"),
    [
        (7, [(3, 1, 3), (2, 1, 1), (0, 2, 2), (0, 1, 2)]),  # the prompt is through first
        (3, [(3, 1, 2), (3, 0, 1), (2, 0, 1), (0, 1, 4)]),  # the decodes are
    ],
)
def test_chunks_beside_decodes_recur_as_long_as_both_go_on(
    policy: str, allocation: str, max_new_tokens: int, expected: list[tuple[int, int, int]]
) -> None:
    each = scheduler(policy, chunk_budget=3, allocation=allocation)
    each.submit(Request("first", range(3), max_new_tokens))
    each.commit(each.plan(), {"first": 0})
    assert leaps(each, (11, 5)) == expected


@pytest.mark.parametrize(
    ("stop_ids", "finish_reason", "repeats"),
    [(frozenset(), None, 5), (frozenset({3}), None, 1), (frozenset(), "stop", 1)],
)
def test_a_row_that_may_stop_or_has_ended_stands_for_one_step(
    stop_ids: frozenset[int], finish_reason: str | None, repeats: int
) -> None:
    """Two decodes, 5 and 8 tokens before their ends."""
    rows = [
        Row(Request(name, range(4), 9, stops), [], 0, 4)
        for name, stops in (("a", stop_ids), ("b", frozenset()))
    ]
    for row, emitted in zip(rows, (4, 1), strict=True):
        row.emit(0, emitted)
    rows[0].finish_reason = finish_reason
    forward = tuple(Piece(row, row.known_len - 1, 1) for row in rows)
    assert recurrences([forward], rows) == recurrences([forward[::-1]], rows) == repeats
    assert recurrences([forward[1:]], rows) == 1  # passes over a decode
    assert recurrences([], []) == 1


def decoding(**max_new_tokens: int) -> Scheduler:
    """Rows of a prompt of 4 each, all of which have emitted one token."""
    each = scheduler("chunked")
    for name, new in max_new_tokens.items():
        each.submit(Request(name, range(4), new))
    each.commit(each.plan(), dict.fromkeys(max_new_tokens, 0))
    return each


def test_whoever_was_aborted_ends_no_recurrence() -> None:
    each = decoding(a=5, b=9, c=7, d=5)
    seen = []
    for gone, repeats in (("a", 2), ("c", 1), ("d", 3)):
        each.abort(gone)
        plan = each.plan()
        seen.append((plan.repeats, counts(plan)[1]))
        assert each.commit(plan, dict.fromkeys("abcd", 0), repeats).released == []
        each.check()
    # d has 4 tokens left at first and 2 after two steps; then b is alone, with 5 of its 8.
    assert seen == [(4, 3), (2, 2), (5, 1)]
    plan = each.plan()
    assert plan.repeats == 2
    assert [row.request_id for row in each.commit(plan, {"b": 0}, 2).released] == ["b"]
    assert not each.has_work


def test_whoever_was_aborted_does_not_end_with_the_others() -> None:
    each = decoding(a=5, b=5, c=5)
    aborted = each.abort("b")
    ended = each.commit(each.plan(), dict.fromkeys("ac", 0), 4).released
    assert [(row.request_id, len(row.emitted), row.finish_reason) for row in ended] == [
        ("a", 5, "length"),
        ("c", 5, "length"),
    ]
    assert isinstance(aborted, Row)
    assert (len(aborted.emitted), aborted.finish_reason) == (1, "abort")


def test_whoever_is_aborted_is_up_to_date() -> None:
    each = decoding(a=9, b=9)
    each.commit(each.plan(), dict.fromkeys("ab", 0), 3)
    aborted = each.abort("a")
    assert isinstance(aborted, Row)
    assert (aborted.num_computed, len(aborted.emitted), aborted.last_served_step) == (7, 4, 3)
    (forward,) = each.plan().forwards
    assert isinstance(forward, LockstepForward)
    assert forward.attended == 8  # b's 7 computed positions and its newest


def test_a_held_row_ends_all_recurrence() -> None:
    """A static batch goes on with a row that has ended, for which every step is alike but the next."""
    assert leaps(scheduler("static"), (4, 3), (4, 6)) == [(8, 0, 1), (0, 2, 2), *[(0, 2, 1)] * 3]


@EVERY_ALLOCATION
def test_a_plan_that_passes_over_a_decode_stands_for_itself(allocation: str) -> None:
    """T leaves one of two decodes a place beside a chunk: they take turns."""
    each = scheduler(
        "chunked", order="prefill_first", token_budget=5, chunk_budget=4, max_rows=3, allocation=allocation
    )
    assert leaps(each, (2, 9), (2, 9), (16, 1)) == [(4, 0, 1), *[(4, 1, 1)] * 4, (0, 2, 6)]


@pytest.mark.parametrize("num_blocks", range(8, 17))
def test_decodes_recur_until_the_pool_is_dry(num_blocks: int) -> None:
    """Two rows, each at the end of its first block of 4: both need another in every fourth step."""
    each = scheduler("chunked", num_blocks, allocation="progressive")
    for name in "ab":
        each.submit(Request(name, range(4), 28))
    each.commit(each.plan(), {"a": 0, "b": 0})
    plan = each.plan()
    assert plan.repeats == min(27, 4 * (num_blocks // 2 - 1))
    each.commit(plan, {"a": 0, "b": 0}, plan.repeats)
    each.check()


@pytest.mark.parametrize("max_new_tokens", [14, 15, 28])
def test_one_step_before_the_pool_is_dry_nothing_recurs(max_new_tokens: int) -> None:
    """Eight blocks are full after twelve decodes of two rows, however few the rows still want."""
    each = scheduler("chunked", 8, allocation="progressive")
    for name in "ab":
        each.submit(Request(name, range(4), max_new_tokens))
    each.commit(each.plan(), {"a": 0, "b": 0})
    for repeats in (11, 1):
        plan = each.plan()
        assert (plan.repeats, plan.preempted) == (12 if repeats == 11 else 1, ())
        each.commit(plan, {"a": 0, "b": 0}, repeats)
    assert [gone.row.request_id for gone in each.plan().preempted] == ["b"]


@EVERY_ALLOCATION
def test_an_arrival_changes_nothing_once_every_row_is_taken_or_somebody_waits(allocation: str) -> None:
    each = scheduler("chunked", 4, max_rows=2, allocation=allocation)
    full = []
    for name, prompt_len in (("a", 3), ("b", 3)):
        each.submit(Request(name, range(prompt_len), 9))
        plan = each.plan()
        full.append((each.num_rows, plan.full))
        each.commit(plan, dict.fromkeys("ab", 0))
    # `reserve` lets b wait for blocks, `progressive` lets it in.
    assert full == ([(1, False), (1, True)] if allocation == "reserve" else [(1, False), (2, True)])


def test_whoever_was_preempted_waits_too() -> None:
    each = scheduler("chunked", 4, max_rows=4, allocation="progressive")
    for name in "ab":
        each.submit(Request(name, range(3), 13))
    seen = []
    while each.has_work:
        plan = each.plan()
        seen.append((len(plan.preempted), plan.full))
        each.commit(plan, dict.fromkeys("ab", 0), plan.repeats)
    assert (1, True) in seen
    assert (1, False) not in seen
    assert seen[-1] == (0, False)


def test_a_plain_scheduler_counts_nothing() -> None:
    each = Scheduler(SchedulerConfig("chunked", max_rows=1), BlockPool(8, 4))
    for name in "ab":
        each.submit(Request(name, range(3), 9))
    for _ in range(2):
        plan = each.plan()
        assert (plan.repeats, plan.full) == (1, False)
        each.commit(plan, dict.fromkeys("ab", 0))


@pytest.mark.parametrize("policy", ["whole", "padded", "chunked"])
def test_a_group_that_decodes_is_a_sequence_like_any_other(policy: str) -> None:
    each = scheduler(policy)
    for name, prompt_len in (("a", 4), ("b", 6), ("c", 2)):
        each.submit(Request(name, range(prompt_len), 10))
    each.commit(each.plan(), dict.fromkeys("abc", 0))
    plan = each.plan()
    (forward,) = plan.forwards
    assert isinstance(forward, LockstepForward)
    rows = forward.rows
    assert ([row.request_id for row in rows], len(rows), rows.widest) == (["a", "b", "c"], 3, 7)
    assert [rows[0], rows[-1]] == [rows[:][0], rows[1:][1]] == [each.rows[0], each.rows[2]]
    assert [(piece.row.request_id, piece.start, piece.num_tokens) for piece in forward] == [
        ("a", 4, 1),
        ("b", 6, 1),
        ("c", 2, 1),
    ]
    assert (forward[1], forward[-1], forward[1:], len(forward)) == (
        forward.pieces[1],
        forward.pieces[2],
        forward.pieces[1:],
        3,
    )
    committed = each.commit(plan, dict.fromkeys("abc", 0), 2)
    tokens = committed.tokens
    assert isinstance(tokens, LockstepTokens)
    assert (tokens[0], tokens[-1], list(tokens[1:]), len(tokens)) == (
        ("a", 0),
        ("c", 0),
        [("b", 0), ("c", 0)],
        3,
    )
    assert rows.widest == 9


def test_a_first_token_stands_before_those_of_the_group() -> None:
    each = scheduler("chunked", chunk_budget=4)
    each.submit(Request("a", range(4), 10))
    each.commit(each.plan(), {"a": 0})
    each.submit(Request("b", range(4), 10))
    tokens = each.commit(each.plan(), {"b": 5}).tokens
    assert (list(tokens), len(tokens), tokens[0]) == ([("b", 5), ("a", 0)], 2, ("b", 5))


def test_nobody_is_nobody_wide() -> None:
    assert (len(Lockstep()), Lockstep().widest, list(Lockstep())) == (0, 0, [])
