"""A fault inside a step: every live request ends, nothing is lost, and the engine goes on."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from breakable import Breakable, Fault, left_behind
from tiny_engines import (
    EVERY_BATCHED,
    EVERY_ENGINE,
    drain,
    engine,
    expected,
    request,
    tiny,
    tokens_of,
)
from torch import Tensor

from interleave.engine.batched import Engine, EngineFault, StepOutcome
from interleave.engine.executor import BatchExecutor
from interleave.engine.loop import serve
from interleave.engine.records import RunLog
from interleave.model.decoder import Decoder
from interleave.model.sampling import NonFiniteLogits
from interleave.schedule.plan import Forward
from interleave.schedule.request import Request

REQUESTS = [request("a", 40, 6), request("b", 9, 6), request("c", 17, 6), request("d", 3, 6)]


def assert_as_new(subject: Engine) -> None:
    subject.check()
    assert not subject.has_work
    assert left_behind(subject) == []
    assert tokens_of(serve(subject, REQUESTS)) == expected(REQUESTS)


@EVERY_ENGINE
@pytest.mark.parametrize("fail_at", [1, 2, 4])
def test_a_fault_in_a_forward(name: str, fail_at: int) -> None:
    cause = FloatingPointError("the chip is on fire")
    decoder = Breakable(tiny(), Fault("end", fail_at, cause))
    subject = engine(name, decoder, max_rows=3, chunk_budget=16, poison_freed=True)
    for one in REQUESTS:
        subject.submit(one)
    with pytest.raises(EngineFault, match=f"engine '{name}': step .* FloatingPointError: the chip") as caught:
        drain(subject)
    assert caught.value.__cause__ is cause
    assert sorted(caught.value.failed_ids) == ["a", "b", "c", "d"]
    assert_as_new(subject)


@EVERY_ENGINE
def test_the_loop_records_a_fault_and_raises_it(name: str) -> None:
    """c and d are due later; one of them waits when the fault comes, the other never arrives."""
    subject = engine(name, Breakable(tiny(), Fault("end", 3, RuntimeError("broken"))), max_rows=2)
    log = RunLog()
    late = [Request("never", [1], 1, due_s=1e6)]
    with pytest.raises(EngineFault, match="broken"):
        serve(subject, [*REQUESTS, *late], log=log)
    ended = {record.request_id: record.finish_reason for record in log.requests}
    assert ended == {"a": "error", "b": "error", "c": "error", "d": "error", "never": None}
    for record in log.requests[:4]:
        assert record.tokens == expected(REQUESTS)[record.request_id][: len(record.tokens)]
        assert record.finish_s is not None
        assert record.finish_s <= log.wall_s
    assert len(log.steps) == len({step.step for step in log.steps})
    assert_as_new(subject)


@EVERY_BATCHED
@pytest.mark.parametrize("fail_at", [1, 5])
def test_a_fault_in_attention(name: str, fail_at: int) -> None:
    """In the n-th call of a layer, halfway through a forward, with K and V written for some layers only."""
    subject = engine(name, max_rows=3, chunk_budget=16)
    assert isinstance(subject.executor, BatchExecutor)
    attention = subject.executor.attention
    run, calls = attention.run, [0]

    def failing(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        calls[0] += 1
        if calls[0] == fail_at:
            raise MemoryError("no room")
        return run(layer, q, k, v)

    attention.run = failing  # type: ignore[method-assign]
    for one in REQUESTS:
        subject.submit(one)
    with pytest.raises(EngineFault, match="MemoryError: no room"):
        drain(subject)
    assert_as_new(subject)


@EVERY_ENGINE
def test_logits_that_are_not_finite(name: str) -> None:
    class NanHead(Decoder):
        broken = True

        def logits(self, hidden: Tensor) -> Tensor:
            logits = super().logits(hidden)
            return logits * float("nan") if self.broken else logits

    decoder = NanHead(tiny().config, tiny().weights, tiny().ops)
    subject = engine(name, decoder)
    subject.submit(REQUESTS[1])
    with pytest.raises(EngineFault, match="NaN or infinite logits") as caught:
        subject.step()
    assert isinstance(caught.value.__cause__, NonFiniteLogits)
    decoder.broken = False
    assert_as_new(subject)


@EVERY_ENGINE
def test_an_interrupt_goes_through_and_leaves_the_engine_whole(name: str) -> None:
    """Ctrl-C is nobody's fault: it is raised as itself."""
    subject = engine(name, Breakable(tiny(), Fault("end", 2, KeyboardInterrupt())), max_rows=2)
    log = RunLog()
    with pytest.raises(KeyboardInterrupt):
        serve(subject, REQUESTS, log=log)
    assert {record.finish_reason for record in log.requests} == {"error"}
    assert_as_new(subject)


@EVERY_ENGINE
@pytest.mark.parametrize("at", [0, 2])
@pytest.mark.parametrize("cause", [KeyboardInterrupt(), ArithmeticError("off by one")])
def test_a_plan_that_breaks_off(
    name: str, at: int, cause: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks are handed out, and the plan that says so never comes: like a fault in computing it."""
    subject = engine(name, max_rows=2, chunk_budget=16, poison_freed=True)
    allocation = subject.scheduler._allocation

    def broken(forwards: Sequence[Forward]) -> bool:
        type(allocation).take(allocation, forwards)
        if subject.scheduler.step == at:
            assert subject.scheduler.pool.num_owned
            raise cause
        return True

    log = RunLog()
    monkeypatch.setattr(allocation, "take", broken)
    with pytest.raises((KeyboardInterrupt, EngineFault)) as caught:
        serve(subject, REQUESTS, log=log)
    monkeypatch.undo()
    if isinstance(cause, KeyboardInterrupt):
        assert caught.value is cause
    else:
        assert caught.value.__cause__ is cause
        assert str(caught.value) == f"engine '{name}': step {at} failed with ArithmeticError: off by one"
        assert set(caught.value.failed_ids) == {
            r.request_id for r in log.requests if r.finish_reason == "error"
        }
    assert {record.finish_reason for record in log.requests} <= {"error", "length"}
    assert_as_new(subject)


@EVERY_ENGINE
def test_a_failing_callback_ends_the_run(name: str) -> None:
    subject = engine(name, max_rows=2)
    log = RunLog()

    def on_step(outcome: StepOutcome, _: float) -> None:
        if outcome.plan.step == 1:
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        serve(subject, REQUESTS, on_step=on_step, log=log)
    assert "error" in {record.finish_reason for record in log.requests}
    assert len(log.steps) == 2
    assert_as_new(subject)
