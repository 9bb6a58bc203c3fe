"""The serving loop and its clock: due times, pacing, order, and clocks that misbehave."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
from tiny_engines import EVERY_ENGINE, engine, expected, micro, request, tokens_of

from interleave.engine.batched import Engine, Executed
from interleave.engine.loop import RunClock, serve
from interleave.engine.records import RequestRecord, RunLog
from interleave.lab.metrics import queue_wait_s, ttft_s
from interleave.schedule.block_pool import BlockPool
from interleave.schedule.config import SchedulerConfig
from interleave.schedule.plan import StepPlan
from interleave.schedule.policies import POLICIES
from interleave.schedule.request import Request
from interleave.schedule.row import Row
from interleave.schedule.scheduler import Scheduler

EVERY_POLICY = pytest.mark.parametrize("policy", sorted(POLICIES))


class FakeClock:
    """Time moves by sleeping, and by what a step takes."""

    def __init__(self, start_s: float = 0.0) -> None:
        self.now_s = start_s
        self.sleeps: list[float] = []

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        assert len(self.sleeps) < 10_000, "sleeps without end"
        self.sleeps.append(seconds)
        self.now_s += seconds


class TimedExecutor:
    """Every step takes `step_s` on the fake clock and samples zeros."""

    def __init__(self, clock: FakeClock, step_s: float) -> None:
        self.clock, self.step_s = clock, step_s

    def execute(self, plan: StepPlan) -> Executed:
        self.clock.now_s += self.step_s
        return Executed({p.row.request_id: 0 for f in plan.forwards for p in f if p.yields_token})

    def release(self, rows: list[Row], blocks: list[list[int]]) -> None:
        pass


def timed_engine(clock: FakeClock, step_s: float, policy: str = "chunked", **limits: int) -> Engine:
    scheduler = Scheduler(SchedulerConfig(policy, **limits), BlockPool(1000, 16))  # type: ignore[arg-type]
    return Engine(policy, scheduler, TimedExecutor(clock, step_s))


def serve_timed(clock: FakeClock, subject: Engine, requests: list[Request]) -> RunLog:
    return serve(subject, requests, clock=clock, sleep=clock.sleep)


def due(*times_s: float, max_new_tokens: int = 2) -> list[Request]:
    return [Request(f"r{n}", [1, 2], max_new_tokens, due_s=t) for n, t in enumerate(times_s)]


def assert_in_order(record: RequestRecord) -> None:
    """due <= admit <= first chunk <= first token <= last token <= finish."""
    times = [
        record.due_s,
        record.admit_s,
        record.first_chunk_s,
        record.first_token_s,
        record.last_token_s,
        record.finish_s,
    ]
    assert None not in times
    assert times == sorted(times)  # type: ignore[type-var]
    assert record.token_times_s == sorted(record.token_times_s)


@EVERY_POLICY
def test_arrivals_during_a_busy_second_count_from_their_due_time(policy: str) -> None:
    """The first request's step takes a second; five more fall due meanwhile and start when it is over."""
    clock = FakeClock()
    times_s = [0.0, 0.1, 0.3, 0.5, 0.7, 0.9]
    log = serve_timed(clock, timed_engine(clock, 1.0, policy), due(*times_s, max_new_tokens=1))
    first, *rest = log.requests
    assert (queue_wait_s(first), ttft_s(first)) == (0.0, 1.0)
    for record, due_s in zip(rest, times_s[1:], strict=True):
        assert record.admit_s == 1.0
        assert queue_wait_s(record) == pytest.approx(1.0 - due_s)
        assert ttft_s(record) == pytest.approx(2.0 - due_s)
    assert clock.sleeps == []


@EVERY_POLICY
def test_pacing_is_absolute(policy: str) -> None:
    """Steps of 0.3 s delay nobody: the loop sleeps to each due time, not for each gap."""
    clock = FakeClock(start_s=1000.0)
    times_s = [0.5, 1.0, 2.0, 4.0]
    log = serve_timed(clock, timed_engine(clock, 0.3, policy), due(*times_s, max_new_tokens=1))
    assert [record.admit_s for record in log.requests] == pytest.approx(times_s)
    assert clock.sleeps == pytest.approx([0.5, 0.2, 0.7, 1.7])


def test_pacing_does_not_drift() -> None:
    """After a thousand gaps of 10 ms the last request starts when it is due."""
    clock = FakeClock(start_s=12345.678)
    log = serve_timed(
        clock, timed_engine(clock, 0.001), due(*[0.01 * n for n in range(1000)], max_new_tokens=1)
    )
    for record in log.requests:
        assert record.admit_s == pytest.approx(record.due_s, abs=1e-9)


@EVERY_POLICY
def test_equal_due_times_keep_the_order_given(policy: str) -> None:
    clock = FakeClock()
    ids = [f"r{n}" for n in range(8)]
    random.Random(1).shuffle(ids)
    requests = [Request(i, [1], 2, due_s=0.25) for i in ids]
    order: list[str] = []
    serve(
        timed_engine(clock, 0.1, policy, max_rows=2),
        requests,
        clock=clock,
        sleep=clock.sleep,
        on_step=lambda outcome, _: order.extend(row.request_id for row in outcome.plan.admitted),
    )
    assert order == ids


