"""The parity gate: passes on every engine and backend, and fails on engines that are broken."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter

import jsonschema
import pytest
import torch

from interleave.engine.build import ENGINES, build_engine
from interleave.engine.loop import serve
from interleave.lab.gate import Anchor, gate_model, run_gate, usable_backends
from interleave.lab.gate_report import GateReport, report_lines
from interleave.lab.gate_trials import prompt_ids, trials
from interleave.lab.parity import step_size
from interleave.lab.paths import data_dir
from interleave.model.decoder import Decoder
from interleave.model.sources import load_model
from interleave.model.weights import random_weights
from interleave.schedule.policies import ORDERS

SCHEMA = json.loads((data_dir() / "schema" / "gate.schema.json").read_text())
BLOCK_ENGINES = [name for name, spec in ENGINES.items() if spec.kv == "blocks"]
BATCHED = [name for name, spec in ENGINES.items() if spec.kv in ("slots", "blocks")]
ALL_BACKENDS = ["reference", "cpu"]


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def model():
    return load_model("tiny-gqa3")


@pytest.fixture(scope="module")
def ids(model):
    return prompt_ids(model)


def test_every_engine_through_every_backend(model):
    document = json.loads(json.dumps(gate_model(model, backends=ALL_BACKENDS), allow_nan=False))
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    assert document["failures"] == []
    assert document["failed"] == document["near_ties"] == 0
    assert document["checked"] == document["exact"] == sum(t["requests"] for t in document["trials"])
    ran = {(t["engine"], t["workload"], t["backend"]) for t in document["trials"]}
    for workload in ("single requests", "uniform batch", "mixed batch"):
        assert ("nocache", workload, None) in ran
        assert {(engine, workload, backend) for engine in BATCHED for backend in ALL_BACKENDS} <= ran
    for workload in (
        "8 requests through 4 rows",
        "poisoned blocks",
        "pool of one request",
        "stop ids",
        "long prompts",
    ):
        assert {(engine, workload, backend) for engine in BATCHED for backend in ALL_BACKENDS} <= ran
    pooled = {(engine, "preemptions", backend) for engine in BLOCK_ENGINES for backend in ALL_BACKENDS}
    assert pooled <= ran
    against = Counter(t["against"] for t in document["trials"] if t["backend"] == "cpu")
    assert against["cached"] == against["reference"] > 0
    for engine in BLOCK_ENGINES:
        orders = (None,) if ENGINES[engine].policy == "padded" else ORDERS
        wanted = {
            (f"chunk_budget {budget},", f"order {order}" if order else "")
            for budget in (3, 4096)
            for order in orders
        }
        found = [
            t["conditions"]
            for t in document["trials"]
            if (t["engine"], t["workload"]) == (engine, "six requests")
        ]
        assert all(any(b in text and o in text for text in found) for b, o in wanted)


def test_the_quick_subset_leaves_out_no_engine(model, ids):
    report = run_gate(model.decoder, ids, backends=ALL_BACKENDS, quick=True)
    assert report.failures == report.ties == []
    assert {t["engine"] for t in report.trials} == set(ENGINES)
    assert {t["backend"] for t in report.trials if t["workload"] == "poisoned blocks"} >= set(ALL_BACKENDS)


def test_the_pools_of_the_trials_are_tight(model, ids):
    anchor = Anchor(model.decoder, GateReport())
    made = list(trials(ids, anchor.answer))
    for trial in made:
        need = [-(-r.total_len // trial.settings["block_tokens"]) for r in trial.requests]
        if trial.workload == "pool of one request":
            assert set(need) == {trial.settings["num_blocks"]}
        if trial.workload == "poisoned blocks":
            assert sum(need) > trial.settings["num_blocks"] >= max(need)
        if trial.workload == "preemptions":
            assert sum(need) > trial.settings["num_blocks"] >= max(need)
        if trial.workload == "stop ids":
            answers = [anchor.answer(request) for request in trial.requests]
            assert all(answer.finish_reason == "stop" for answer in answers)


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("engine", BLOCK_ENGINES)
def test_the_preempting_trials_preempt(engine, quick, model, ids):
    """Somebody who has emitted tokens gives way, in every trial."""
    anchor = Anchor(model.decoder, GateReport())
    made = [t for t in trials(ids, anchor.answer, [engine], quick) if t.workload == "preemptions"]
    assert len(made) == (1 if quick or engine == "paged" else len(ORDERS))
    assert all(any(tokens_of_the_preempted(trial, model.decoder)) for trial in made)


def tokens_of_the_preempted(trial, decoder):
    """How many tokens each preempted row had emitted."""
    gone = []
    serve(
        build_engine(trial.engine, decoder, backend="cpu", **trial.settings),
        trial.requests,
        on_step=lambda outcome, _: gone.extend(len(p.row.emitted) for p in outcome.plan.preempted),
    )
    return gone


def broken(target, breaks):
    """Builds true engines, but breaks the one called `target`."""

    def build(name, decoder, **settings):
        engine = build_engine(name, decoder, **settings)
        if name == target:
            breaks(engine)
        return engine

    return build


class Shifted:
    """Attention whose decodes see `shift` positions more than there are: -1 hides the newest."""

    def __init__(self, inner, shift):
        self.inner, self.shift = inner, shift

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def plan(self, batch):
        moved = batch.context_lens + (batch.query_lens == 1) * self.shift
        spans = batch.spans.clip(min=moved)
        self.inner.plan(dataclasses.replace(batch, context_lens=moved.clip(min=1), spans=spans))


class SwapsBlocks:
    """A layout whose decodes find the first two blocks exchanged."""

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def table(self, row):
        blocks = list(self.inner.table(row))
        if not row.is_prefilling and len(blocks) > 1:
            blocks[:2] = blocks[1::-1]
        return blocks


class Changes:
    """An executor whose sampled tokens go through `change`."""

    def __init__(self, inner, change):
        self.inner, self.change = inner, change

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def execute(self, plan):
        done = self.inner.execute(plan)
        return dataclasses.replace(done, tokens={name: self.change(t) for name, t in done.tokens.items()})


def shift_attention(shift):
    def breaks(engine):
        engine.executor.attention = Shifted(engine.executor.attention, shift)

    return breaks


def swap_blocks(engine):
    engine.executor.layout = SwapsBlocks(engine.executor.layout)


@pytest.mark.parametrize("breaks", [shift_attention(-1), swap_blocks], ids=["newest", "blocks"])
@pytest.mark.parametrize("engine", ["paged", "chunked", "mixed"])
def test_a_broken_engine_fails_at_a_position(model, ids, engine, breaks):
    report = run_gate(
        model.decoder, ids, backends=["cpu"], engines=[engine], quick=True, build=broken(engine, breaks)
    )
    assert report.failed == len(report.failures) > 0
    assert report.checked == report.exact + report.near_ties + report.failed
    for failure in report.failures:
        assert (failure["engine"], failure["against"]) == (engine, "cached")
        assert failure["position"] == failure["prompt_tokens"] + failure["token_index"]
        if "NaN" in failure["reason"]:  # blocks exchanged: what lies in memory that nobody wrote
            assert breaks is swap_blocks
            continue
        assert failure["expected"] != failure["got"]
        assert failure["behind_steps"] > 64
    # Alone, a prompt is prefilled in one piece, and that is sound: only later tokens can be wrong.
    alone = [f for f in report.failures if f["workload"] == "single requests"]
    assert alone
    assert all(f["token_index"] >= 1 for f in alone)


def test_reading_past_the_context_meets_the_poison(model, ids):
    build = broken("chunked", shift_attention(+1))
    report = run_gate(model.decoder, ids, backends=ALL_BACKENDS, engines=["chunked"], quick=True, build=build)
    reasons = {f["backend"]: f["reason"] for f in report.failures if f["workload"] == "poisoned blocks"}
    assert set(reasons) == set(ALL_BACKENDS)
    assert all("NaN" in reason for reason in reasons.values())


def test_an_engine_that_raises_fails_all_its_requests(model, ids):
    def refuses(token):
        raise OSError("device lost")

    def breaks(engine):
        engine.executor = Changes(engine.executor, refuses)

    report = run_gate(
        model.decoder, ids, backends=["cpu"], engines=["mixed"], quick=True, build=broken("mixed", breaks)
    )
    judged = [t for t in report.trials if t["engine"] == "mixed"]
    assert report.failed == sum(t["requests"] for t in judged) > 0
    assert all("device lost" in failure["reason"] for failure in report.failures)


def twin_heads(steps):
    """A decoder with two nearly equal LM-head rows, the ids of both, and where the first one wins.

    The higher one is the token that `cached` chooses as some request's second; the lower lies `steps`
    float32 steps of that logit below.
    """
    config = load_model("tiny-gqa3").config
    assert not config.tie_word_embeddings
    weights = random_weights(config)
    decoder = Decoder(config, weights)
    ids = prompt_ids(load_model("tiny-gqa3"))
    anchor = Anchor(decoder, GateReport())
    trial = next(t for t in trials(ids, anchor.answer, ["chunked"], True) if t.workload == "single requests")
    request = trial.requests[-1]
    winner = anchor.answer(request).tokens[1]
    logit = anchor.oracle.logits([*request.prompt, anchor.answer(request).tokens[0]])[0, winner].item()
    loser = next(t for t in range(config.vocab_size) if t not in anchor.answer(request).tokens)
    weights.head[loser] = weights.head[winner] * (1.0 - steps * step_size(logit, torch.float32) / logit)
    return Decoder(config, weights), ids, winner, loser, request


@pytest.mark.parametrize(("steps", "near_tie"), [(30, True), (72, False)])
def test_near_ties_are_counted_with_their_position(steps, near_tie):
    decoder, ids, winner, loser, request = twin_heads(steps)

    def breaks(engine):
        engine.executor = Changes(engine.executor, lambda token: loser if token == winner else token)

    report = run_gate(
        decoder, ids, backends=["cpu"], engines=["chunked"], quick=True, build=broken("chunked", breaks)
    )
    found = [
        entry
        for entry in (report.ties if near_tie else report.failures)
        if (entry["workload"], entry["request"]) == ("single requests", request.request_id)
    ]
    assert len(found) == 1
    for entry in found:
        assert (entry["expected"], entry["got"]) == (winner, loser)
        assert (entry["position"], entry["token_index"]) == (request.prompt_len + 1, 1)
        assert entry["gap_steps"] == pytest.approx(steps, abs=7)
        assert (entry["gap_steps"] < 64) is near_tie
    if near_tie:
        assert report.failed == 0
        assert report.near_ties == len(report.ties) >= len(found)


def test_the_report_names_what_differs(model):
    def breaks(engine):
        engine.executor = Changes(engine.executor, lambda token: (token + 1) % 512)

    document = gate_model(model, quick=True, backends=ALL_BACKENDS, build=broken("paged", breaks))
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    lines = list(report_lines(document))
    assert document["failed"] > 20
    assert f"failed {document['failed']}" in lines[1]
    shown = [line for line in lines if line.startswith("FAILED: paged through ")]
    assert len(shown) == 20
    assert all("position" in line and "against cached's" in line for line in shown)
    assert lines[-1].startswith(f"and {document['failed'] - 20} more failures")


def test_backends_that_do_not_work_here_are_said(model):
    assert usable_backends(model.decoder, ALL_BACKENDS) == (ALL_BACKENDS, {})
    half = load_model("tiny", "fp16").decoder
    usable, refused = usable_backends(half, ALL_BACKENDS)
    assert usable == ["reference"]
    assert "float32" in refused["cpu"]
    with pytest.raises(ValueError, match="float32"):
        usable_backends(half, ["cpu"])
    with pytest.raises(ValueError, match="did you mean 'reference'"):
        usable_backends(half, ["referense"])


def test_a_model_with_too_few_positions_is_refused(model):
    short = dataclasses.replace(model.config, max_position_embeddings=600)
    with pytest.raises(ValueError, match=r"604 positions, this model has 600"):
        gate_model(dataclasses.replace(model, config=short))
