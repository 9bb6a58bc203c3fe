"""Blocks, slots and the pool under real forwards."""

from __future__ import annotations

import gc
import tracemalloc
from itertools import pairwise

import pytest
import torch
from tiny_engines import (
    EVERY_BATCHED,
    EVERY_ENGINE,
    EVERY_POOLED,
    RecordingDecoder,
    drain,
    engine,
    expected,
    kv_of,
    live_tensors,
    micro,
    relative_gap,
    request,
    serve_on,
    tiny,
    tokens_of,
)
from torch import Tensor

from interleave.engine.batched import Engine
from interleave.engine.build import ENGINES
from interleave.engine.executor import BatchExecutor
from interleave.engine.loop import serve
from interleave.engine.records import RunLog
from interleave.model.batch import PackedBatch
from interleave.model.decoder import Decoder


def admit_steps(log: RunLog) -> dict[str, int | None]:
    return {record.request_id: record.admit_step for record in log.requests}


@EVERY_POOLED
@pytest.mark.parametrize(("prompt_len", "num_blocks"), [(16, 2), (32, 3), (17, 2), (13, 1)])
def test_block_counts_on_the_edges(name: str, prompt_len: int, num_blocks: int) -> None:
    """L = B, 2B, B + 1 and B - 3 with three new tokens."""
    one = request("one", prompt_len, 3)
    subject = engine(name, block_tokens=16, num_blocks=num_blocks, max_request_tokens=64)
    subject.submit(one)
    outcome = subject.step()
    (row,) = outcome.plan.admitted
    assert sorted(row.blocks) == list(range(num_blocks))
    tokens = [token for o in [outcome, *drain(subject)] for _, token in o.tokens]
    assert {"one": tokens} == expected([one])
    with pytest.raises(
        ValueError, match=f"it needs {num_blocks + 1} blocks of 16 tokens, the pool has {num_blocks}"
    ):
        subject.submit(request("more", 16 * num_blocks, 1))
    assert tokens_of(serve(subject, [one])) == expected([one])


@EVERY_ENGINE
def test_room_for_one_request_serves_two_in_turn(name: str) -> None:
    """Strictly one after the other, first come first served, whatever the engine keeps rows in."""
    requests = [request("first", 40, 5), request("second", 33, 3), request("third", 1, 2)]
    settings = {"max_rows": 4} if ENGINES[name].kv == "blocks" else {"max_rows": 1}
    log = serve_on(name, requests, num_blocks=3, block_tokens=16, **settings)
    assert tokens_of(log) == expected(requests)
    assert [record.request_id for record in log.requests] == ["first", "second", "third"]
    for before, after in zip(log.requests, log.requests[1:], strict=False):
        if before.request_id == "first" or name in ("nocache", "cached", "static", "continuous"):
            assert before.finish_s <= after.admit_s  # type: ignore[operator]
    assert not any(step.running > 2 for step in log.steps)


@EVERY_ENGINE
def test_half_a_prefill_does_not_block_itself(name: str) -> None:
    requests = [request("one", 130, 2), request("two", 129, 2)]
    log = serve_on(name, requests, max_rows=1, chunk_budget=64, num_blocks=3, block_tokens=64)
    assert tokens_of(log) == expected(requests)


@EVERY_ENGINE
def test_a_thousand_requests_of_one_token(name: str) -> None:
    """No decode step, the free list full, and nothing left behind: no tensor, and less than a string a request.

    A leak grows with the requests, in every wave of them; what Python and torch keep for later does not, though in
    one wave, after other tests, it may come to more than the bound.
    """
    subject = engine(name, micro(), max_rows=32, block_tokens=8, max_request_tokens=16)

    def wave(count: int) -> None:
        for index in range(count):
            subject.submit(request(f"r{index}", 1 + index % 7, 1))
        while subject.has_work:
            outcome = subject.step()
            assert (outcome.decode_rows, outcome.held_rows) == (0, 0)
        gc.collect()

    tracemalloc.start()
    try:
        wave(500)  # what is kept for good, however many come, is there now
        tensors, kept = live_tensors(), [tracemalloc.get_traced_memory()[0]]
        for _ in range(3):
            wave(1000)
            kept.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert live_tensors() == tensors
    assert min(after - before for before, after in pairwise(kept)) < 1000 * 50
    subject.check()
    assert subject.scheduler.pool.num_free == subject.scheduler.pool.num_blocks


@EVERY_BATCHED
def test_all_rows_end_together_and_the_next_step_admits(name: str) -> None:
    requests = [request(f"r{n}", 5 + n % 3, 3) for n in range(6)]
    log = serve_on(name, requests, max_rows=3)
    assert [step.admitted for step in log.steps] == [3, 0, 0, 3, 0, 0]
    assert [step.running for step in log.steps] == [3, 3, 0, 3, 3, 0]
    assert tokens_of(log) == expected(requests)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@EVERY_BATCHED