def test_requests_are_served_by_due_time_whatever_the_list_order() -> None:
    clock = FakeClock()
    requests = due(3.0, 1.0, 2.0)
    log = serve_timed(clock, timed_engine(clock, 0.1), requests)
    assert [record.request_id for record in log.requests] == ["r1", "r2", "r0"]
    assert [record.admit_s for record in log.requests] == pytest.approx([1.0, 2.0, 3.0])


def test_no_requests() -> None:
    clock = FakeClock()
    log = serve_timed(clock, timed_engine(clock, 0.1), [])
    assert (log.requests, log.steps, log.wall_s) == ([], [], 0.0)


@EVERY_POLICY
@pytest.mark.parametrize("seed", range(4))
def test_a_clock_that_stalls_or_steps_back(policy: str, seed: int) -> None:
    """Time as the loop records it never runs backwards, and no wait is negative."""
    rng, clock = random.Random(seed), FakeClock(start_s=50.0)

    def restless() -> float:
        clock.now_s += rng.choice([0.0, 0.0, 0.01, -0.02, -5.0])
        return clock.now_s

    requests = due(*[0.05 * n for n in range(12)], max_new_tokens=3)
    log = serve(timed_engine(clock, 0.02, policy, max_rows=3), requests, clock=restless, sleep=clock.sleep)
    for record in log.requests:
        assert_in_order(record)
        assert queue_wait_s(record) >= 0.0  # type: ignore[operator]
        assert ttft_s(record) >= 0.0  # type: ignore[operator]
    for step in log.steps:
        assert step.end_s >= step.start_s
        assert step.parts_s["host"] >= 0.0
    starts = [step.start_s for step in log.steps]
    assert starts == sorted(starts)


def test_a_clock_set_back_does_not_hold_up_arrivals() -> None:
    """An hour back in the middle of a run: the next request comes when its gap is over, not an hour later."""
    clock = FakeClock(start_s=5000.0)
    subject = timed_engine(clock, 0.1)

    def on_step(outcome: object, _: float) -> None:
        if not clock.sleeps:
            clock.now_s -= 3600.0

    log = serve(subject, due(0.0, 1.0, 2.0), clock=clock, sleep=clock.sleep, on_step=on_step)
    assert sum(clock.sleeps) < 3.0
    assert [record.admit_s for record in log.requests] == pytest.approx([0.0, 1.0, 2.0], abs=0.2)


def test_run_clock_stands_still_while_its_source_steps_back() -> None:
    readings = iter([10.0, 11.0, 11.0, 4.0, 4.5, 4.5, 100.0])
    clock = RunClock(lambda: next(readings))
    times = [clock.now() for _ in range(6)]
    assert times == [1.0, 1.0, 1.0, 1.5, 1.5, 97.0]


def test_a_clock_that_never_moves() -> None:
    """Everything happens at 0; nothing divides by it."""
    log = serve(engine("chunked"), [request("a", 9, 3), request("b", 4, 2)], clock=lambda: 7.0)
    assert log.wall_s == 0.0
    assert all(record.finish_s == 0.0 for record in log.requests)
    assert all(step.end_s == step.start_s for step in log.steps)


@EVERY_ENGINE
def test_times_of_real_runs_are_in_order(name: str) -> None:
    """Real forwards on the real clock, arrivals spread over the first steps."""
    requests = [replace(request(f"r{n}", 1 + 7 * n % 40, 1 + n % 4), due_s=0.002 * n) for n in range(12)]
    log = serve(engine(name, micro(), max_rows=3, chunk_budget=16, max_request_tokens=64), requests)
    assert [record.request_id for record in log.requests] == [f"r{n}" for n in range(12)]
    for record in log.requests:
        assert_in_order(record)
        assert record.finish_reason == "length"
        assert record.prompt_tokens + len(record.tokens) == record.prompt_tokens + record.max_new_tokens
    for before, after in itertools.pairwise(log.requests):
        assert before.admit_step <= after.admit_step  # type: ignore[operator]
    for before, after in itertools.pairwise(log.steps):
        assert before.end_s <= after.start_s


@EVERY_ENGINE
def test_the_step_records_add_up(name: str) -> None:
    """Every prompt position and every decode is in exactly one step; parts make up the step's time."""
    requests = [request(f"r{n}", 5 + 11 * n, 2 + n) for n in range(5)]
    log = serve(engine(name, max_rows=3, chunk_budget=16), requests)
    assert tokens_of(log) == expected(requests)
    assert sum(step.prefill_tokens for step in log.steps) == sum(r.prompt_len for r in requests)
    assert sum(step.decode_rows for step in log.steps) == sum(r.max_new_tokens - 1 for r in requests)
    assert sum(step.admitted for step in log.steps) == 5
    copied = sum(step.copied_tokens for step in log.steps)
    prompts = sum(r.prompt_len for r in requests) if name in ("static", "continuous", "paged") else 0
    if name == "continuous":
        assert copied > prompts  # a completion moved the last row into the gap
    else:
        assert copied == prompts
    for step in log.steps:
        assert sum(step.parts_s.values()) == pytest.approx(step.end_s - step.start_s)
        assert 1 <= step.forwards <= 2
