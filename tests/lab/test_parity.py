"""Same answer, near tie or failure: the rule on logits made by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from interleave.engine.build import build_engine
from interleave.engine.loop import serve
from interleave.engine.records import RequestRecord
from interleave.lab.parity import (
    NEAR_TIE_STEPS,
    Oracle,
    compare,
    compare_in_one_shot,
    judge,
    step_size,
)
from interleave.model.sources import load_model
from interleave.schedule.request import Request

PROMPT = tuple(range(3, 13))
REQUEST = Request("a", PROMPT, 4)
DTYPES = sorted(NEAR_TIE_STEPS, key=str)


@pytest.fixture(scope="module")
def decoder():
    return load_model("tiny").decoder


@pytest.fixture(scope="module")
def answer(decoder):
    (record,) = serve(build_engine("cached", decoder), [REQUEST]).requests
    return record


def record(tokens, finish_reason="length"):
    return RequestRecord("a", len(PROMPT), 4, 0.0, tokens=list(tokens), finish_reason=finish_reason)


@pytest.mark.parametrize("value", [1.0, 1.5, 2.0, 17.3, 100.0, -17.3, 3e-5, 1e-8, 0.0])
def test_a_step_is_the_distance_to_the_next_number(value):
    for dtype, array in ((torch.float32, np.float32), (torch.float16, np.float16)):
        exact = max(abs(value), torch.finfo(dtype).smallest_normal)
        assert step_size(value, dtype) == np.spacing(array(exact))
    here = torch.tensor(max(abs(value), torch.finfo(torch.bfloat16).smallest_normal), dtype=torch.bfloat16)
    after = torch.nextafter(here, torch.tensor(float("inf"), dtype=torch.bfloat16))
    assert step_size(float(here), torch.bfloat16) == float(after) - float(here)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_bound_is_exclusive(dtype):
    bound = NEAR_TIE_STEPS[dtype]
    step = step_size(20.0, dtype)
    for steps, near_tie in ((0, True), (bound - 1, True), (bound, False), (bound + 1, False)):
        logits = torch.tensor([1.0, 20.0, 20.0 - steps * step], dtype=torch.float32)
        found = judge(REQUEST, 2, 1, 2, logits, dtype)
        assert found.near_tie is near_tie
        assert found.gap_steps == found.behind_steps == steps
        assert (found.position, found.token_index, found.expected, found.got) == (12, 2, 1, 2)


def test_the_bound_is_fixed():
    assert {torch.float32: 64, torch.float16: 4, torch.bfloat16: 4} == NEAR_TIE_STEPS


def test_a_third_token_is_no_near_tie():
    found = judge(REQUEST, 0, 1, 0, torch.tensor([1.0, 20.0, 20.0]), torch.float32)
    assert found.gap_steps == 0.0
    assert found.behind_steps > 64
    assert not found.near_tie


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_logits_that_are_not_finite_excuse_nothing(bad):
    assert not judge(REQUEST, 0, 0, 1, torch.full((3,), bad), torch.float32).near_tie


def test_equal_answers(decoder, answer):
    assert len(answer.tokens) == 4
    assert compare(REQUEST, answer, record(answer.tokens), Oracle(decoder)) is None
    assert compare_in_one_shot(REQUEST, answer, Oracle(decoder)) is None


@pytest.mark.parametrize("index", range(4))
def test_the_first_other_token_is_found(decoder, answer, index):
    other = [*answer.tokens[:index], (answer.tokens[index] + 1) % 512, 0, 0, 0][:4]
    for found in (
        compare(REQUEST, answer, record(other), Oracle(decoder)),
        compare_in_one_shot(REQUEST, record(other), Oracle(decoder)),
    ):
        assert found is not None
        assert not found.near_tie
        assert (found.token_index, found.position) == (index, len(PROMPT) + index)
        assert (found.expected, found.got) == (answer.tokens[index], other[index])
        assert found.behind_steps >= found.gap_steps > 64


def test_length_and_finish_reason_count(decoder, answer):
    oracle = Oracle(decoder)
    short = compare(REQUEST, answer, record(answer.tokens[:2]), oracle)
    assert (short.token_index, short.expected, short.got) == (2, answer.tokens[2], None)
    assert short.reason == "2 tokens, expected 4"
    longer = compare(REQUEST, record(answer.tokens[:3]), answer, oracle)
    assert (longer.token_index, longer.expected, longer.got) == (3, None, answer.tokens[3])
    stopped = compare(REQUEST, answer, record(answer.tokens, "stop"), oracle)
    assert stopped.reason == "finish reason 'stop', expected 'length'"
    assert not any(found.near_tie for found in (short, longer, stopped))
    assert compare_in_one_shot(REQUEST, record([]), oracle).reason == "no tokens"


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_the_oracle_computes_in_the_dtype_of_the_weights(dtype):
    half = load_model("tiny", dtype).decoder
    logits = Oracle(half).logits(PROMPT, last=3)
    assert logits.shape == (3, 512)
    assert logits.dtype == torch.float32
    assert torch.equal(logits, logits.to(half.dtype).float())
