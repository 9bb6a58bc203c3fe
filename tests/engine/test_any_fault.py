"""Every forward of a run fails once, in each of its places, on every engine and by every kind of fault."""

from __future__ import annotations

from itertools import count

import pytest
from breakable import IN_FORWARD, PLACES, Breakable, Fault, fault_of, left_behind
from tiny_engines import POOLED, engine, expected, request, tiny, tokens_of

from interleave.engine import recorded as module
from interleave.engine.batched import Engine, EngineFault
from interleave.engine.build import ENGINES
from interleave.engine.loop import serve
from interleave.engine.recording import Compute, Repetition
from interleave.model.sampling import NonFiniteLogits

FEW = [request("x", 20, 5), request("y", 9, 4), request("z", 3, 6)]


def breaking_down(subject: Engine, fault: Fault) -> bool:
    """Serve `FEW` on an engine that is about to fail; whether it did. Whatever happens, nothing is lost."""
    assert isinstance(subject.executor.decoder, Breakable)  # type: ignore[attr-defined]
    subject.executor.decoder.fault = fault  # type: ignore[attr-defined]
    answers: dict[str, list[int]] = {one.request_id: [] for one in FEW}
    ended: dict[str, str] = {}
    raised: EngineFault | None = None
    for one in FEW:
        subject.submit(one)
    try:
        while subject.has_work:
            outcome = subject.step()
            for request_id, token in outcome.tokens:
                answers[request_id].append(token)
            ended |= {finished.request_id: finished.reason for finished in outcome.finished}
    except EngineFault as caught:
        raised = caught
    subject.executor.decoder.fault = None  # type: ignore[attr-defined]
    if raised is not None:
        cause = raised.__cause__
        assert isinstance(cause, NonFiniteLogits) if fault.place == "nan" else cause is fault.error
        assert f"failed with {type(cause).__name__}: {cause}" in str(raised)
        assert not ended.keys() & set(raised.failed_ids), "ended twice"
        ended |= dict.fromkeys(raised.failed_ids, "error")
    assert ended.keys() == answers.keys(), "a request has not ended"
    for request_id, right in expected(FEW).items():
        whole = ended[request_id] == "length"
        assert answers[request_id] == (right if whole else right[: len(answers[request_id])])
    subject.check()
    assert not subject.has_work
    assert left_behind(subject) == []
    return fault.came


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("name", "allocation"),
    [*[(name, "reserve") for name in ENGINES], *[(name, "progressive") for name in POOLED]],
)
def test_any_forward_may_fail(name: str, allocation: str, place: str) -> None:
    """One engine, run after run: the first forward fails, then the second, and so on until none is left."""
    decoder = Breakable(tiny())
    settings = {"max_rows": 2, "chunk_budget": 8, "num_blocks": 9, "block_tokens": 4}
    if ENGINES[name].recorded:
        settings["recorded_tokens"] = 12  # outgrown on the way
    subject = engine(name, decoder, allocation=allocation, poison_freed=True, **settings)
    probe = engine(name, Breakable(tiny()), allocation=allocation, **settings)
    assert tokens_of(serve(probe, FEW)) == expected(FEW)
    failed = next(n for n in count(1) if not breaking_down(subject, fault_of(place, n))) - 1
    if place in IN_FORWARD:
        assert failed == probe.executor.decoder.calls  # type: ignore[attr-defined]
    else:
        assert failed >= max(one.max_new_tokens for one in FEW)
    assert tokens_of(serve(subject, FEW)) == expected(FEW)


def test_a_recording_may_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU computes while it records, over padding: that forward may fail too, at first and when outgrown."""

    class Eager(Repetition):
        def __init__(self, compute: Compute) -> None:
            super().__init__(compute)
            compute()

    monkeypatch.setattr(module, "recorder", lambda graphs: Eager)
    for place in PLACES:
        fail = 0
        while True:
            subject = engine("recorded", Breakable(tiny()), recorded_tokens=12, max_rows=2, block_tokens=4)
            fail += 1
            if not breaking_down(subject, fault_of(place, fail)):
                break
            assert not breaking_down(subject, Fault("start", 1000, RuntimeError("never")))
        assert fail > 8
