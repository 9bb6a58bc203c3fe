"""Chunk sizes that follow from a target for the time of a step."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_counts import counts

from interleave.schedule.block_pool import BlockPool
from interleave.schedule.config import SchedulerConfig
from interleave.schedule.plan import Forward
from interleave.schedule.request import Request
from interleave.schedule.scheduler import Scheduler
from interleave.schedule.tpot_target import TpotTarget


def seconds(forwards: Sequence[Forward]) -> float:
    """10 s for whatever runs, 1 s a position, and a hundredth for every position that it looks back to."""
    return 10 + sum(
        piece.num_tokens + 0.01 * piece.num_tokens * piece.start for forward in forwards for piece in forward
    )


def scheduler(policy: str = "mixed", target_s: float = 20.0, **limits: int) -> Scheduler:
    config = SchedulerConfig(policy, **{"chunk_budget": 64, "max_rows": 4, **limits})  # type: ignore[arg-type]
    return Scheduler(config, BlockPool(200, 4), tpot=TpotTarget(target_s, seconds))


def run(each: Scheduler, requests: list[Request]) -> list[tuple[int, int, float]]:
    """(prompt positions, decodes, predicted seconds) of every step, to the end."""
    for request in requests:
        each.submit(request)
    steps = []
    while each.has_work:
        plan = each.plan()
        pieces = [piece for forward in plan.forwards for piece in forward]
        steps.append((*counts(plan), seconds(plan.forwards)))
        each.commit(plan, {piece.row.request_id: 7 for piece in pieces if piece.yields_token})
        each.check()
    return steps


@pytest.mark.parametrize("policy", ["chunked", "mixed"])
def test_a_chunk_shrinks_as_its_prompts_history_grows(policy: str) -> None:
    """One decode and a prompt of 40 positions: 9 at first, then 8 with 9 behind them, and so on."""
    steps = run(scheduler(policy), [Request("a", range(2), 30), Request("b", range(100, 140), 1)])
    # The first step has nobody decoding, so C alone bounds it: both prompts at once.
    assert [prefill for prefill, _, _ in steps if prefill] == [42]
    each = scheduler(policy)
    each.submit(Request("a", range(2), 30))
    plan = each.plan()
    each.commit(plan, {"a": 7})
    chunks = [prefill for prefill, _, _ in run(each, [Request("b", range(100, 140), 1)]) if prefill]
    assert chunks == [8, 8, 7, 7, 6, 4]
    assert sum(chunks) == 40


def test_progress_under_a_target_that_nothing_meets() -> None:
    each = scheduler(target_s=1e-9)
    each.submit(Request("a", range(1), 30))
    each.commit(each.plan(), {"a": 7})
    steps = run(each, [Request("b", range(100, 105), 1)])
    assert [prefill for prefill, decodes, _ in steps if prefill and decodes] == [1] * 5


@pytest.mark.parametrize(
    ("target_s", "chunk"),
    [(11.0, 1), (12, 1), (12.9, 1), (13.0, 2), (20.0, 9), (50.0, 39), (51.0, 40), (1e9, 40)],
)
@pytest.mark.parametrize("policy", ["chunked", "mixed"])
def test_a_step_may_take_all_of_its_time(policy: str, target_s: float, chunk: int) -> None:
    """10 s for whatever runs and 1 s for a position: one is the decode's, the others are the prompt's."""
    target = TpotTarget(
        target_s, lambda forwards: 10.0 + sum(piece.num_tokens for f in forwards for piece in f)
    )
    each = Scheduler(SchedulerConfig(policy, max_rows=4), BlockPool(200, 4), tpot=target)
    each.submit(Request("a", range(1), 30))
    each.commit(each.plan(), {"a": 7})
    each.submit(Request("b", range(100, 140), 1))
    plan = each.plan()
    assert counts(plan) == (chunk, 1)


def test_the_chunk_budget_stays_the_most() -> None:
    each = scheduler(target_s=1e9, chunk_budget=3)
    each.submit(Request("a", range(1), 30))
    each.commit(each.plan(), {"a": 7})
    assert [prefill for prefill, _, _ in run(each, [Request("b", range(100, 108), 1)]) if prefill] == [
        3,
        3,
        2,
    ]


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(1, 12)), min_size=1, max_size=8),
    st.floats(11, 60),
    st.sampled_from(["chunked", "mixed"]),
)
def test_no_step_with_readers_exceeds_the_target_but_for_one_position(
    lengths: list[tuple[int, int]], target_s: float, policy: str
) -> None:
    requests = [Request(f"r{n}", range(prompt), new) for n, (prompt, new) in enumerate(lengths)]
    steps = run(scheduler(policy, target_s), requests)
    assert sum(prefill for prefill, _, _ in steps) == sum(prompt for prompt, _ in lengths)
    assert sum(decodes for _, decodes, _ in steps) == sum(new - 1 for _, new in lengths)
    assert all(took <= target_s or prefill <= 1 for prefill, decodes, took in steps if decodes and prefill)


def test_a_plan_under_a_target_recurs_only_where_nothing_is_prefilled() -> None:
    config = SchedulerConfig("mixed", chunk_budget=4, max_rows=4)
    each = Scheduler(config, BlockPool(200, 4), look_ahead=True, tpot=TpotTarget(1e9, seconds))
    each.submit(Request("a", range(1), 30))
    each.submit(Request("b", range(100, 140), 1))
    repeats = []
    while each.has_work:
        plan = each.plan()
        repeats.append((counts(plan)[0] > 0, plan.repeats))
        each.commit(plan, dict.fromkeys("ab", 0), plan.repeats)
    assert all(count == 1 for prefilling, count in repeats if prefilling)
    assert max(count for prefilling, count in repeats if not prefilling) > 1


@pytest.mark.parametrize("target_s", [0.0, -1.0, math.nan, math.inf, True, "0.1", None])
def test_a_target_is_a_number_of_seconds(target_s: object) -> None:
    with pytest.raises(ValueError, match="tpot_target_s must be a finite number of seconds above 0"):
        TpotTarget(target_s, seconds)  # type: ignore[arg-type]


def test_a_target_stays_as_it_was_set() -> None:
    with pytest.raises(AttributeError):
        TpotTarget(1.0, seconds).target_s = 2.0  # type: ignore[misc]


@pytest.mark.parametrize("policy", ["whole", "padded", "static"])
def test_a_policy_that_cuts_no_prompt_has_no_use_for_a_target(policy: str) -> None:
    with pytest.raises(ValueError, match=f"tpot_target_s does not apply to policy '{policy}'"):
        Scheduler(SchedulerConfig(policy), BlockPool(8, 4), tpot=TpotTarget(1.0, seconds))
