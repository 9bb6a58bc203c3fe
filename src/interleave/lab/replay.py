"""Replays a recorded run: its step times go in, and the scheduler must come to the same plans.

This is how step traces get their counts (a record holds no attended positions), and how the simulator
is held to the engine: same scheduler, same loop, same times, so the same plans, exactly.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

from interleave.engine.batched import Engine, StepOutcome
from interleave.engine.loop import serve
from interleave.engine.records import RequestRecord, RunLog, StepRecord
from interleave.lab.latency_model import LatencyModel
from interleave.lab.plan_features import Features
from interleave.lab.simulated_executor import SimulatedExecutor
from interleave.lab.simulator import Served
from interleave.lab.virtual_clock import VirtualClock
from interleave.schedule.request import Request

COMPARED = (
    "forwards", "prefill_tokens", "decode_rows", "padded_tokens", "admitted", "preempted", "resumed", "running",
    "waiting",
)  # fmt: skip


class ReplayError(ValueError):
    """A recorded run that this scheduler does not plan the same; the message names step and count."""


class RecordedClock:
    """Shows what the serving loop read: per step its top, the step's start, its end, and its end again.

    The first reading, of the run's start, is 0. tops: see `loop_tops`.
    """

    def __init__(self, steps: Sequence[StepRecord], tops: Sequence[float]) -> None:
        readings = [0.0]
        for step, top_s in zip(steps, tops, strict=True):
            readings += [top_s, step.start_s, step.end_s, step.end_s]
        self._readings = iter(readings)
        self._last = 0.0

    def __call__(self) -> float:
        self._last = next(self._readings, self._last)
        return self._last


def loop_tops(requests: Sequence[RequestRecord], steps: Sequence[StepRecord]) -> list[float]:
    """When the loop looked for arrivals before each step: a moment that lets in as many as it did.

    A request that fell due between that look and the step's start was let in one step later. Who was
    in by a step follows from its record: waiting, running, or finished.
    """
    due_s = sorted(record.due_s for record in requests)
    ends_s = sorted(record.finish_s for record in requests if record.finish_s is not None)
    tops = []
    previous_s = 0.0
    for step in steps:
        num_in = step.waiting + step.running + bisect_right(ends_s, step.end_s)
        late = num_in < len(due_s) and due_s[num_in] <= step.start_s
        tops.append(max(previous_s, due_s[num_in - 1]) if late else step.start_s)
        previous_s = step.end_s
    return tops


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
    clock = RecordedClock(steps, loop_tops(requests, steps))
    # How long the executor thinks that a step takes is nobody's business here: the clock is the record.
    executor = SimulatedExecutor(
        LatencyModel("additive", {}), VirtualClock(), slots=served.slots, keep_features=True
    )
    engine = Engine(served.engine, served.scheduler(), executor)
    again = [
        Request(record.request_id, range(record.prompt_tokens), record.max_new_tokens, due_s=record.due_s)
        for record in requests
    ]

    def no_sleep(seconds: float) -> None:
        raise ReplayError(f"this scheduler is idle for {seconds} s where a step was recorded")

    log = RunLog()

    def compare(outcome: StepOutcome, end_s: float) -> None:
        if on_step is not None:
            on_step(outcome, end_s)
        number = len(log.steps) - 1
        _compare(steps[number], log.steps[number])
        if len(log.steps) == len(steps) and engine.has_work:
            raise ReplayError(f"{len(steps)} steps were recorded; this scheduler needs more")

    serve(engine, again, clock=clock, sleep=no_sleep, log=log, on_step=compare)
    if len(log.steps) != len(steps):
        raise ReplayError(f"{len(steps)} steps were recorded, {len(log.steps)} are planned")
    return executor.steps or []


def _compare(recorded: StepRecord, planned: StepRecord) -> None:
    for name in COMPARED:
        if getattr(recorded, name) != getattr(planned, name):
            raise ReplayError(
                f"step {recorded.step}: {name} was recorded as {getattr(recorded, name)}, planned as "
                f"{getattr(planned, name)}; was the engine another one, or its pool smaller?"
            )
