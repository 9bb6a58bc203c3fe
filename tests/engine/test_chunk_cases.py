"""Chunk arithmetic on real forwards: how prompts are cut, and that the cuts change nothing."""

from __future__ import annotations

from typing import Any

import pytest
from plan_counts import counts
from tiny_engines import (
    CHUNKING,
    EVERY_CHUNKING,
    EVERY_ENGINE,
    EVERY_POOLED,
    FP32_TOLERANCE,
    RecordingDecoder,
    alone,
    drain,
    engine,
    expected,
    kv_of,
    logits_in_one_pass,
    prompt,
    relative_gap,
    request,
    serve_on,
    tiny,
    tokens_of,
)
from torch import Tensor

from interleave.engine.batched import Engine, StepOutcome
from interleave.schedule.policies import split


def pieces(outcomes: list[StepOutcome], request_id: str) -> list[tuple[int, int]]:
    return [
        (start, count)
        for outcome in outcomes
        for forward in outcome.plan.composition()
        for i, start, count in forward
        if i == request_id
    ]


@EVERY_ENGINE
@pytest.mark.parametrize("prompt_len", [511, 512, 513, 1024, 1025])
def test_the_first_token_comes_with_the_last_chunk(name: str, prompt_len: int) -> None:
    subject = engine(name, chunk_budget=512)
    one = request("one", prompt_len, 1)
    subject.submit(one)
    outcomes = drain(subject)
    cut = split(prompt_len, 512) if name in CHUNKING else [(0, prompt_len)]
    assert pieces(outcomes, "one") == cut
    tokens = [outcome.tokens for outcome in outcomes]
    assert tokens == [[]] * (len(cut) - 1) + [[("one", alone(one.prompt, 1)[0])]]


@EVERY_CHUNKING
@pytest.mark.parametrize("chunk_budget", [1, 3, 7, 16])
def test_chunk_sizes_agree_with_one_shot(name: str, chunk_budget: int) -> None:
    """The logits that choose the first token, and the greedy continuation."""
    decoder = RecordingDecoder(tiny())
    one = request("one", 50, 6)
    subject = engine(name, decoder, chunk_budget=chunk_budget)
    subject.submit(one)
    drain(subject)
    assert relative_gap(decoder.sampled[0], logits_in_one_pass(tiny(), one.prompt)[-1]) < FP32_TOLERANCE
    assert tuple(int(row.argmax()) for row in decoder.sampled) == alone(one.prompt, 6)


@EVERY_CHUNKING
def test_the_smallest_budget(name: str) -> None:
    """S = 1, T = 2, L = 5: steps of 2, 2 and 1, and the token of one shot."""
    subject = engine(name, max_rows=1, token_budget=2)
    one = request("one", 5, 3)
    subject.submit(one)
    outcomes = drain(subject)
    assert [sum(counts(outcome.plan)) for outcome in outcomes] == [2, 2, 1, 1, 1]
    assert [token for outcome in outcomes for _, token in outcome.tokens] == list(alone(one.prompt, 3))


@EVERY_CHUNKING
def test_every_row_decodes_while_one_ends(name: str) -> None:
    """T = S + 1 with a full house of which one row ends."""
    subject = engine(name, max_rows=3, token_budget=4)
    requests = [request("a", 1, 12), request("b", 2, 12), request("ends", 1, 4), request("next", 9, 3)]
    for one in requests:
        subject.submit(one)
    answers: dict[str, list[int]] = {one.request_id: [] for one in requests}
    while subject.has_work:
        decoding = {row.request_id for row in subject.scheduler.rows if not row.is_prefilling}
        outcome = subject.step()
        subject.check()
        assert sum(counts(outcome.plan)) <= 4
        assert decoding <= {i for i, _ in outcome.tokens}, "a decoding row was left out"
        for i, token in outcome.tokens:
            answers[i].append(token)
    assert answers == expected(requests)


@EVERY_CHUNKING
def test_prefill_advances_by_two_beside_an_almost_full_house(name: str) -> None:
    subject = engine(name, max_rows=4, token_budget=5)
    early = [request(f"d{n}", n + 1, 16) for n in range(3)]
    late = request("late", 9, 2)
    for one in early:
        subject.submit(one)
    outcomes = [subject.step() for _ in range(4)]
    assert outcomes[-1].decode_rows == 3
    subject.submit(late)
    outcomes += drain(subject)
    assert pieces(outcomes, "late") == [(0, 2), (2, 2), (4, 2), (6, 2), (8, 1), (9, 1)]
    answers = {
        one.request_id: [t for o in outcomes for i, t in o.tokens if i == one.request_id] for one in early
    }
    assert answers == expected(early)


@EVERY_CHUNKING
def test_three_prompts_under_one_budget(name: str) -> None:
    subject = engine(name, token_budget=512, chunk_budget=None)
    requests = [request(f"r{n}", 300 + n, 2) for n in range(3)]
    for one in requests:
        subject.submit(one)
    outcomes = drain(subject)
    assert max(sum(counts(outcome.plan)) for outcome in outcomes) == 512
    assert pieces(outcomes, "r1") == [(0, 212), (212, 89), (301, 1)]
    answers = {
        r.request_id: [t for o in outcomes for i, t in o.tokens if i == r.request_id] for r in requests
    }
    assert answers == expected(requests)


