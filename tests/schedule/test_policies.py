"""Primitives, the worked example and the budgets of every policy, step by step."""

from __future__ import annotations

import pytest
from plan_counts import counts
from schedule_ledger import Ledger, Step, one_step, run_all

from interleave.schedule.block_pool import BlockPool
from interleave.schedule.config import SchedulerConfig
from interleave.schedule.policies import chunk_len, split
from interleave.schedule.request import Request
from interleave.schedule.scheduler import Scheduler


def request(request_id: str, prompt_len: int, max_new_tokens: int = 1) -> Request:
    return Request(request_id, range(prompt_len), max_new_tokens)


def scheduler(policy: str, block_tokens: int = 64, num_blocks: int = 4096, **limits: object) -> Scheduler:
    return Scheduler(SchedulerConfig(policy, **limits), BlockPool(num_blocks, block_tokens))  # type: ignore[arg-type]


def served(steps: list[Step], request_id: str) -> list[tuple[int, int]]:
    """(start, count) of every prompt piece of one request."""
    return [(start, count) for step in steps for i, start, count in step.prefill if i == request_id]


def with_decodes(subject: Scheduler, num_rows: int, max_new_tokens: int = 64) -> Ledger:
    """A ledger whose `num_rows` requests have finished their prefill and are decoding."""
    ledger = Ledger(subject)
    for index in range(num_rows):
        one = request(f"d{index}", 1, max_new_tokens)
        subject.submit(one)
        ledger.submitted(one)
    while any(account.first_token_step is None for account in ledger.accounts.values()):
        one_step(ledger)
    return ledger


def add(ledger: Ledger, one: Request) -> None:
    ledger.scheduler.submit(one)
    ledger.submitted(one)


@pytest.mark.parametrize(
    ("remaining", "budget", "max_chunk", "expected"),
    [
        (10, 4, 8, 4),
        (10, 8, 4, 4),
        (3, 8, 4, 3),
        (10, 0, 4, 0),
        (0, 8, 4, 0),
        (10, -3, 4, 0),
        (10, -1, 4, 0),
        (4, 4, 4, 4),
    ],
)
def test_chunk_len_takes_what_fits(remaining: int, budget: int, max_chunk: int, expected: int) -> None:
    for alone in (True, False):
        assert chunk_len(remaining, budget, alone, max_chunk=max_chunk) == expected


@pytest.mark.parametrize(
    ("remaining", "budget", "alone", "expected"),
    [(10, 10, False, 10), (10, 9, False, 0), (10, 9, True, 10), (10, 0, True, 10), (10, -5, False, 0)],
)
def test_chunk_len_of_a_whole_prompt_is_all_or_nothing(
    remaining: int, budget: int, alone: bool, expected: int
) -> None:
    assert chunk_len(remaining, budget, alone, whole=True) == expected


def test_a_chunk_is_as_long_as_can_be_unless_told_otherwise() -> None:
    assert chunk_len(10**9, 10**9) == 10**9
    assert chunk_len(10, 9, whole=True) == 0  # beside others


def test_split() -> None:
    assert split(10, 4) == [(0, 4), (4, 4), (8, 2)]
    assert split(8, 4) == [(0, 4), (4, 4)]
    assert split(3, 4) == [(0, 3)]
    assert split(0, 4) == []
    assert split(3, 0) == split(3, 1) == [(0, 1), (1, 1), (2, 1)]


@pytest.mark.parametrize("policy", ["chunked", "mixed"])
def test_the_worked_example(policy: str) -> None:
    """T = 8, kappa = 4, C unbounded: the chunks of B run beside A's decodes."""
    subject = scheduler(policy, block_tokens=4, max_rows=4, token_budget=8, max_chunk=4, chunk_budget=None)
    ledger = run_all(subject, [request("A", 2, 3), request("B", 10, 1)])
    first, second, third = ledger.steps
    assert first.prefill == [("A", 0, 2), ("B", 0, 4)]
    assert (first.decode, first.num_tokens, first.sampled) == ([], 6, ["A"])
    assert (second.prefill, second.decode) == ([("B", 4, 4)], [("A", 2, 1)])
    assert (second.num_tokens, second.sampled) == (5, ["A"])
    assert (third.prefill, third.decode) == ([("B", 8, 2)], [("A", 3, 1)])
    assert (third.num_tokens, sorted(third.sampled)) == (3, ["A", "B"])
    num_forwards = [len(step.forwards) for step in ledger.steps]
    assert num_forwards == ([1, 2, 2] if policy == "chunked" else [1, 1, 1])
    # A reserves ceil(5 / 4) blocks, B ceil(11 / 4).
    assert first.num_free == 4096 - 2 - 3


