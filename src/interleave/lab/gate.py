"""The parity gate: with the same weights and greedy decoding, every engine answers as `cached` does.

Runs the trials of `gate_trials`, judges each request with `parity`, and reports. `cached` itself is
held to the `reference` attention in one shot, and every other backend to `reference` as well. It
does not know how its report is printed or stored.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from interleave.engine.batched import Engine
from interleave.engine.build import BACKENDS, ENGINES, attention_backend, build_engine
from interleave.engine.loop import serve
from interleave.engine.records import RequestRecord, RunLog
from interleave.lab.gate_report import GateReport, gate_document
from interleave.lab.gate_trials import LONGEST_REQUEST, Trial, prompt_ids, trials
from interleave.lab.parity import Difference, Oracle, compare, compare_in_one_shot
from interleave.model.decoder import Decoder
from interleave.model.kv_cache import KVCache
from interleave.model.sources import LoadedModel
from interleave.schedule.names import nearest
from interleave.schedule.request import Request

Say = Callable[[str], None]


Build = Callable[..., Engine]
"""Called like `build_engine`; a test passes one that breaks what it builds."""


@dataclass(frozen=True, slots=True)
class Answers:
    """What a trial's engine answered, in the trial's order. fault: why it stopped early, if it did."""

    records: list[RequestRecord]
    fault: str | None = None


def usable_backends(decoder: Decoder, wanted: Collection[str] = BACKENDS) -> tuple[list[str], dict[str, str]]:
    """(attention backends that work on this device and dtype, why each other one does not).

    wanted: which to look at; ValueError for an unknown one, and if none of them works here.
    """
    for name in wanted:
        if name not in BACKENDS:
            raise ValueError(nearest("attention backend", name, BACKENDS))
    probe = KVCache(decoder.config, 1, 16, decoder.dtype, decoder.device)
    usable, refused = [], {}
    # The reference goes first, so that its answers are there when the others are held to them.
    for name in sorted(set(wanted), key=lambda name: (name != "reference", name)):
        try:
            attention_backend(name, probe)
        except ValueError as error:
            refused[name] = str(error)
        else:
            usable.append(name)
    if not usable:
        raise ValueError("; ".join(refused.values()))
    return usable, refused


def gate_model(
    model: LoadedModel,
    *,
    quick: bool = False,
    backends: Collection[str] = BACKENDS,
    build: Build = build_engine,
    say: Say = lambda _: None,
) -> dict[str, Any]:
    """Gate a model and return the document of `gate_report`; arguments as in `run_gate`.

    backends: those of them are run that work here.
    Raises ValueError if none of them does, and for a model with too few positions.
    """
    if model.config.max_position_embeddings < LONGEST_REQUEST:
        raise ValueError(
            f"the gate's longest request takes {LONGEST_REQUEST} positions, this model has "
            f"{model.config.max_position_embeddings}"
        )
    usable, refused = usable_backends(model.decoder, backends)
    ids = prompt_ids(model)
    started = time.perf_counter()
    report = run_gate(model.decoder, ids, backends=usable, quick=quick, build=build, say=say)
    conditions = {"quick": quick, "backends": usable, "refused_backends": refused}
    document = gate_document(report, model, conditions)
    return document | {"wall_s": round(time.perf_counter() - started, 1)}


def run_gate(
    decoder: Decoder,
    ids: Sequence[int],
    *,
    backends: Sequence[str],
    engines: Collection[str] = tuple(ENGINES),
    quick: bool = False,
    build: Build = build_engine,
    say: Say = lambda _: None,
) -> GateReport:
    """Run every trial (or the quick subset) through every backend.

    ids: token ids that prompts are cut from; backends: see `usable_backends`; engines: those under
    test; build: makes them (never the anchor, which is always a true `cached`). The quick subset
    runs only the poisoned trials through more than the last backend. A failing engine is reported,
    not raised.
    """
    report = GateReport()
    anchor = Anchor(decoder, report)
    for trial in trials(ids, anchor.answer, engines, quick):
        expected = anchor.answers(trial)
        reference: Answers | None = None
        for backend in backends_of(trial, backends, quick):
            started = time.perf_counter()
            answers = run_trial(trial, decoder, backend, build)
            where = _where(trial, backend)
            result = report.add(
                {**where, "against": "cached"}, _judge(trial, expected, answers, anchor.oracle)
            )
            if backend == "reference":
                reference = answers
            elif reference is not None and reference.fault is None:
                judged = _judge(trial, reference.records, answers, anchor.oracle)
                result += "; against reference " + report.add({**where, "against": "reference"}, judged)
            took = time.perf_counter() - started
            say(f"{trial.engine:10} {trial.workload:26} {backend or '-':9} {result} ({took:.1f} s)")
    report.distinct_tokens = anchor.num_distinct_tokens
    return report


def backends_of(trial: Trial, backends: Sequence[str], quick: bool) -> Sequence[str | None]:
    """The backends that a trial runs through: none for an engine that has its own attention."""
    if ENGINES[trial.engine].kv in ("none", "one"):
        return (None,)
    return backends[-1:] if quick and not trial.poison_pool else backends


class Anchor:
    """What `cached` answers, each request once, and each answer held to the oracle."""

    def __init__(self, decoder: Decoder, report: GateReport) -> None:
        self.oracle = Oracle(decoder)
        self._decoder = decoder
        self._report = report
        self._known: dict[tuple[Sequence[int], int, frozenset[int]], RequestRecord] = {}

    def answer(self, request: Request, workload: str = "stop ids") -> RequestRecord:
        key = (request.prompt, request.max_new_tokens, request.stop_ids)
        if key not in self._known:
            (self._known[key],) = serve(
                build_engine("cached", self._decoder, warm_up=False), [request]
            ).requests
            where = {"engine": "cached", "workload": workload, "backend": None, "conditions": ""}
            difference = compare_in_one_shot(request, self._known[key], self.oracle)
            self._report.add({**where, "against": "one shot"}, [(request, difference)])
        return self._known[key]

    @property
    def num_distinct_tokens(self) -> int:
        return len({token for record in self._known.values() for token in record.tokens})

    def answers(self, trial: Trial) -> list[RequestRecord]:
        return [self.answer(request, trial.workload) for request in trial.requests]


def run_trial(trial: Trial, decoder: Decoder, backend: str | None, build: Build = build_engine) -> Answers:
    """Serve a trial's requests. Whatever its engine raises becomes the fault of the answers."""
    logs: list[RunLog] = []
    try:
        engine = build(trial.engine, decoder, backend=backend, warm_up=False, **trial.settings)
        cache = getattr(engine.executor, "cache", None)
        if trial.poison_pool and isinstance(cache, KVCache):
            cache.poison(list(range(cache.num_blocks)))
        for requests in [[r] for r in trial.requests] if trial.one_by_one else [trial.requests]:
            logs.append(RunLog())
            serve(engine, requests, log=logs[-1])
    except Exception as error:
        return Answers(_records(trial, logs), f"{type(error).__name__}: {error}")
    return Answers(_records(trial, logs))