def after_first_token(subject: Engine) -> list[tuple[Tensor, Tensor]]:
    """Per layer K and V [len, kv_heads, dim] of the only row, read position by position."""
    while not any(row.emitted for row in subject.scheduler.rows):
        subject.step()
    (row,) = subject.scheduler.rows
    cache = kv_of(subject)
    table = subject.executor.layout.table(row)  # type: ignore[attr-defined]
    size = cache.block_tokens
    slots = [table[p // size] * size + p % size for p in range(row.request.prompt_len)]
    return [
        (cache.k[layer][:, slots].transpose(0, 1), cache.v[layer][:, slots].transpose(0, 1))
        for layer in range(len(cache.k))
    ]


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *[(name, {"chunk_budget": budget}) for name in CHUNKING for budget in (300, 64, 4096)],
        *[(name, {"chunk_budget": 300, "allocation": "progressive"}) for name in CHUNKING],
        ("chunked", {"chunk_budget": 512, "max_chunk": 77}),
        ("mixed", {"token_budget": 101}),
        ("whole", {}),
        ("paged", {}),
        ("paged", {"allocation": "progressive"}),
        ("continuous", {}),
        ("static", {}),
    ],
)
def test_the_cache_equals_one_shot(name: str, settings: dict[str, Any], backend: str) -> None:
    """L = 1000 with chunks that end on block edges (64), off them (300), and all at once."""
    one = request("one", 1000, 2)
    kept: list[tuple[Tensor, Tensor]] = []
    logits_in_one_pass(tiny(), one.prompt, lambda layer, k, v: kept.append((k.clone(), v.clone())))
    subject = engine(name, backend=backend, block_tokens=64, **settings)
    # A neighbour that comes and goes first leaves the blocks in another order than by position.
    subject.submit(request("before", 70, 1))
    drain(subject)
    subject.submit(one)
    found = after_first_token(subject)
    for (k, v), (right_k, right_v) in zip(found, kept, strict=True):
        assert (k - right_k).abs().amax((1, 2)).max() < FP32_TOLERANCE * right_k.abs().max()
        assert (v - right_v).abs().amax((1, 2)).max() < FP32_TOLERANCE * right_v.abs().max()
    outcomes = drain(subject)
    assert outcomes[-1].tokens == [("one", alone(one.prompt, 2)[1])]


class PositionDecoder(RecordingDecoder):
    """Keeps what each forward was given."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.seen: list[list[tuple[int, int]]] = []

    def forward(self, tokens: Tensor, positions: Tensor, *rest: object) -> Tensor:  # type: ignore[override]
        self.seen.append(list(zip(positions.tolist(), tokens.tolist(), strict=True)))
        return super().forward(tokens, positions, *rest)  # type: ignore[arg-type]


@EVERY_ENGINE
def test_a_decode_token_stands_at_its_own_position(name: str) -> None:
    """The n-th known token is computed at position n - 1, and each prompt token at its own."""
    decoder = PositionDecoder(tiny())
    one = request("one", 5, 4)
    subject = engine(name, decoder)
    subject.submit(one)
    drain(subject)
    sequence = list(enumerate([*one.prompt, *alone(one.prompt, 4)]))
    assert decoder.seen[0] == sequence[:5]
    for n, seen in enumerate(decoder.seen[1:], start=5):
        assert seen == (sequence[: n + 1] if name == "nocache" else [sequence[n]])
    assert len(decoder.seen) == 4


@EVERY_POOLED
def test_the_prefill_target_stays_what_it_was(name: str) -> None:
    """Two rows, one of which ends while the other is mid-prefill."""
    subject = engine(name, chunk_budget=16)
    for one in (request("short", 3, 3), request("long", 90, 5)):
        subject.submit(one)
    prefill_tokens = 0
    while subject.has_work:
        outcome = subject.step()
        prefill_tokens += outcome.prefill_tokens
        assert all(row.prefill_target == row.request.prompt_len for row in subject.scheduler.rows)
    assert prefill_tokens == 93


@EVERY_ENGINE
def test_every_engine_answers_like_a_plain_loop(name: str) -> None:
    """Six requests of different lengths at once, through four rows."""
    requests = [request(f"r{n}", length, 3 + n) for n, length in enumerate([1, 16, 40, 17, 64, 3])]
    log = serve_on(name, requests, max_rows=4, chunk_budget=24, block_tokens=16, poison_freed=True)
    assert tokens_of(log) == expected(requests)
    assert all(record.finish_reason == "length" for record in log.requests)


def test_a_prompt_is_not_a_function_of_its_neighbours() -> None:
    """The oracle of these tests answers prompts of different lengths differently."""
    assert len({alone(prompt(n), 6) for n in (1, 16, 40, 17, 64, 3)}) == 6
