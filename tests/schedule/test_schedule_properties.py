"""Random requests, limits, policies and orders: the ledger accepts every step, and nobody starves.

Within limits means, for `chunked` and `mixed`: at most T query positions and C prompt positions in
every step, at most kappa of one prompt. `whole` exceeds T or C only in a step that holds one prompt
and nothing else. A group (`padded`, `static`) has no limit but admission.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_ledger import GROUP_POLICIES, Ledger, most_steps, one_step, prefill_first

from interleave.schedule.allocation import ALLOCATIONS
from interleave.schedule.block_pool import BlockPool, need_blocks
from interleave.schedule.config import SchedulerConfig
from interleave.schedule.policies import POLICIES
from interleave.schedule.request import Request
from interleave.schedule.scheduler import Scheduler

STOP = 1


@dataclass(frozen=True)
class Case:
    config: SchedulerConfig
    num_blocks: int
    block_tokens: int
    requests: list[Request]
    arrivals: list[int]  # the step before which each is submitted
    stops: dict[str, int]  # request id -> tokens after which the model says STOP

    def token_of(self, request_id: str, index: int) -> int:
        return STOP if self.stops.get(request_id) == index else 0


@st.composite
def configs(draw: st.DrawFn) -> SchedulerConfig:
    policy = draw(st.sampled_from(sorted(POLICIES)))
    max_rows = draw(st.integers(1, 6))
    group = policy in GROUP_POLICIES
    return SchedulerConfig(
        policy,
        order=None if group else draw(st.sampled_from([None, "decode_first", "prefill_first"])),
        chunk_budget=draw(st.none() | st.integers(1, 20)),
        max_chunk=draw(st.none() | st.integers(1, 20)) if policy in ("chunked", "mixed") else None,
        token_budget=None if group else draw(st.none() | st.integers(max_rows + 1, max_rows + 20)),
        max_rows=max_rows,
        allocation="reserve" if policy == "static" else draw(st.sampled_from(sorted(ALLOCATIONS))),
    )


@st.composite
def cases(draw: st.DrawFn, config: st.SearchStrategy[SchedulerConfig]) -> Case:
    block_tokens = draw(st.integers(1, 8))
    lengths = draw(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 8)), min_size=1, max_size=12))
    requests = [
        Request(f"r{index}", range(prompt_len), budget, stop_ids=frozenset({STOP}))
        for index, (prompt_len, budget) in enumerate(lengths)
    ]
    widest = max(need_blocks(request.total_len, block_tokens) for request in requests)
    stops = {
        request.request_id: draw(st.integers(0, request.max_new_tokens - 1))
        for request in requests
        if draw(st.booleans())
    }
    return Case(
        config=draw(config),
        num_blocks=draw(st.integers(widest, 3 * widest)),
        block_tokens=block_tokens,
        requests=requests,
        arrivals=sorted(draw(st.lists(st.integers(0, 30), min_size=len(requests), max_size=len(requests)))),
        stops=stops,
    )


def serve(case: Case) -> Ledger:
    """Run the case to its end, each step judged by the ledger, within a bounded number of steps."""
    scheduler = Scheduler(case.config, BlockPool(case.num_blocks, case.block_tokens))
    ledger = Ledger(scheduler)
    limit = max(case.arrivals) + most_steps(case.config, case.requests)
    arrived = clock = 0
    while arrived < len(case.requests) or scheduler.has_work:
        while arrived < len(case.requests) and case.arrivals[arrived] <= clock:
            scheduler.submit(case.requests[arrived])
            ledger.submitted(case.requests[arrived])
            arrived += 1
        if scheduler.has_work:
            one_step(ledger, case.token_of)
        clock += 1
        assert clock <= limit + 1, "does not end"
    return ledger


@settings(max_examples=80)
@given(cases(configs()))
def test_every_step_is_sound(case: Case) -> None:
    ledger = serve(case)
    for request in case.requests:
        account = ledger.accounts[request.request_id]
        stop_at = case.stops.get(request.request_id)
        assert account.num_prefilled == account.prefill_target
        assert account.ended == ("length" if stop_at is None else "stop")
        assert len(account.emitted) == (request.max_new_tokens if stop_at is None else stop_at + 1)
    admits = [ledger.accounts[request.request_id].admit_step for request in case.requests]
    assert admits == sorted(admits)  # type: ignore[type-var]
    assert ledger.scheduler.pool.num_free == case.num_blocks


@settings(max_examples=50)
@given(cases(configs().filter(lambda config: not prefill_first(config))))
def test_nobody_starves_under_decode_first(case: Case) -> None:
    """A request ends within as many steps as it and everyone before it have positions.

    In every step the earliest unfinished request advances: it is the first prompt in line, and T
    leaves at least one position beside a full house of decodes. Latecomers cannot hold it up. Nor is it
    ever preempted, for it is the oldest; what it lost before that counts from when it became so.
    """
    ledger = Ledger(Scheduler(case.config, BlockPool(case.num_blocks, case.block_tokens)))
    for request in case.requests:
        ledger.scheduler.submit(request)
        ledger.submitted(request)
    ended_at: dict[str, int] = {}
    while ledger.scheduler.has_work:
        one_step(ledger, case.token_of)
        for request_id, account in ledger.accounts.items():
            if account.ended and request_id not in ended_at:
                ended_at[request_id] = len(ledger.steps)
    positions = 0
    for request in case.requests:
        positions += request.total_len - 1  # the newest token is never computed
        assert ended_at[request.request_id] <= positions


@settings(max_examples=20)
@given(cases(configs()))
def test_the_same_input_gives_the_same_plans(case: Case) -> None:
    first, second = serve(case), serve(case)
    assert first.steps == second.steps
