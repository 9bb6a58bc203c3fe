"""What a plan says of its pieces, against counts made position by position."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interleave.schedule.plan import Piece, StepPlan
from interleave.schedule.request import Request
from interleave.schedule.row import Row


def row(request_id: str = "r", prompt_len: int = 8, computed_before: int = 0, num_emitted: int = 0) -> Row:
    each = Row(Request(request_id, range(prompt_len), 9), [], 0, prompt_len)
    each.computed_before = computed_before
    each.emit(0, num_emitted)
    return each


@settings(max_examples=50)
@given(st.integers(0, 12), st.integers(1, 6), st.integers(0, 40), st.integers(1, 5))
def test_positions_computed_for_a_second_time(start: int, num_tokens: int, before: int, repeats: int) -> None:
    piece = Piece(row(computed_before=before), start, num_tokens)
    for times, counted in (
        (1, piece.num_recomputed_tokens()),
        (repeats, piece.num_recomputed_tokens(repeats)),
    ):
        positions = range(start, start + times * num_tokens)
        assert counted == sum(1 for position in positions if position < before)


@pytest.mark.parametrize(
    ("start", "num_tokens", "num_emitted", "is_decode", "yields_token"),
    [
        (0, 7, 0, False, False),
        (0, 8, 0, False, True),
        (7, 1, 0, False, True),
        (8, 1, 1, True, True),
        (9, 1, 2, True, True),
        (0, 8, 1, False, False),  # computed again after a preemption: its next token is known
    ],
)
def test_what_a_piece_is_follows_from_where_it_stands(
    start: int, num_tokens: int, num_emitted: int, is_decode: bool, yields_token: bool
) -> None:
    piece = Piece(row(num_emitted=num_emitted), start, num_tokens)
    assert (piece.is_decode, piece.yields_token) == (is_decode, yields_token)


def test_a_plan_names_its_positions() -> None:
    decoding = row("d", num_emitted=2)
    forwards = ((Piece(row("a"), 0, 5), Piece(row("b"), 3, 5)), (Piece(decoding, 9, 1),))
    plan = StepPlan(4, (), forwards)
    assert [piece.stop for forward in forwards for piece in forward] == [5, 8, 10]
    assert plan.composition() == ((("a", 0, 5), ("b", 3, 5)), (("d", 9, 1),))
    assert plan.num_padded_tokens == 0
    assert (plan.padded, plan.repeats, plan.full, plan.resumed, plan.preempted) == (False, 1, False, (), ())


def test_padding_fills_a_group_up_to_its_widest() -> None:
    group = (Piece(row("a"), 0, 5), Piece(row("b"), 0, 8), Piece(row("c"), 0, 1))
    assert StepPlan(0, (), (group,), padded=True).num_padded_tokens == 3 + 0 + 7
