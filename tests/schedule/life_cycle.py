"""What every machine of engines does, whatever computes: submit, abort, take a live id again, and keep the books.

A machine of `hypothesis.stateful` inherits from `LifeCycle` and adds how it starts, steps and fails. The ledger
judges every plan of the first engine before it is computed (see `schedule_ledger`).
"""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from schedule_ledger import GROUP_POLICIES, Ledger, Step, most_steps

from interleave.engine.batched import Engine, EngineFault, Executed, Executor, StepOutcome
from interleave.schedule.config import SchedulerConfig
from interleave.schedule.plan import StepPlan
from interleave.schedule.request import Request
from interleave.schedule.row import Row

STOP = 1
LIMITS = {
    "order": st.sampled_from(["decode_first", "prefill_first"]),
    "max_rows": st.integers(1, 4),
    "chunk_budget": st.none() | st.integers(1, 9),
    "spare": st.none() | st.integers(1, 9),
    "allocation": st.sampled_from(["reserve", "progressive"]),
    "num_blocks": st.integers(1, 12),
    "block_tokens": st.integers(1, 6),
}
"""Arguments of `limits`, and the size of the pool."""


def limits(
    policy: str, order: str, max_rows: int, chunk_budget: int | None, spare: int | None, allocation: str
) -> dict[str, str | int | None]:
    """Choices of a scheduler or an engine, without those that its policy refuses. spare: T less max_rows."""
    group = policy in GROUP_POLICIES
    return {
        "order": None if group else order,
        "chunk_budget": chunk_budget,
        "token_budget": None if group or spare is None else max_rows + spare,
        "max_rows": max_rows,
        "allocation": "reserve" if policy == "static" else allocation,
    }


class Judge:
    """Has the ledger judge every plan, and hands it on to who computes it."""

    def __init__(self, ledger: Ledger, inner: Executor) -> None:
        self.ledger = ledger
        self.inner = inner
        self.step: Step | None = None

    def execute(self, plan: StepPlan) -> Executed:
        self.step = self.ledger.planned(plan)
        return self.inner.execute(plan)

    def release(self, rows: list[Row], blocks: list[list[int]]) -> None:
        assert len(rows) == len(blocks)
        self.inner.release(rows, blocks)


class LifeCycle(RuleBasedStateMachine):
    """Every request ends once, no block is lost or shared, and first admission is FCFS, preempted or not.

    engines: told the same, in order; what one refuses, all refuse. The first is judged.
    """

    def begin(self, *engines: Engine) -> None:
        self.engines = engines
        self.engine = engines[0]
        self.ledger = Ledger(self.engine.scheduler)
        self.judge = Judge(self.ledger, self.engine.executor)
        self.engine.executor = self.judge
        self.count = 0

    @property
    def config(self) -> SchedulerConfig:
        return self.engine.scheduler.config

    def take(self, request: Request, refusal: str | None = None) -> None:
        """Submit a request everywhere; `refusal`: what each says to it."""
        if refusal is not None:
            for engine in self.engines:
                with pytest.raises(ValueError, match=refusal):
                    engine.submit(request)
            return
        for engine in self.engines:
            engine.submit(request)
        self.ledger.submitted(request)
        self.count += 1

    @precondition(lambda self: self.engine.has_work)
    @rule(data=st.data())
    def submit_a_live_id(self, data: st.DataObject) -> None:
        live = data.draw(st.sampled_from(sorted(self.engine.scheduler.live_ids)))
        self.take(Request(live, [1], 1), refusal="already live")

    @rule(data=st.data(), index=st.integers(0, 40))
    def abort(self, data: st.DataObject, index: int) -> None:
        """Somebody live, or whoever had or would have this number."""
        request_id = data.draw(st.sampled_from([f"r{index}", *sorted(self.engine.scheduler.live_ids)]))
        account = self.ledger.accounts.get(request_id)
        # A static batch holds rows that have all their tokens: their abort comes too late.
        live = account is not None and account.ended is None and not account.done
        for engine in self.engines:
            assert engine.abort(request_id) is live
        if live:
            self.ledger.ended(request_id, "abort")

    def stepped(self, outcome: StepOutcome) -> None:
        """Judge a step of the first engine after the fact."""
        step = self.judge.step
        assert step is not None
        before = {i for i, account in self.ledger.accounts.items() if account.ended is None}
        self.ledger.committed(step, _Committed(outcome))
        assert {finished.request_id for finished in outcome.finished} <= before
        held = len(step.decode) + len(step.prefill) - outcome.held_rows
        assert outcome.decode_rows + len(step.prefill) == held
        assert outcome.prefill_tokens == sum(n for _, _, n in step.prefill)

    def failed(self, live: set[str], fault: BaseException) -> None:
        """A step of the first engine failed: nothing is live any more, and the fault says who was."""
        if isinstance(fault, EngineFault):
            assert set(fault.failed_ids) == live
        for request_id in live:
            self.ledger.ended(request_id, "error")
        assert not self.engine.has_work

    def finish(self) -> None:
        """A step without a fault, to the end of all requests."""
        raise NotImplementedError

    @invariant()
    def conserved(self) -> None:
        for engine in self.engines:
            engine.check()
        self.ledger.conserved()

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        requests = [account.request for account in self.ledger.accounts.values()]
        for _ in range(most_steps(self.config, requests)):
            if not self.engine.has_work:
                break
            self.finish()
            self.conserved()
        assert all(account.ended for account in self.ledger.accounts.values())
        for engine in self.engines:
            assert not engine.has_work
            assert engine.scheduler.pool.num_free == engine.scheduler.pool.num_blocks


class _Committed:
    """What the ledger asks of a commit, read off an engine's outcome."""

    def __init__(self, outcome: StepOutcome) -> None:
        self.tokens = outcome.tokens
        self.released = outcome.released
