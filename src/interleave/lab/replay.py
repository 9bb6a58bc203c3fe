"""Replays a recorded run: its step times go in, and the scheduler must come to the same plans.

This is how step traces get their counts (a record holds no attended positions), and how the simulator
is held to the engine: same scheduler, same loop, same times, so the same plans, exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from interleave.engine.batched import Engine, Executed, StepOutcome
from interleave.engine.loop import serve
from interleave.engine.records import RequestRecord, RunLog, StepRecord
from interleave.lab.latency_model import LatencyModel
from interleave.lab.plan_features import Features
from interleave.lab.simulated_executor import SimulatedExecutor
from interleave.lab.simulator import Served
from interleave.lab.virtual_clock import VirtualClock
from interleave.schedule.plan import StepPlan
from interleave.schedule.request import Request

COMPARED = ("forwards", "prefill_tokens", "decode_rows", "padded_tokens", "admitted", "running", "waiting")


class ReplayError(ValueError):
    """A recorded run that this scheduler does not plan the same; the message names step and count."""


class RecordedClock:
    """Shows the start of the next step, and its end once after it ran. The first reading is 0."""

    def __init__(self, steps: Sequence[StepRecord]) -> None:
        self._steps = steps
        self._next = 0
        self._ran = False
        self._started = False

    def __call__(self) -> float:
        if not self._started:
            self._started = True
            return 0.0
        if self._ran:
            self._ran = False
            self._next += 1
            return self._steps[self._next - 1].end_s
        if self._next < len(self._steps):
            return self._steps[self._next].start_s
        return self._steps[-1].end_s

    def ran(self) -> None:
        if self._next >= len(self._steps):
            raise ReplayError(
                f"the run was recorded with {len(self._steps)} steps; this scheduler needs more"
            )
        self._ran = True


class RecordedExecutor(SimulatedExecutor):
    """Takes the time that was recorded, and keeps the counts of each step."""

    def __init__(self, clock: RecordedClock, *, slots: bool) -> None:
        super().__init__(LatencyModel("additive", {}), VirtualClock(), slots=slots, keep_features=True)
        self._recorded = clock

    def execute(self, plan: StepPlan) -> Executed:
        self._recorded.ran()
        return super().execute(plan)


def replay(
    served: Served,
    requests: Sequence[RequestRecord],
    steps: Sequence[StepRecord],
    *,
    on_step: Callable[[StepOutcome, float], None] | None = None,
) -> list[list[Features]]:
    """The counts of every step of a recorded run, by planning it again.

    Raises ReplayError where a count differs from the record.
    """
    if not steps:
        raise ReplayError("the run was recorded without any step")
    clock = RecordedClock(steps)
    executor = RecordedExecutor(clock, slots=served.slots)
    engine = Engine(served.engine, served.scheduler(), executor)
    again = [
        Request(record.request_id, range(record.prompt_tokens), record.max_new_tokens, due_s=record.due_s)
        for record in requests
    ]

    def no_sleep(seconds: float) -> None:
        raise ReplayError(f"this scheduler is idle for {seconds} s where a step was recorded")

    log = RunLog()
    serve(engine, again, clock=clock, sleep=no_sleep, log=log, on_step=on_step)
    for recorded, planned in zip(steps, log.steps, strict=False):
        for name in COMPARED:
            if getattr(recorded, name) != getattr(planned, name):
                raise ReplayError(
                    f"step {recorded.step}: {name} was recorded as {getattr(recorded, name)}, planned as "
                    f"{getattr(planned, name)}; was the engine another one, or its pool smaller?"
                )
    if len(log.steps) != len(steps):
        raise ReplayError(f"{len(steps)} steps were recorded, {len(log.steps)} are planned")
    return executor.steps or []
