"""A machine that submits, aborts, steps and breaks a real engine on tiny weights, and simulated ones beside it.

The ledger judges every plan (see `life_cycle`); the simulators, told the same, must plan and report the same; every
token must be that of a plain loop over the request alone. Memory starts as NaN and becomes it again when it falls
free, so that a position that is read without having been written ends a run.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any, ClassVar

import pytest
import torch
from breakable import PLACES, Breakable, Fault, left_behind
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from life_cycle import LIMITS, LifeCycle, limits
from predicted_twin import Watched, reported, twin
from tiny_engines import CHUNKING, engine, logits_in_one_pass, prompt, tiny

from interleave.engine.batched import EngineFault, StepOutcome
from interleave.engine.build import ENGINES
from interleave.engine.executor import BatchExecutor
from interleave.model.decoder import Decoder
from interleave.model.sampling import new_generator, sample
from interleave.schedule.request import GREEDY, Request, SamplingParams

LONGEST_PROMPT, LONGEST_ANSWER = 20, 16
SAMPLINGS = (GREEDY, GREEDY, SamplingParams(0.9, 0.95, seed=1), SamplingParams(1.5, 1.0, seed=2))
ERRORS = (FloatingPointError, MemoryError, torch.OutOfMemoryError, KeyboardInterrupt)


@cache
def answer(prompt_len: int, sampling: SamplingParams) -> list[int]:
    """What a plain loop over the whole sequence gives: no cache, no batch, no engine."""
    ids, generator = list(prompt(prompt_len)), new_generator(sampling)
    for _ in range(LONGEST_ANSWER):
        logits = logits_in_one_pass(plain(), ids)[-1:]
        ids.append(int(sample(logits, [sampling], [generator])[0]))
    return ids[prompt_len:]


@cache
def breakable(fast: bool) -> Breakable:
    """Tiny weights by the machine's fast kernels, which compile for each new number of rows, or by torch."""
    return Breakable(tiny() if fast else plain())


@cache
def plain() -> Decoder:
    return Decoder(tiny().config, tiny().weights)