def test_a_pool_full_of_nan_changes_nothing(name: str, backend: str) -> None:
    """L = 600, C = 512: whatever lay in the memory before, logits are those of a fresh pool."""
    sampled = []
    for fill in (0.0, float("nan")):
        decoder = RecordingDecoder(tiny())
        subject = engine(name, decoder, backend=backend, chunk_budget=512, max_rows=3, block_tokens=64)
        kv_of(subject).k.fill_(fill)
        kv_of(subject).v.fill_(fill)
        for one in (request("long", 600, 3), request("short", 5, 6), request("middle", 65, 4)):
            subject.submit(one)
        drain(subject)
        sampled.append(torch.stack(decoder.sampled))
    zeros, nans = sampled
    assert torch.isfinite(nans).all()
    assert torch.equal(zeros, nans)


@EVERY_ENGINE
def test_long_short_long_in_one_slot_equals_a_fresh_engine(name: str) -> None:
    requests = [request("long", 200, 4), request("short", 3, 4), request("again", 199, 4)]
    settings = {"max_rows": 1, "block_tokens": 16, "num_blocks": 13, "chunk_budget": 48}
    reused = RecordingDecoder(tiny())
    log = serve(engine(name, reused, **settings), requests)
    fresh = RecordingDecoder(tiny())
    for one in requests:
        serve(engine(name, fresh, **settings), [one])
    assert tokens_of(log) == expected(requests)
    for left, right in zip(reused.sampled, fresh.sampled, strict=True):
        assert relative_gap(left, right) == 0.0


@EVERY_BATCHED
def test_what_a_step_frees_is_granted_in_the_next(name: str) -> None:
    subject: Engine = engine(name, max_rows=1)
    for one in (request("a", 3, 1), request("b", 3, 1)):
        subject.submit(one)
    first, second = subject.step(), subject.step()
    assert [row.request_id for row in first.plan.admitted + second.plan.admitted] == ["a", "b"]


@EVERY_POOLED
def test_a_big_request_is_not_overtaken(name: str) -> None:
    """The second needs more than is free; the third would fit and waits behind it."""
    requests = [request("a", 40, 9), request("wide", 60, 3), request("small", 2, 2)]
    log = serve_on(name, requests, block_tokens=16, num_blocks=6)
    admits = admit_steps(log)
    assert admits["a"] == 0
    assert 0 < admits["wide"] <= admits["small"]  # type: ignore[operator]
    assert tokens_of(log) == expected(requests)


@EVERY_BATCHED
def test_who_pays_for_the_widest_row(name: str) -> None:
    """Slots: attention walks the widest row's span for every row. Blocks: each row its own length."""
    subject = engine(name, max_rows=3)
    assert isinstance(subject.executor, BatchExecutor)
    attention = subject.executor.attention
    plan, walked = attention.plan, []

    def spying(batch: PackedBatch) -> None:
        walked.append((batch.context_lens.tolist(), batch.spans.tolist()))
        plan(batch)

    attention.plan = spying  # type: ignore[method-assign]
    for one in (request("long", 100, 3), request("short", 4, 3), request("middle", 30, 3)):
        subject.submit(one)
    drain(subject)
    decodes = [(contexts, spans) for contexts, spans in walked if sum(contexts) < 150 and len(contexts) == 3]
    assert [contexts for contexts, _ in decodes[-2:]] == [[101, 5, 31], [102, 6, 32]]
    for contexts, spans in decodes[-2:]:
        assert spans == ([max(contexts)] * 3 if ENGINES[name].kv == "slots" else contexts)


@pytest.mark.parametrize("name", ["static", "continuous", "paged"])
def test_padded_groups_pay_for_their_padding(name: str) -> None:
    """Two prompts of 100 and 4: the model runs over 2 x 100 positions, and what was prefilled is copied."""
    subject = engine(name, PositionsSeen(tiny()), max_rows=3)
    log = serve(subject, [request("long", 100, 2), request("short", 4, 2)])
    first = log.steps[0]
    assert subject.executor.decoder.seen == [200, 2]  # type: ignore[attr-defined]
    assert (first.prefill_tokens, first.padded_tokens, first.copied_tokens) == (104, 96, 104)


@pytest.mark.parametrize("name", ["whole", "chunked", "mixed"])
def test_packed_prefill_neither_pads_nor_copies(name: str) -> None:
    subject = engine(name, PositionsSeen(tiny()), max_rows=3, chunk_budget=64)
    log = serve(subject, [request("long", 100, 1), request("short", 4, 1)])
    assert sum(subject.executor.decoder.seen) == 104  # type: ignore[attr-defined]
    assert all((step.padded_tokens, step.copied_tokens) == (0, 0) for step in log.steps)


class PositionsSeen(RecordingDecoder):
    """Counts the positions of every forward."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__(decoder)
        self.seen: list[int] = []

    def forward(self, tokens: Tensor, *rest: object) -> Tensor:  # type: ignore[override]
        self.seen.append(len(tokens))
        return super().forward(tokens, *rest)  # type: ignore[arg-type]
