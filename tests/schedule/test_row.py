"""What a row knows of its tokens, and what its own check sees."""

from __future__ import annotations

import pytest

from interleave.schedule.plan import StepPlan
from interleave.schedule.request import Request
from interleave.schedule.row import Row
from interleave.schedule.scheduler import Committed


def row(num_emitted: int = 3) -> Row:
    """Prompt 10, 11, 12, 13; emitted 20, 21, 22."""
    each = Row(Request("r", range(10, 14), 5), [0, 1], 0, 4)
    for token in range(20, 20 + num_emitted):
        each.emit(token)
    return each


def test_tokens_by_position() -> None:
    known = [10, 11, 12, 13, 20, 21, 22]
    each = row()
    assert each.known_len == len(known)
    assert [each.token_at(position) for position in range(7)] == known
    for start in range(7):
        for stop in range(start, 8):
            assert each.tokens_between(start, stop) == known[start:stop]


def test_a_token_may_be_booked_several_times_at_once() -> None:
    each = row(1)
    each.emit(7, 3)
    assert (each.emitted, each.known_len) == ([20, 7, 7, 7], 8)
    each.emit(8, 2)
    assert (each.emitted, each.known_len) == ([20, 7, 7, 7, 8, 8], 10)


@pytest.mark.parametrize(("num_emitted", "target"), [(0, 4), (1, 4), (3, 6)])
def test_a_row_that_starts_again_leaves_its_newest_token_to_a_decode(num_emitted: int, target: int) -> None:
    each = row(num_emitted)
    each.num_computed = 3
    each.restart()
    assert (each.num_computed, each.prefill_target, each.remaining_prefill) == (0, target, target)
    assert each.is_prefilling
    assert each.computed_before == 3
    each.num_computed = 2
    each.restart()
    assert each.computed_before == 3  # the most that it ever had computed
    each.num_computed = target
    assert (each.is_prefilling, each.remaining_prefill) == (False, 0)


def test_nothing_is_left_of_a_prompt_while_its_row_decodes() -> None:
    each = row()
    each.num_computed = 6
    assert (each.is_prefilling, each.remaining_prefill) == (False, 0)


def test_a_new_row_was_never_served() -> None:
    each = row(0)
    assert (each.num_computed, each.computed_before, each.last_served_step, each.number) == (0, 0, -1, 0)
    assert (each.request_id, each.known_len, each.finish_reason) == ("r", 4, None)


def test_a_misspelt_name_is_an_error() -> None:
    """What is never read would otherwise go unnoticed."""
    with pytest.raises(AttributeError):
        row().num_compute = 3  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        StepPlan(0, (), ()).repeat = 3  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        Committed([], [], []).free = []  # type: ignore[attr-defined]


def test_a_row_is_itself_only() -> None:
    """Two rows of equal content are two rows: the scheduler takes out the one it means."""
    request = Request("r", [1, 2], 1)
    assert Row(request, [], 0, 2) != Row(request, [], 0, 2)


@pytest.mark.parametrize(("num_emitted", "num_computed"), [(0, 0), (0, 4), (5, 9), (5, 0)])
def test_check_accepts_what_may_be(num_emitted: int, num_computed: int) -> None:
    each = row(num_emitted)
    each.num_computed = num_computed
    each.check()


@pytest.mark.parametrize(("num_emitted", "num_computed"), [(0, -1), (0, 5), (3, 8), (6, 2)])
def test_check_sees_more_computed_than_known_and_more_known_than_asked_for(
    num_emitted: int, num_computed: int
) -> None:
    each = row(num_emitted)
    each.num_computed = num_computed
    with pytest.raises(
        AssertionError, match=f"'r': computed {num_computed}, known {4 + num_emitted}, total 9"
    ):
        each.check()


@pytest.mark.parametrize("change", [-1, 1])
def test_check_sees_a_stale_length(change: int) -> None:
    each = row()
    each.known_len += change
    with pytest.raises(AssertionError, match=f"'r': known_len {7 + change} is stale"):
        each.check()