class Serving(LifeCycle):
    """fast_too: draw for each sequence whose kernels compute. counts: of all that have run so far, by what happened."""

    fast_too: ClassVar[bool] = False
    counts: ClassVar[Counter[str]] = Counter()

    @initialize(
        name=st.sampled_from(list(ENGINES)),
        fast=st.booleans(),
        max_chunk=st.none() | st.integers(1, 9),
        recorded_tokens=st.integers(1, 40),
        stops=st.booleans(),
        **LIMITS,
    )
    def start(
        self,
        name: str,
        fast: bool,
        max_chunk: int | None,
        recorded_tokens: int,
        stops: bool,
        num_blocks: int,
        block_tokens: int,
        **choices: Any,
    ) -> None:
        spec = ENGINES[name]
        fast = fast and self.fast_too
        self.decoder = breakable(fast)
        self.decoder.fault = None
        settings = limits(spec.policy, **choices)
        if spec.kv != "blocks":
            settings["allocation"] = "reserve"
        subject = engine(
            name,
            self.decoder,
            **settings,
            max_chunk=max_chunk if name in CHUNKING else None,
            num_blocks=num_blocks,
            block_tokens=block_tokens,
            backend="cpu" if fast else "reference",
            max_request_tokens=30,
            poison_freed=True,
            **({"recorded_tokens": recorded_tokens} if spec.recorded else {}),
        )
        self.subject: Any = subject.executor
        if isinstance(self.subject, BatchExecutor):
            self.subject.cache.poison(list(range(self.subject.cache.num_blocks)))
            if self.subject.recorded is not None:
                self.subject.recorded._say = lambda line: None
        self.stops = stops
        # Of two predictions the second looks ahead, which no request with stop ids allows.
        self.others = [twin(subject, look_ahead) for look_ahead in ((False,) if stops else (False, True))]
        subject.executor = self.real = Watched(self.subject)
        self.begin(subject, *self.others)
        self.counts["sequences"] += 1

    @rule(
        prompt_len=st.integers(1, LONGEST_PROMPT),
        budget=st.integers(1, LONGEST_ANSWER),
        sampling=st.sampled_from(SAMPLINGS),
        stop=st.integers(0, LONGEST_ANSWER),
    )
    def submit(self, prompt_len: int, budget: int, sampling: SamplingParams, stop: int) -> None:
        """stop: where in the answer its stop id stands first, if it has one."""
        ids = frozenset(answer(prompt_len, sampling)[stop : stop + 1]) if self.stops else frozenset()
        request = Request(f"r{self.count}", prompt(prompt_len), budget, ids, sampling=sampling)
        pool = self.engine.scheduler.pool
        fits = request.total_len <= min(30, pool.num_blocks * pool.block_tokens)
        self.take(request, refusal=None if fits else "can never fit")

    @rule()
    def submit_what_nobody_can_serve(self) -> None:
        self.take(Request(f"r{self.count}", [512], 1), refusal="token id 512 is outside the vocabulary")

    @precondition(lambda self: self.engine.has_work)
    @rule(times=st.integers(1, 8))
    def step(self, times: int) -> None:
        for _ in range(times):
            if self.engine.has_work:
                self.step_all(None)

    @precondition(lambda self: self.engine.has_work)
    @rule(
        rare=st.integers(0, 9),
        place=st.sampled_from(PLACES),
        nth=st.sampled_from([1, 1, 2]),
        error=st.sampled_from(ERRORS),
    )
    def fault(self, rare: int, place: str, nth: int, error: type[BaseException]) -> None:
        """A second forward, or a second use of the head, does not come in every step. Rare, since it ends all
        requests: between faults rows have to grow until the pool is full."""
        self.step_all(Fault(place, nth, error("told to fail")) if rare == 9 else None)

    def step_all(self, fault: Fault | None) -> None:
        live = set(self.engine.scheduler.live_ids)
        self.decoder.fault = fault
        self.counts["steps"] += 1
        try:
            outcome = self.engine.step()
        except (EngineFault, KeyboardInterrupt) as raised:
            cause = raised.__cause__ if isinstance(raised, EngineFault) else raised
            if fault is None or not fault.came:
                raise
            assert cause is fault.error or fault.place == "nan"
            self.failed(live, raised)
            self.follow_fault(raised)
        else:
            self.counts["preemptions"] += len(outcome.plan.preempted)
            self.check_tokens(outcome)
            self.stepped(outcome)
            self.follow(outcome)
        finally:
            self.decoder.fault = None

    def check_tokens(self, outcome: StepOutcome) -> None:
        for request_id, token in outcome.tokens:
            account = self.ledger.accounts[request_id]
            right = answer(account.request.prompt_len, account.request.sampling)
            assert token == right[len(account.emitted)], f"{request_id}: token {len(account.emitted)}"

    def follow(self, outcome: StepOutcome) -> None:
        """Every simulator takes the step that the engine has taken."""
        for other in self.others:
            other.watched.tokens = self.real.computed if self.stops else None
            theirs = other.step()
            assert other.watched.planned == self.real.planned
            assert reported(theirs) == reported(outcome)
        assert len({other.watched.inner.clock.ticks for other in self.others}) == 1

    def follow_fault(self, raised: BaseException) -> None:
        for other in self.others:
            other.watched.fault = ArithmeticError("told to fail")
            with pytest.raises(EngineFault, match="told to fail") as caught:
                other.step()
            other.watched.fault = None
            assert other.watched.planned == self.real.planned
            if isinstance(raised, EngineFault):
                assert caught.value.failed_ids == raised.failed_ids

    def finish(self) -> None:
        self.step_all(None)

    @invariant()
    def conserved(self) -> None:
        super().conserved()
        assert left_behind(self.engine, self.subject) == []
        ids = self.engine.scheduler.live_ids
        assert all(other.scheduler.live_ids == ids for other in self.others)
        assert all(not (other.watched.inner._tokens.keys() - set(ids)) for other in self.others)

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "ledger"):
            self.counts.update(f"{account.ended} ends" for account in self.ledger.accounts.values())