def test_the_worked_example_without_chunking() -> None:
    """B does not fit beside A, so it waits and runs alone, over budget, once A has gone."""
    subject = scheduler(
        "whole", block_tokens=4, max_rows=4, order="decode_first", token_budget=8, chunk_budget=None
    )
    ledger = run_all(subject, [request("A", 2, 3), request("B", 10, 1)])
    assert [step.prefill for step in ledger.steps] == [[("A", 0, 2)], [], [], [("B", 0, 10)]]
    assert [step.decode for step in ledger.steps] == [[], [("A", 2, 1)], [("A", 3, 1)], []]
    assert [step.num_tokens for step in ledger.steps] == [2, 1, 1, 10]


@pytest.mark.parametrize("policy", ["chunked", "mixed"])
def test_a_long_prompt_starts_at_once_beside_decodes(policy: str) -> None:
    ledger = with_decodes(scheduler(policy, max_rows=4, token_budget=8, chunk_budget=None), 3)
    add(ledger, request("long", 40))
    steps = [one_step(ledger) for _ in range(4)]
    assert served(steps, "long") == [(0, 5), (5, 5), (10, 5), (15, 5)]
    assert all(len(step.decode) == 3 for step in steps)


def test_a_long_prompt_waits_for_the_decodes_under_whole() -> None:
    subject = scheduler("whole", max_rows=4, order="decode_first", token_budget=8, chunk_budget=None)
    ledger = with_decodes(subject, 3, max_new_tokens=20)
    add(ledger, request("long", 40))
    while ledger.scheduler.has_work:
        step = one_step(ledger)
        decoding = [i for i, account in ledger.accounts.items() if i != "long" and account.ended is None]
        if step.prefill:
            assert (step.prefill, step.decode, decoding) == ([("long", 0, 40)], [], [])
    assert served(ledger.steps, "long") == [(0, 40)]


@pytest.mark.parametrize(("num_decodes", "chunks"), [(8, 512), (32, 512), (128, 416)])
def test_mixed_shares_t_with_the_decodes(num_decodes: int, chunks: int) -> None:
    """T = 544, C = 512: decodes come first and chunks get the rest, at most C."""
    ledger = with_decodes(scheduler("mixed", max_rows=130, token_budget=544, chunk_budget=512), num_decodes)
    add(ledger, request("long", 2048, 4))
    step = one_step(ledger)
    assert (step.prefill, len(step.decode)) == ([("long", 0, chunks)], num_decodes)
    assert len(step.forwards) == 1


def test_mixed_runs_a_long_prompt_in_four_steps_beside_eight_decodes() -> None:
    ledger = with_decodes(scheduler("mixed", max_rows=32, token_budget=544, chunk_budget=512), 8)
    add(ledger, request("long", 2048, 4))
    steps = [one_step(ledger) for _ in range(5)]
    assert [step.num_tokens for step in steps] == [520, 520, 520, 520, 9]
    assert served(steps, "long") == split(2048, 512)
    assert [len(step.decode) for step in steps] == [8, 8, 8, 8, 9]


@pytest.mark.parametrize(("max_rows", "tokens"), [(8, 520), (32, 544)])
def test_mixed_without_a_token_budget_is_c_plus_max_rows(max_rows: int, tokens: int) -> None:
    ledger = with_decodes(scheduler("mixed", max_rows=max_rows, chunk_budget=512), max_rows - 1)
    add(ledger, request("long", 2048, 4))
    assert one_step(ledger).num_tokens == tokens - 1  # one row short of max_rows decodes


@pytest.mark.parametrize(("prompt_len", "num_chunks"), [(511, 1), (512, 1), (513, 2), (1024, 2), (1025, 3)])
@pytest.mark.parametrize("policy", ["chunked", "mixed"])
def test_chunk_counts(policy: str, prompt_len: int, num_chunks: int) -> None:
    ledger = run_all(scheduler(policy, chunk_budget=512), [request("one", prompt_len)])
    assert served(ledger.steps, "one") == split(prompt_len, 512)
    assert [step.sampled for step in ledger.steps] == [[]] * (num_chunks - 1) + [["one"]]