def _records(trial: Trial, logs: Sequence[RunLog]) -> list[RequestRecord]:
    """A record per request; an empty one for a request that was never reached."""
    found = {record.request_id: record for log in logs for record in log.requests}
    return [
        found.get(r.request_id) or RequestRecord(r.request_id, r.prompt_len, r.max_new_tokens, r.due_s)
        for r in trial.requests
    ]


def _judge(
    trial: Trial, expected: Sequence[RequestRecord], answers: Answers, oracle: Oracle
) -> list[tuple[Request, Difference | None]]:
    judged: list[tuple[Request, Difference | None]] = []
    for request, left, right in zip(trial.requests, expected, answers.records, strict=True):
        if answers.fault is None:
            judged.append((request, compare(request, left, right, oracle)))
        else:
            judged.append((request, _faulty(request, left, right, answers.fault)))
    return judged


def _faulty(request: Request, expected: RequestRecord, got: RequestRecord, fault: str) -> Difference:
    """An engine that raised fails all of its requests, those it had finished too."""
    index = len(got.tokens)
    wanted = expected.tokens[index] if index < len(expected.tokens) else None
    return Difference(request.prompt_len + index, index, wanted, None, None, None, False, fault)


def _where(trial: Trial, backend: str | None) -> dict[str, Any]:
    return {
        "engine": trial.engine,
        "workload": trial.workload,
        "backend": backend,
        "conditions": trial.conditions,
    }
