"""Random submit, abort and step, by a machine that keeps its own books (see `schedule_ledger`)."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from schedule_ledger import GROUP_POLICIES, Ledger, Step, most_steps

from interleave.engine.batched import Engine, EngineFault, Executed
from interleave.schedule.block_pool import BlockPool, need_blocks
from interleave.schedule.config import SchedulerConfig
from interleave.schedule.plan import StepPlan
from interleave.schedule.policies import POLICIES
from interleave.schedule.request import Request
from interleave.schedule.row import Row
from interleave.schedule.scheduler import Scheduler

STOP = 1


class JudgingExecutor:
    """Answers every plan with scripted tokens after the ledger has judged it, or fails when told to."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.next_token = 0
        self.fail_next = False
        self.step: Step | None = None
        self.released: list[int] = []

    def execute(self, plan: StepPlan) -> Executed:
        self.step = self.ledger.planned(plan)
        if self.fail_next:
            self.fail_next = False
            raise ArithmeticError("told to fail")
        return Executed({i: self.next_token for i, _, _ in self.step.prefill + self.step.decode})

    def release(self, rows: list[Row], blocks: list[list[int]]) -> None:
        assert len(rows) == len(blocks)
        self.released += [block for own in blocks for block in own]


class LifeCycle(RuleBasedStateMachine):
    """Every request ends once, no block is lost or shared, and first admission is FCFS, preempted or not."""

    @initialize(
        policy=st.sampled_from(sorted(POLICIES)),
        order=st.sampled_from(["decode_first", "prefill_first"]),
        max_rows=st.integers(1, 4),
        chunk_budget=st.none() | st.integers(1, 9),
        spare=st.none() | st.integers(1, 9),
        progressive=st.booleans(),
        num_blocks=st.integers(1, 12),
        block_tokens=st.integers(1, 6),
    )
    def start(
        self,
        policy: str,
        order: str,
        max_rows: int,
        chunk_budget: int | None,
        spare: int | None,
        progressive: bool,
        num_blocks: int,
        block_tokens: int,
    ) -> None:
        group = policy in GROUP_POLICIES
        config = SchedulerConfig(
            policy,
            order=None if group else order,
            chunk_budget=chunk_budget,
            token_budget=None if group or spare is None else max_rows + spare,
            max_rows=max_rows,
            allocation="progressive" if progressive and policy != "static" else "reserve",
        )
        scheduler = Scheduler(config, BlockPool(num_blocks, block_tokens))
        self.ledger = Ledger(scheduler)
        self.executor = JudgingExecutor(self.ledger)
        self.engine = Engine("machine", scheduler, self.executor, vocab_size=50)
        self.count = 0

    @rule(prompt_len=st.integers(1, 20), budget=st.integers(1, 16))
    def submit(self, prompt_len: int, budget: int) -> None:
        request = Request(f"r{self.count}", range(prompt_len), budget, stop_ids=frozenset({STOP}))
        pool = self.engine.scheduler.pool
        if need_blocks(request.total_len, pool.block_tokens) > pool.num_blocks:
            with pytest.raises(ValueError, match="can never fit"):
                self.engine.submit(request)
            return
        self.engine.submit(request)
        self.ledger.submitted(request)
        self.count += 1

    @precondition(lambda self: self.engine.has_work)
    @rule(data=st.data())
    def submit_a_live_id(self, data: st.DataObject) -> None:
        live = data.draw(st.sampled_from(sorted(self.engine.scheduler.live_ids)))
        with pytest.raises(ValueError, match="already live"):
            self.engine.submit(Request(live, [1], 1, stop_ids=frozenset({STOP})))

    @rule(index=st.integers(0, 40))
    def abort(self, index: int) -> None:
        request_id = f"r{index}"
        account = self.ledger.accounts.get(request_id)
        live = account is not None and account.ended is None
        assert self.engine.abort(request_id) is live
        if live:
            self.ledger.ended(request_id, "abort")

    @precondition(lambda self: self.engine.has_work)
    @rule(token=st.sampled_from([0, 0, 0, STOP]))
    def step(self, token: int) -> None:
        self.executor.next_token = token
        before = {i for i, account in self.ledger.accounts.items() if account.ended is None}
        outcome = self.engine.step()
        assert self.executor.step is not None
        released = [self.row_of(outcome.plan, finished.request_id) for finished in outcome.finished]
        self.ledger.committed(self.executor.step, _Committed(outcome.tokens, released))
        assert {finished.request_id for finished in outcome.finished} <= before
        held = len(self.executor.step.decode) + len(self.executor.step.prefill) - outcome.held_rows
        assert outcome.decode_rows + len(self.executor.step.prefill) == held
        assert outcome.prefill_tokens == sum(n for _, _, n in self.executor.step.prefill)

    @precondition(lambda self: self.engine.has_work)
    @rule()
    def fault(self) -> None:
        self.executor.fail_next = True
        live = set(self.engine.scheduler.live_ids)
        with pytest.raises(EngineFault, match="ArithmeticError: told to fail") as caught:
            self.engine.step()
        assert set(caught.value.failed_ids) == live
        for request_id in live:
            self.ledger.ended(request_id, "error")
        assert not self.engine.has_work

    @staticmethod
    def row_of(plan: StepPlan, request_id: str) -> Row:
        return next(p.row for f in plan.forwards for p in f if p.row.request_id == request_id)

    @invariant()
    def conserved(self) -> None:
        self.engine.check()
        self.ledger.conserved()

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        requests = [account.request for account in self.ledger.accounts.values()]
        limit = most_steps(self.ledger.config, requests)
        for _ in range(limit):
            if not self.engine.has_work:
                break
            self.step(0)
        assert not self.engine.has_work
        assert all(account.ended for account in self.ledger.accounts.values())
        pool = self.engine.scheduler.pool
        assert pool.num_free == pool.num_blocks


class _Committed:
    """What the ledger asks of a commit, read off an engine's outcome."""

    def __init__(self, tokens: list[tuple[str, int]], released: list[Row]) -> None:
        self.tokens = tokens
        self.released = released


TestLifeCycle = LifeCycle.TestCase
TestLifeCycle.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
