"""Random submit, abort, step and fault, by a machine that keeps its own books (see `life_cycle`)."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from life_cycle import LIMITS, STOP, LifeCycle, limits

from interleave.engine.batched import Engine, EngineFault, Executed
from interleave.schedule.block_pool import BlockPool, need_blocks
from interleave.schedule.config import SchedulerConfig
from interleave.schedule.plan import StepPlan
from interleave.schedule.policies import POLICIES
from interleave.schedule.request import Request
from interleave.schedule.row import Row
from interleave.schedule.scheduler import Scheduler


class Scripted:
    """Answers every plan with one token for all, or fails when told to."""

    def __init__(self) -> None:
        self.next_token = 0
        self.fail_next = False

    def execute(self, plan: StepPlan) -> Executed:
        if self.fail_next:
            self.fail_next = False
            raise ArithmeticError("told to fail")
        return Executed({piece.row.request_id: self.next_token for f in plan.forwards for piece in f})

    def release(self, rows: list[Row], blocks: list[list[int]]) -> None:
        pass


class Scheduling(LifeCycle):
    @initialize(policy=st.sampled_from(sorted(POLICIES)), **LIMITS)
    def start(self, policy: str, num_blocks: int, block_tokens: int, **choices: object) -> None:
        config = SchedulerConfig(policy, **limits(policy, **choices))  # type: ignore[arg-type]
        self.script = Scripted()
        pool = BlockPool(num_blocks, block_tokens)
        self.begin(Engine("machine", Scheduler(config, pool), self.script, vocab_size=50))

    @rule(prompt_len=st.integers(1, 20), budget=st.integers(1, 16))
    def submit(self, prompt_len: int, budget: int) -> None:
        request = Request(f"r{self.count}", range(prompt_len), budget, stop_ids=frozenset({STOP}))
        pool = self.engine.scheduler.pool
        too_long = need_blocks(request.total_len, pool.block_tokens) > pool.num_blocks
        self.take(request, refusal="can never fit" if too_long else None)

    @precondition(lambda self: self.engine.has_work)
    @rule(token=st.sampled_from([0, 0, 0, STOP]))
    def step(self, token: int) -> None:
        self.script.next_token = token
        self.stepped(self.engine.step())

    @precondition(lambda self: self.engine.has_work)
    @rule()
    def fault(self) -> None:
        self.script.fail_next = True
        live = set(self.engine.scheduler.live_ids)
        with pytest.raises(EngineFault, match="ArithmeticError: told to fail") as caught:
            self.engine.step()
        self.failed(live, caught.value)

    def finish(self) -> None:
        self.step(0)


TestScheduling = Scheduling.TestCase
TestScheduling.settings = settings(max_examples=40, stateful_step_count=30)
