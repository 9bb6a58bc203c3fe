"""The serving loop: the only place where requests meet a clock. Imports no torch.

Closed runs are requests that are all due at 0; open runs have due times and are paced absolutely:
the loop sleeps until a due time, never for a gap, so that a late step delays nobody's arrival.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from interleave.engine.batched import Engine, StepOutcome
from interleave.engine.records import RequestRecord, RunLog, StepRecord
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
        self._start -= max(0.0, self._last - reading)
        self._last = reading
        self._latest = max(self._latest, reading - self._start)
        return self._latest

    def wait_until(self, due_s: float, sleep: Callable[[float], None]) -> None:
        """Sleep until `due_s`. A rest too short for the source to show has passed: time moves on by it."""
        rest_s = due_s - self.now()
        if rest_s > CLOCK_ROUNDING_S:
            sleep(rest_s)
        else:
            self._latest = max(self._latest, due_s)


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
    if busy := engine.scheduler.live_ids:
        raise ValueError(f"engine {engine.name!r} is busy: {len(busy)} requests are live already")
    log = RunLog() if log is None else log
    pending = sorted(requests, key=lambda request: request.due_s)
    for request in pending:
        engine.validate(request)
    records = _records(pending)
    log.requests.extend(records.values())
    run_clock = RunClock(clock)
    live: dict[str, RequestRecord] = {}
    arrived = 0
    try:
        while arrived < len(pending) or engine.has_work:
            now = run_clock.now()
            while arrived < len(pending) and pending[arrived].due_s <= now:
                request = pending[arrived]
                engine.submit(request)
                live[request.request_id] = records[request.request_id]
                arrived += 1
            if not engine.has_work:
                run_clock.wait_until(pending[arrived].due_s, sleep)
                continue
            start_s = run_clock.now()
            outcome = engine.step()
            end_s = run_clock.now()
            _record_step(log, live, outcome, engine, start_s, end_s)
            if on_step is not None:
                on_step(outcome, end_s)
                _record_aborts(live, engine, run_clock.now())
    except BaseException:
        for request_id, record in live.items():
            engine.abort(request_id)
            record.finish_s, record.finish_reason = run_clock.now(), "error"
        raise
    finally:
        log.wall_s = run_clock.now()
    engine.check()
    return log


def _records(pending: list[Request]) -> dict[str, RequestRecord]:
    records: dict[str, RequestRecord] = {}
    for request in pending:
        if request.request_id in records:
            raise ValueError(f"request id {request.request_id!r} appears twice in one run")
        records[request.request_id] = RequestRecord(
            request_id=request.request_id,
            prompt_tokens=request.prompt_len,
            max_new_tokens=request.max_new_tokens,
            due_s=request.due_s,
        )
    return records


def _record_step(
    log: RunLog,
    live: dict[str, RequestRecord],
    outcome: StepOutcome,
    engine: Engine,
    start_s: float,
    end_s: float,
) -> None:
    plan = outcome.plan
    for row in plan.admitted:
        record = live[row.request_id]
        record.admit_s, record.admit_step = start_s, plan.step
    for forward in plan.forwards:
        for piece in forward:
            if piece.start == 0 and live[piece.row.request_id].first_chunk_s is None:
                live[piece.row.request_id].first_chunk_s = start_s
    for request_id, token in outcome.tokens:
        record = live[request_id]
        record.tokens.append(token)
        record.token_times_s.append(end_s)
    for finished in outcome.finished:
        record = live.pop(finished.request_id)
        record.finish_s, record.finish_reason = end_s, finished.reason
    parts = dict(outcome.executed.parts_s)
    parts["host"] = max(0.0, end_s - start_s - sum(parts.values()))
    log.steps.append(
        StepRecord(
            step=plan.step,
            start_s=start_s,
            end_s=end_s,
            forwards=len(plan.forwards),
            prefill_tokens=outcome.prefill_tokens,
            decode_rows=outcome.decode_rows,
            padded_tokens=plan.num_padded_tokens + outcome.held_rows,
            copied_tokens=outcome.executed.copied_tokens,
            admitted=len(plan.admitted),
            running=len(engine.scheduler.rows),
            waiting=len(engine.scheduler.waiting),
            attended_tokens=outcome.attended_tokens,
            context_tokens=outcome.context_tokens,
            sampled_rows=len(outcome.tokens),
            parts_s=parts,
        )
    )


def _record_aborts(live: dict[str, RequestRecord], engine: Engine, now: float) -> None:
    """Requests that a step callback aborted: they are in `live` but no longer in the engine."""
    gone = live.keys() - set(engine.scheduler.live_ids)
    for request_id in gone:
        record = live.pop(request_id)
        record.finish_s, record.finish_reason = now, "abort"
