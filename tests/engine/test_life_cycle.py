"""Bad input, stops, aborts, ids and reuse: one end for every request, blocks back, the engine usable."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tiny_engines import (
    CHUNKING,
    EVERY_BATCHED,
    EVERY_ENGINE,
    alone,
    drain,
    engine,
    expected,
    prompt,
    request,
    tiny,
    tokens_of,
)

from interleave.engine.batched import Engine, StepOutcome
from interleave.engine.build import ENGINES, build_engine
from interleave.engine.loop import serve
from interleave.model.config import ModelError
from interleave.model.sources import load_model
from interleave.schedule.request import Request, SamplingParams

COUNTS = ["max_rows", "chunk_budget", "max_chunk", "token_budget", "block_tokens", "num_blocks"]


def assert_usable(subject: Engine) -> None:
    subject.check()
    assert not subject.has_work
    assert subject.scheduler.pool.num_free == subject.scheduler.pool.num_blocks
    one = request("afterwards", 11, 3)
    assert tokens_of(serve(subject, [one])) == expected([one])


@EVERY_ENGINE
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "8"])
@pytest.mark.parametrize("count", COUNTS)
def test_counts_are_refused_by_every_engine(name: str, count: str, value: object) -> None:
    """Also by one that has no use for them."""
    with pytest.raises(ValueError, match=f"{count} must be an integer of at least 1, got {value!r}"):
        engine(name, **{count: value})


@EVERY_ENGINE
@pytest.mark.parametrize("value", [0, -5, 1.5, True, 8193])
def test_longest_request_is_refused(name: str, value: object) -> None:
    with pytest.raises(
        ValueError, match=f"max_request_tokens must lie between 1 and .* 8192 .*, got {value!r}"
    ):
        engine(name, max_request_tokens=value)


@EVERY_ENGINE
@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, 1e-9, True, "1"])
def test_pool_size_is_refused(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"pool_gib .*{value!r}"):
        engine(name, pool_gib=value)


@EVERY_ENGINE
def test_names_are_refused_with_the_nearest(name: str) -> None:
    with pytest.raises(ValueError, match=f"unknown engine '{name}_'; did you mean '{name}'"):
        build_engine(f"{name}_", tiny())
    with pytest.raises(ValueError, match="unknown order 'prefil_first'; did you mean 'prefill_first'"):
        engine(name, order="prefil_first")
    with pytest.raises(ValueError, match="unknown attention backend 'referense'; did you mean 'reference'"):
        engine(name, backend="referense")


@pytest.mark.parametrize(
    "name", [n for n, spec in ENGINES.items() if spec.policy not in ("padded", "static")]
)
@pytest.mark.parametrize(("token_budget", "max_rows"), [(1, 1), (4, 6), (6, 6)])
def test_a_token_budget_that_decodes_could_fill(name: str, token_budget: int, max_rows: int) -> None:
    if ENGINES[name].kv in ("none", "one"):
        token_budget, max_rows = 1, 1
    with pytest.raises(ValueError, match=f"token_budget {token_budget} is too small for max_rows {max_rows}"):
        engine(name, token_budget=token_budget, max_rows=max_rows)


@EVERY_ENGINE
def test_limits_that_an_engine_cannot_keep(name: str) -> None:
    spec = ENGINES[name]
    if spec.policy in ("padded", "static"):
        with pytest.raises(ValueError, match="token_budget 99 does not apply"):
            engine(name, token_budget=99)
        with pytest.raises(ValueError, match="order 'decode_first' does not apply"):
            engine(name, order="decode_first")
    if name not in CHUNKING:
        with pytest.raises(ValueError, match="max_chunk 9 does not apply"):
            engine(name, max_chunk=9)
    if spec.kv != "blocks":
        with pytest.raises(ValueError, match="pool_gib 1 does not apply"):
            engine(name, pool_gib=1)


def test_unknown_dtype_and_backend_of_another_dtype() -> None:
    with pytest.raises(ModelError, match="unknown dtype 'fp12'; allowed are fp32, fp16, bf16"):
        load_model("tiny", dtype="fp12")
    half = load_model("tiny", dtype="bf16").decoder
    with pytest.raises(ValueError, match=r"'cpu' works on float32 on the CPU, got torch\.bfloat16"):
        engine("chunked", half, backend="cpu")


@EVERY_ENGINE
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt": []}, "the prompt is empty"),
        ({"prompt": [5, 512, 7]}, "token id 512 is outside the vocabulary of 512"),
        ({"prompt": [5, -1, 7]}, "token id -1"),
        ({"max_new_tokens": 0}, "max_new_tokens must be an integer of at least 1, got 0"),
        ({"max_new_tokens": -3}, "max_new_tokens must be an integer of at least 1, got -3"),
        ({"max_new_tokens": 1200}, "can never fit"),
        ({"prompt": list(range(500)) * 3}, "can never fit"),
        ({"due_s": math.nan}, "due_s must be a finite number"),
    ],
)
def test_a_bad_request_holds_nothing(name: str, change: dict[str, Any], message: str) -> None:
    """Refused while others run; they and the engine never notice."""
    subject = engine(name)
    good = request("good", 9, 4)
    subject.submit(good)
    outcomes = [subject.step()]
    with pytest.raises(ValueError, match=f"request 'bad': {message}|{message}"):
        subject.submit(Request(**{"request_id": "bad", "prompt": [1], "max_new_tokens": 1} | change))
    assert subject.scheduler.live_ids == ["good"]
    outcomes += drain(subject)
    assert [token for o in outcomes for _, token in o.tokens] == list(alone(good.prompt, 4))
    assert_usable(subject)


@EVERY_ENGINE
def test_one_bad_request_stops_a_run_before_it_starts(name: str) -> None:
    subject = engine(name)
    with pytest.raises(ValueError, match="'bad' can never fit"):
        serve(subject, [request("good", 5), request("bad", 5, 5000)])
    with pytest.raises(ValueError, match="request id 'twin' appears twice"):
        serve(subject, [request("twin", 5), request("twin", 6)])
    assert_usable(subject)


@EVERY_ENGINE
def test_stop_token_sampled_first(name: str) -> None:
    prompt_ids = prompt(20)
    first = alone(prompt_ids, 1)[0]
    subject = engine(name)
    log = serve(subject, [Request("stops", prompt_ids, 9, stop_ids=frozenset({first}))])
    (record,) = log.requests
    assert (record.tokens, record.finish_reason) == ([first], "stop")
    assert_usable(subject)


@EVERY_ENGINE
def test_stop_token_on_the_way_and_at_the_last_position(name: str) -> None:
    answer = alone(prompt(20), 6)
    assert len(set(answer)) == 6
    requests = [
        Request("third", prompt(20), 6, stop_ids=frozenset({answer[2]})),
        Request("last", prompt(20), 6, stop_ids=frozenset({answer[5]})),
        Request("never", prompt(20), 6),
    ]
    log = serve(engine(name), requests)
    assert [(r.tokens, r.finish_reason) for r in log.requests] == [
        (list(answer[:3]), "stop"),
        (list(answer), "stop"),
        (list(answer), "length"),
    ]


@EVERY_ENGINE
@pytest.mark.parametrize("after_steps", [0, 1, 2, 4])
def test_abort_at_every_stage(name: str, after_steps: int) -> None:
    """While waiting, mid-chunk or just prefilled, decoding; twice; and one nobody knows."""
    subject = engine(name, max_rows=2, chunk_budget=16)
    requests = {r.request_id: r for r in (request("a", 40, 8), request("b", 41, 8), request("c", 7, 8))}
    for one in requests.values():
        subject.submit(one)
    answers: dict[str, list[int]] = {i: [] for i in requests}

    def note(outcome: StepOutcome) -> None:
        for i, token in outcome.tokens:
            answers[i].append(token)

    for _ in range(after_steps):
        note(subject.step())
    assert subject.abort("nobody") is False
    assert subject.abort("a") is True
    subject.check()
    assert subject.abort("a") is False
    ended = [finished for outcome in drain(subject) for finished in (note(outcome), outcome.finished)[1]]
    assert sorted((f.request_id, f.reason) for f in ended) == [("b", "length"), ("c", "length")]
    right = expected(list(requests.values()))
    assert answers["b"] == right["b"]
    assert answers["c"] == right["c"]
    assert answers["a"] == right["a"][: len(answers["a"])]
    assert_usable(subject)


@EVERY_ENGINE
@pytest.mark.parametrize("backwards", [False, True])
def test_abort_of_every_live_request(name: str, backwards: bool) -> None:
    subject = engine(name, max_rows=3, chunk_budget=16)
    for n in range(5):
        subject.submit(request(f"r{n}", 10 + 9 * n, 6))
    for _ in range(2):
        subject.step()
    for request_id in sorted(subject.scheduler.live_ids, reverse=backwards):
        assert subject.abort(request_id)
        subject.check()
    assert_usable(subject)


@EVERY_ENGINE
def test_abort_in_the_finishing_step(name: str) -> None:
    """The step that ends `a` is over when its callback runs: the abort comes too late and says so."""
    subject = engine(name)
    said: list[bool] = []

    def on_step(outcome: StepOutcome, _: float) -> None:
        said.extend(subject.abort(f.request_id) for f in outcome.finished if f.request_id == "a")

    requests = [request("a", 9, 2), request("b", 12, 5)]
    log = serve(subject, requests, on_step=on_step)
    assert said == [False]
    assert [record.finish_reason for record in log.requests] == ["length", "length"]
    assert tokens_of(log) == expected(requests)


@EVERY_ENGINE
def test_abort_between_the_last_token_and_the_end(name: str) -> None:
    """Only a static batch holds a row in between; it is finished all the same."""
    subject = engine(name)

    def on_step(outcome: StepOutcome, _: float) -> None:
        if "a" in [request_id for request_id, _ in outcome.tokens]:
            received.append("a")
        if len(received) == 2:
            assert subject.abort("a") is False

    received: list[str] = []
    requests = [request("a", 9, 2), request("b", 12, 5)]
    log = serve(subject, requests, on_step=on_step)
    assert [record.finish_reason for record in log.requests] == ["length", "length"]
    assert tokens_of(log) == expected(requests)


@EVERY_ENGINE
def test_abort_from_a_callback(name: str) -> None:
    """One runs, one waits: both end `abort` with what they have; the third is as if alone."""
    subject = engine(name, max_rows=1)
    requests = [request("running", 9, 9), request("waiting", 12, 5), request("third", 6, 4)]

    def on_step(outcome: StepOutcome, _: float) -> None:
        if outcome.plan.step == 2:
            assert subject.abort("running")
            assert subject.abort("waiting")

    running, waiting, third = serve(subject, requests, on_step=on_step).requests
    assert (running.finish_reason, running.tokens) == ("abort", expected(requests)["running"][:3])
    assert (waiting.finish_reason, waiting.tokens, waiting.admit_s) == ("abort", [], None)
    assert (third.finish_reason, third.tokens) == ("length", expected(requests)["third"])
    assert_usable(subject)


@EVERY_ENGINE
def test_duplicate_live_id_leaves_the_first_alone(name: str) -> None:
    subject = engine(name)
    one = request("same", 9, 4)
    subject.submit(one)
    with pytest.raises(ValueError, match="request id 'same' is already live"):
        subject.submit(request("same", 5, 2))
    outcomes = [subject.step()]
    with pytest.raises(ValueError, match="request id 'same' is already live"):
        subject.submit(request("same", 5, 2))
    outcomes += drain(subject)
    assert [token for o in outcomes for _, token in o.tokens] == list(alone(one.prompt, 4))
    assert_usable(subject)


@EVERY_ENGINE
def test_two_runs_on_one_engine(name: str) -> None:
    """The same ids mean other requests in the second run."""
    subject = engine(name, max_rows=2)
    first = [request("x", 9, 3), request("y", 17, 2), request("z", 4, 3)]
    second = [request("y", 30, 2), request("x", 5, 4)]
    assert tokens_of(serve(subject, first)) == expected(first)
    assert tokens_of(serve(subject, second)) == expected(second)
    assert_usable(subject)


@EVERY_ENGINE
def test_a_busy_engine_refuses_a_run(name: str) -> None:
    subject = engine(name)
    subject.submit(request("mine", 9, 3))
    with pytest.raises(ValueError, match="is busy: 1 requests are live already"):
        serve(subject, [request("yours", 4, 2)])
    drain(subject)
    assert_usable(subject)


@EVERY_ENGINE
def test_the_prompt_list_is_the_callers(name: str) -> None:
    mine = list(prompt(30))
    one = Request("one", mine, 3)
    subject = engine(name, chunk_budget=8)
    subject.submit(one)
    mine[:] = [0] * 5
    tokens = [token for outcome in drain(subject) for _, token in outcome.tokens]
    assert tokens == list(alone(prompt(30), 3))


@EVERY_BATCHED
def test_sampling_is_each_requests_own(name: str) -> None:
    """A sampled request draws the same tokens alone, in company and on the second run, whoever is greedy."""
    hot = [Request(f"hot{n}", prompt(8 + n), 6, sampling=SamplingParams(0.9, 0.95, seed=n)) for n in range(3)]
    cold = [request("cold", 12, 6)]
    together = tokens_of(serve(engine(name), [*hot, *cold]))
    assert together["cold"] == expected(cold)["cold"]
    subject = engine(name, max_rows=1)
    for _ in range(2):
        assert {i: t for one in hot for i, t in tokens_of(serve(subject, [one])).items()} == {
            one.request_id: together[one.request_id] for one in hot
        }
    assert any(together[one.request_id] != list(alone(tuple(one.prompt), 6)) for one in hot)
