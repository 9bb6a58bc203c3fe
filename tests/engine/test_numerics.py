"""Numbers that company, padding and batching must not change, and ties that go to the lowest id."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tiny_engines import (
    EVERY_BATCHED,
    EVERY_ENGINE,
    FP32_TOLERANCE,
    RecordingDecoder,
    drain,
    engine,
    expected,
    logits_in_one_pass,
    relative_gap,
    request,
    tiny,
    tokens_of,
)

from interleave.engine.build import ENGINES
from interleave.engine.loop import serve
from interleave.model.decoder import Decoder
from interleave.model.ops import cpu, reference, simd

WIDTHS = (1, 63, 64, 65, 512)


@pytest.mark.parametrize("source", ["tiny", "tiny-gqa3", "tiny-gqa4-bias", "tiny-wide"])
@EVERY_BATCHED
def test_a_group_equals_each_of_its_members_alone(name: str, source: str) -> None:
    """Prompts of 1, 63, 64, 65 and 512 in one group, padded where the engine pads."""
    requests = [request(f"r{length}", length, 4) for length in WIDTHS]
    decoder = RecordingDecoder(tiny(source))
    subject = engine(name, decoder, max_rows=5, chunk_budget=1024)
    for one in requests:
        subject.submit(one)
    first = subject.step()
    assert sorted(i for i, _ in first.tokens) == sorted(one.request_id for one in requests)
    for one, logits in zip(requests, decoder.sampled, strict=True):
        alone = logits_in_one_pass(tiny(source), one.prompt)[-1]
        assert relative_gap(logits, alone) < FP32_TOLERANCE
    answers = {one.request_id: [] for one in requests}
    for outcome in [first, *drain(subject)]:
        for i, token in outcome.tokens:
            answers[i].append(token)
    assert answers == expected(requests, source)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@EVERY_BATCHED
def test_company_changes_no_decode(name: str, backend: str) -> None:
    """Every decode of a ragged batch, not only its argmax, against one pass over the final sequence."""
    requests = [request(f"r{length}", length, 5) for length in (1, 15, 16, 17, 130)]
    decoder = RecordingDecoder(tiny())
    subject = engine(name, decoder, max_rows=5, chunk_budget=1024, block_tokens=16, backend=backend)
    for one in requests:
        subject.submit(one)
    order = [[i for i, _ in outcome.tokens] for outcome in drain(subject)]
    found: dict[str, list[torch.Tensor]] = {one.request_id: [] for one in requests}
    for i, logits in zip([i for step in order for i in step], decoder.sampled, strict=True):
        found[i].append(logits)
    for one in requests:
        answer = expected([one])[one.request_id]
        right = logits_in_one_pass(tiny(), [*one.prompt, *answer])[one.prompt_len - 1 : -1]
        assert relative_gap(torch.stack(found[one.request_id]), right) < FP32_TOLERANCE


def twin_headed(decoder: Decoder, winner: int, twins: list[int], ops: object) -> Decoder:
    """The head's row `winner` copied to every id of `twins`."""
    head = decoder.weights.head.clone()
    head[twins] = head[winner].clone()
    return Decoder(decoder.config, replace(decoder.weights, head=head), ops)  # type: ignore[arg-type]


@pytest.mark.parametrize("ops", [reference, cpu, simd], ids=["reference", "cpu", "simd"])
@pytest.mark.parametrize("vocab_size", [512, 509])
@pytest.mark.parametrize("rows", [1, 3])
@EVERY_ENGINE
def test_identical_head_rows_tie_to_the_lowest_id(name: str, rows: int, vocab_size: int, ops: object) -> None:
    """Wherever in the head the twins stand, and however many rows are sampled together.

    The likeliest token of a prompt gets twins all over the vocabulary, also at both ends and next to
    each other: a head that adds up in another order for some of its rows breaks such ties at random.
    """
    base = tiny("tiny-gqa3")
    head = base.weights.head[:vocab_size]
    config = replace(base.config, vocab_size=vocab_size)
    base = Decoder(config, replace(base.weights, head=head), ops)  # type: ignore[arg-type]
    one = request("one", 24, 1)
    prompt = tuple(token % vocab_size for token in one.prompt)
    winner = int(logits_in_one_pass(base, prompt)[-1].argmax())
    spots = [0, 1, 15, 16, 31, 100, 101, 250, 255, 256, 500, vocab_size - 2, vocab_size - 1, winner]
    for lowest in (0, 2, 5, 9):
        twins = sorted(spots)[lowest:]
        decoder = twin_headed(base, winner, twins, ops)
        requests = [replace(one, request_id=f"r{n}", prompt=prompt) for n in range(rows)]
        log = serve(engine(name, decoder, max_rows=max(2, rows)), requests)
        right = min([*twins, winner])
        assert tokens_of(log) == {r.request_id: [right] for r in requests}


def test_half_precision_serves_on_the_reference_backend() -> None:
    """bf16 weights have no fast CPU kernel; the engines fall back to the oracle and still finish."""
    from interleave.model.sources import load_model

    decoder = load_model("tiny", dtype="bf16").decoder
    for name in ENGINES:
        log = serve(engine(name, decoder), [request("a", 20, 3), request("b", 3, 3)])
        assert [len(record.tokens) for record in log.requests] == [3, 3]
