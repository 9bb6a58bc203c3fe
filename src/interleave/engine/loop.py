"""The serving loop: the only place where requests meet a clock. Imports no torch.

Closed runs are requests that are all due at 0; open runs have due times and are paced absolutely:
the loop sleeps until a due time, never for a gap, so that a late step delays nobody's arrival.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from interleave.engine.batched import Engine, StepOutcome
from interleave.engine.log_recorder import LogRecorder
from interleave.engine.records import RunLog
from interleave.schedule.request import Request

CLOCK_ROUNDING_S = 1e-9
"""A clock that counts from long ago cannot show less: sleeping for it might never end."""


class RunClock:
    """Seconds since the start. A source that steps back loses that stretch; time here only stands still."""

    def __init__(self, source: Callable[[], float]) -> None:
        self._source = source
        self._start = self._last = source()
        self._latest = 0.0

    def now(self) -> float:
        reading = self._source()
        if reading < self._last:
            self._start -= self._last - reading
        self._last = reading
        elapsed = reading - self._start
        if elapsed > self._latest:
            self._latest = elapsed
        return self._latest

    def wait_until(self, due_s: float, sleep: Callable[[float], None]) -> None:
        """Sleep until `due_s`. A rest too short for the source to show has passed: time moves on by it."""
        rest_s = due_s - self.now()
        if rest_s > CLOCK_ROUNDING_S:
            sleep(rest_s)
        else:
            self._latest = max(self._latest, due_s)


class Recorder(Protocol):
    """Hears what happens in a run, with the times that the loop read."""

    def arrived(self, request: Request) -> None: ...

    def stepped(self, outcome: StepOutcome, start_s: float, end_s: float, engine: Engine) -> None: ...

    def aborted(self, engine: Engine, now_s: float) -> None:
        """A callback may have aborted requests: those recorded as live and gone from the engine."""
        ...

    def failed(self, engine: Engine, now: Callable[[], float]) -> None:
        """The run ends early: end in the engine whatever is live, and record it as an error."""
        ...


def serve(
    engine: Engine,
    requests: Iterable[Request],
    *,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
    on_step: Callable[[StepOutcome, float], None] | None = None,
    log: RunLog | None = None,
) -> RunLog:
    """Serve `requests` to the end and return what happened.

    Requests due at the same time keep the order in which they were given. `on_step` sees each
    outcome with the time it ended; it may call `engine.abort`. Whatever goes wrong on the way (an
    EngineFault, a failing callback, Ctrl-C), live requests end with reason `error`, the engine is
    left empty, the records in `log` are complete up to then, and the exception goes on its way.
    Raises ValueError before anything runs if the engine is busy or refuses a request.
    """
    refuse_busy(engine)
    log = RunLog() if log is None else log
    pending = sorted(requests, key=lambda request: request.due_s)
    for request in pending:
        engine.validate(request)
    recorder = LogRecorder(log, pending)
    run_clock = RunClock(clock)
    try:
        serve_arrivals(engine, iter(pending), recorder, run_clock, sleep, on_step)
    finally:
        log.wall_s = run_clock.now()
    engine.check()
    return log


def refuse_busy(engine: Engine) -> None:
    """ValueError for an engine that is serving something already."""
    if busy := engine.scheduler.live_ids:
        raise ValueError(f"engine {engine.name!r} is busy: {len(busy)} requests are live already")


def serve_arrivals(
    engine: Engine,
    arrivals: Iterator[Request],
    recorder: Recorder,
    run_clock: RunClock,
    sleep: Callable[[float], None],
    on_step: Callable[[StepOutcome, float], None] | None = None,
) -> None:
    """The loop itself. `arrivals` come sorted by due time; only the next one is ever drawn ahead."""
    server = Server(engine, recorder, run_clock, sleep, on_step)
    upcoming = next(arrivals, None)
    try:
        while upcoming is not None or engine.has_work:
            now = run_clock.now()
            while upcoming is not None and upcoming.due_s <= now:
                server.take(upcoming)
                upcoming = next(arrivals, None)
            if engine.has_work:
                server.step()
            elif upcoming is not None:
                server.wait_for(upcoming)
    except BaseException:
        server.fail()
        raise


class Server:
    """An engine on a clock, with somebody who hears what happens: what a loop does with it, move by move.

    `serve_arrivals` moves one of these; a simulated fleet moves several on one time line.
    now_s: what the clock said after the latest move that takes time.
    """

    def __init__(
        self,
        engine: Engine,
        recorder: Recorder,
        run_clock: RunClock,
        sleep: Callable[[float], None],
        on_step: Callable[[StepOutcome, float], None] | None = None,
    ) -> None:
        self.engine = engine
        self.run_clock = run_clock
        self.now_s = 0.0
        self._recorder = recorder
        self._sleep = sleep
        self._on_step = on_step

    def take(self, request: Request) -> None:
        """A request that is due joins the queue."""
        self.engine.submit(request)
        self._recorder.arrived(request)

    def wait_for(self, request: Request) -> None:
        """Nothing to do until this request is due."""
        self.run_clock.wait_until(request.due_s, self._sleep)
        self.now_s = self.run_clock.now()

    def step(self) -> StepOutcome:
        start_s = self.run_clock.now()
        outcome = self.engine.step()
        end_s = self.now_s = self.run_clock.now()
        self._recorder.stepped(outcome, start_s, end_s, self.engine)
        if self._on_step is not None:
            self._on_step(outcome, end_s)
            self._recorder.aborted(self.engine, self.run_clock.now())
        return outcome

    def fail(self) -> None:
        """The run ends early: nothing stays live in the engine."""
        self._recorder.failed(self.engine, self.run_clock.now)
