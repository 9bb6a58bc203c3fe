"""One simulated engine of a fleet, and what a router may know of it at any moment.

An event of the simulation computes a step, or a run of recurring ones, and books it at once; until its
end has come, the time line of the others must not see it. So a replica remembers what was true when its
latest event began, and counts the steps of it that have ended.
"""

from __future__ import annotations

from collections.abc import Callable

from interleave.engine.batched import Engine, StepOutcome
from interleave.engine.loop import RunClock, Server
from interleave.lab.latency_model import TICKS_PER_S
from interleave.lab.request_table import RequestTable
from interleave.lab.simulated_executor import SimulatedExecutor
from interleave.schedule.plan import Preemption
from interleave.schedule.request import Request

OnStep = Callable[[StepOutcome, float], None]


class Replica:
    """index: its place in the fleet. num_live: requests that wait or run after its latest event, which ended at
    now_s. watch: makes what hears its outcomes."""

    def __init__(
        self,
        index: int,
        engine: Engine,
        executor: SimulatedExecutor,
        table: RequestTable,
        watch: Callable[[Replica], OnStep] | None = None,
    ) -> None:
        self.index = index
        self.engine = engine
        self.executor = executor
        self.table = table
        on_step = watch(self) if watch else None
        self.server = Server(engine, table, RunClock(executor.clock.__call__), executor.clock.sleep, on_step)
        self.num_live = self._outstanding = 0
        # Of the latest event: how many requests were live in it, what each of its steps computed, when it began.
        self._num_ended = self._step_tokens = self._repeats = self._start_ticks = 0

    @property
    def now_s(self) -> float:
        return self.server.now_s

    def take(self, request: Request) -> None:
        """A request that is due, no later than an event of this replica that others have seen end."""
        while self.now_s < request.due_s and not self.num_live:
            self.server.wait_for(request)
        self.server.take(request)
        self.num_live += 1
        self._outstanding += request.prefill_target - request.num_computed + request.max_new_tokens

    def step(self) -> None:
        self._start_ticks = self.executor.clock.ticks
        outcome = self.server.step()
        self._repeats = outcome.executed.repeats
        self._step_tokens = outcome.prefill_tokens + len(outcome.tokens)
        self._num_ended = len(outcome.finished)
        self._outstanding -= self._repeats * self._step_tokens
        if outcome.plan.preempted:
            self._outstanding += sum(map(_lost_tokens, outcome.plan.preempted))
        self.num_live -= self._num_ended

    def num_requests(self, at_s: float) -> int:
        """Requests that wait or run at a time between the beginning of the latest event and the next."""
        return self.num_live + (self._num_ended if at_s < self.now_s else 0)

    def outstanding_tokens(self, at_s: float) -> int:
        """Their prompt positions not computed and tokens not generated."""
        return self._outstanding + (self._repeats - self._steps_ended(at_s)) * self._step_tokens

    def _steps_ended(self, at_s: float) -> int:
        """Steps of the latest event that have ended at a time: the most whose end is not after it."""
        if at_s >= self.now_s:
            return self._repeats
        first, last = self.executor.span_ticks
        growth = (last - first) // (self._repeats - 1) if self._repeats > 1 else 0
        low, high = 0, self._repeats  # steps that have ended, steps that have not
        while high - low > 1:
            middle = (low + high) // 2
            end = self._start_ticks + middle * first + growth * (middle * (middle - 1) // 2)
            low, high = (middle, high) if end / TICKS_PER_S <= at_s else (low, middle)
        return low

    def check(self) -> None:
        """Assert, for a replica that has served all, that nothing is left and nothing was lost."""
        self.engine.check()
        if self.engine.has_work or self.num_live or self._outstanding:
            raise AssertionError(
                f"replica {self.index}: {self.num_live} requests and {self._outstanding} tokens are left over"
            )


def _lost_tokens(gone: Preemption) -> int:
    """Positions to compute again; of a row that was about to decode a delivered prompt, its newest token too."""
    row = gone.row
    about_to_decode = not row.emitted and gone.num_computed >= row.request.prefill_target
    return gone.num_computed + about_to_decode
