"""Requests whose prompt was computed elsewhere: what is left of them is scheduled like anything else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interleave.engine.batched import Engine, Executed
from interleave.schedule.block_pool import BlockPool
from interleave.schedule.plan import StepPlan
from interleave.schedule.request import Request
from interleave.schedule.row import Row
from interleave.schedule.scheduler import Scheduler, SchedulerConfig

Steps = list[list[tuple[tuple[str, int, int], ...]]]


class Placeholders:
    """An executor that computes nothing."""

    def execute(self, plan: StepPlan) -> Executed:
        return Executed({piece.row.request_id: 0 for forward in plan.forwards for piece in forward})

    def release(self, rows: list[Row], blocks: list[list[int]]) -> None:
        pass


def steps_of(
    requests: list[Request], policy: str = "chunked", look_ahead: bool = False, vocab: int | None = None
) -> Steps:
    scheduler = Scheduler(
        SchedulerConfig(policy, chunk_budget=4, max_rows=3), BlockPool(64, 4), look_ahead=look_ahead
    )
    engine = Engine("tested", scheduler, Placeholders(), vocab)
    for request in requests:
        engine.submit(request)
    steps: Steps = []
    while engine.has_work:
        plan = scheduler.plan()
        steps.append([forward for forward in plan.composition() if forward])
        scheduler.commit(plan, Placeholders().execute(plan).tokens)
        engine.scheduler.check()
    engine.check()
    return steps


def test_all_but_the_newest_token_delivered_decodes_at_once() -> None:
    delivered = Request("a", range(9), 3, num_computed=8)
    assert steps_of([delivered]) == [[(("a", 8, 1),)], [(("a", 9, 1),)], [(("a", 10, 1),)]]


def test_it_decodes_beside_a_prompt_in_the_decode_forward() -> None:
    requests = [Request("a", range(9), 2, num_computed=8), Request("b", range(6), 1)]
    assert steps_of(requests) == [[(("b", 0, 4),), (("a", 8, 1),)], [(("b", 4, 2),), (("a", 9, 1),)]]


def test_a_delivered_part_is_not_computed_again() -> None:
    assert steps_of([Request("a", range(10), 1, num_computed=5)]) == [[(("a", 5, 4),)], [(("a", 9, 1),)]]


@given(
    prompts=st.lists(st.tuples(st.integers(1, 12), st.integers(1, 6), st.booleans()), min_size=1, max_size=6),
    policy=st.sampled_from(["whole", "chunked", "mixed"]),
)
def test_looking_ahead_changes_no_step(prompts: list[tuple[int, int, bool]], policy: str) -> None:
    requests = [
        Request(f"r{i}", range(prompt), new, num_computed=prompt - 1 if delivered else 0)
        for i, (prompt, new, delivered) in enumerate(prompts)
    ]
    assert steps_of(requests, policy, look_ahead=True) == steps_of(requests, policy)


@given(
    prompt=st.integers(2, 12), new=st.integers(2, 8), policy=st.sampled_from(["whole", "chunked", "mixed"])
)
def test_the_second_half_of_a_request_takes_the_steps_that_it_takes_anyway(
    prompt: int, new: int, policy: str
) -> None:
    together = steps_of([Request("a", range(prompt), new)], policy)
    apart = steps_of([Request("a", range(prompt + 1), new - 1, num_computed=prompt)], policy)
    assert apart == together[-(new - 1) :]


@pytest.mark.parametrize("wrong", [-1, 4, 1.0, True])
def test_a_wrong_number_is_refused(wrong: int) -> None:
    with pytest.raises(ValueError, match="num_computed must lie between 0 and 3"):
        Request("a", range(4), 1, num_computed=wrong)


def test_an_engine_that_computes_refuses_what_it_cannot_receive() -> None:
    with pytest.raises(ValueError, match="'a': 3 positions were computed elsewhere"):
        steps_of([Request("a", range(4), 1, num_computed=3)], vocab=32)