@pytest.mark.parametrize("policy", ["chunked", "mixed"])
def test_the_smallest_budget_still_advances(policy: str) -> None:
    """S = 1, T = 2, L = 5: two, two, one."""
    ledger = run_all(scheduler(policy, max_rows=1, token_budget=2), [request("one", 5)])
    assert served(ledger.steps, "one") == [(0, 2), (2, 2), (4, 1)]


@pytest.mark.parametrize("policy", ["chunked", "mixed"])
def test_one_row_short_of_full_leaves_two_tokens(policy: str) -> None:
    """T = S + 1 with S - 1 rows decoding: the prompt advances by two in every step."""
    ledger = with_decodes(scheduler(policy, max_rows=5, token_budget=6), 4)
    add(ledger, request("long", 9))
    steps = [one_step(ledger) for _ in range(5)]
    assert served(steps, "long") == [(0, 2), (2, 2), (4, 2), (6, 2), (8, 1)]
    assert all(len(step.decode) == 4 for step in steps)


@pytest.mark.parametrize("policy", ["chunked", "mixed"])
def test_full_house_with_one_ending(policy: str) -> None:
    """T = S + 1, S rows decode and one ends: its successor gets two tokens, never fewer than one."""
    subject = scheduler(policy, max_rows=3, token_budget=4)
    ledger = Ledger(subject)
    for one in (request("a", 1, 9), request("b", 1, 9), request("short", 1, 3), request("next", 5, 2)):
        add(ledger, one)
    while subject.has_work:
        one_step(ledger)
    assert served(ledger.steps, "next") == [(0, 2), (2, 2), (4, 1)]


@pytest.mark.parametrize("policy", ["chunked", "mixed"])
def test_three_prompts_share_t(policy: str) -> None:
    """Three prompts of 300 under T = 512: no step above it, later prompts take what is left."""
    subject = scheduler(policy, max_rows=8, token_budget=512, chunk_budget=None)
    ledger = run_all(subject, [request(name, 300, 2) for name in "abc"])
    assert ledger.steps[0].prefill == [("a", 0, 300), ("b", 0, 212)]
    assert ledger.steps[1].prefill == [("b", 212, 88), ("c", 0, 300)]
    assert all(step.num_tokens <= 512 for step in ledger.steps)


@pytest.mark.parametrize("order", ["prefill_first", "decode_first"])
@pytest.mark.parametrize("policy", ["chunked", "mixed"])
def test_chunk_budget_is_shared_first_come_first_served(policy: str, order: str) -> None:
    subject = scheduler(policy, order=order, chunk_budget=10, max_chunk=4, max_rows=8)
    ledger = run_all(subject, [request(name, 6) for name in "abcd"])
    assert ledger.steps[0].prefill == [("a", 0, 4), ("b", 0, 4), ("c", 0, 2)]
    assert ledger.steps[1].prefill == [("a", 4, 2), ("b", 4, 2), ("c", 2, 4), ("d", 0, 2)]


@pytest.mark.parametrize("policy", ["chunked", "mixed"])
def test_prefill_first_serves_the_stalest_decodes(policy: str) -> None:
    """T = 5 and chunks of 4 leave one decode a step: they take turns, and none is served twice in a round."""
    subject = scheduler(policy, order="prefill_first", max_rows=4, token_budget=5, chunk_budget=4)
    ledger = with_decodes(subject, 3)
    add(ledger, request("long", 24))
    steps = [one_step(ledger) for _ in range(6)]
    assert [step.prefill for step in steps] == [[("long", start, 4)] for start in range(0, 24, 4)]
    turns = [step.decode[0][0] for step in steps]
    assert sorted(turns[:3]) == ["d0", "d1", "d2"]
    assert turns[:3] == turns[3:]


def test_prefill_first_keeps_the_order_of_admission_where_all_have_room() -> None:
    """T = 6: chunks of 4 leave room for two decodes, so d1 is the stalest when a last chunk of 3 leaves it for all."""
    subject = scheduler("chunked", order="prefill_first", max_rows=4, token_budget=6, chunk_budget=4)
    ledger = with_decodes(subject, 3)
    add(ledger, request("long", 11))
    steps = [one_step(ledger) for _ in range(3)]
    assert [step.prefill[0][2] for step in steps] == [4, 4, 3]
    assert [i for i, _, _ in steps[2].decode] == ["d0", "d1", "d2"]


def test_prefill_first_starves_decodes_that_get_no_room() -> None:
    """T = C: as long as prompts fill it, nothing decodes. That is what the order means."""
    subject = scheduler("mixed", order="prefill_first", max_rows=4, token_budget=6, chunk_budget=6)
    ledger = with_decodes(subject, 2)
    add(ledger, request("long", 18, 2))
    assert [len(one_step(ledger).decode) for _ in range(4)] == [0, 0, 0, 3]


def test_whole_prefill_first_lets_decodes_wait() -> None:
    ledger = with_decodes(scheduler("whole", max_rows=8, chunk_budget=16), 3)
    for one in (request("p", 10), request("q", 6), request("r", 1), request("big", 40)):
        add(ledger, one)
    steps = [one_step(ledger) for _ in range(4)]
    assert [step.prefill for step in steps] == [
        [("p", 0, 10), ("q", 0, 6)],
        [("r", 0, 1)],
        [("big", 0, 40)],
        [],
    ]
    assert [len(step.decode) for step in steps] == [0, 0, 0, 3]


def test_whole_decode_first_joins_prompts_that_fit() -> None:
    subject = scheduler("whole", order="decode_first", max_rows=8, token_budget=16, chunk_budget=12)
    ledger = with_decodes(subject, 5)
    for one in (request("fits", 6), request("full", 6), request("small", 1)):
        add(ledger, one)
    step = one_step(ledger)
    # T leaves 11 and C would allow 12: `full` would make 12, and `small` does not overtake it.
    assert (step.prefill, len(step.decode)) == ([("fits", 0, 6)], 5)
    assert one_step(ledger).prefill == [("full", 0, 6), ("small", 0, 1)]


@pytest.mark.parametrize("policy", ["padded", "static"])
def test_a_group_is_all_that_was_admitted(policy: str) -> None:
    """No budget cuts a group: its prompts run in one forward, padded to the widest, and all decodes wait."""
    subject = scheduler(policy, max_rows=3)
    for name, prompt_len in (("a", 700), ("b", 3), ("c", 50), ("d", 5)):
        subject.submit(request(name, prompt_len, 2))
    plan = subject.plan()
    assert plan.padded
    assert plan.composition() == ((("a", 0, 700), ("b", 0, 3), ("c", 0, 50)),)
    assert plan.num_padded_tokens == 3 * 700 - 753
    subject.commit(plan, dict.fromkeys("abc", 0))
    plan = subject.plan()
    assert (plan.padded, plan.num_padded_tokens, counts(plan)) == (False, 0, (0, 3))


def test_static_holds_its_batch_to_the_end() -> None:
    """Rows that ended stay and are computed for nothing; the next batch starts when the last one ends."""
    subject = scheduler("static", max_rows=2)
    ledger = run_all(subject, [request("short", 4, 1), request("long", 2, 4), request("next", 3, 1)])
    assert [step.admitted for step in ledger.steps] == [["short", "long"], [], [], [], ["next"]]
    assert [len(step.decode) for step in ledger.steps] == [0, 2, 2, 2, 0]


@pytest.mark.parametrize("policy", ["chunked", "mixed"])
def test_a_row_that_ends_is_no_prefill_beside_one(policy: str) -> None:
    """A row's end beside a prompt in progress: neither that step nor the next takes it for a prefill."""
    subject = scheduler(policy, max_rows=4, chunk_budget=4)
    for one in (request("a", 2, 3), request("b", 13, 2)):
        subject.submit(one)
    seen = []
    while subject.has_work:
        plan = subject.plan()
        targets = {row.request_id: row.prefill_target for row in subject.rows}
        assert targets == {i: {"a": 2, "b": 13}[i] for i in targets}, "prefill_target moves"
        seen.append(counts(plan))
        yields = {p.row.request_id: 0 for f in plan.forwards for p in f if p.yields_token}
        subject.commit(plan, yields)
    assert seen == [(4, 0), (4, 1), (4, 1), (3, 0), (0, 1)]
