"""A second set of books: what every step of any policy must satisfy, kept apart from the scheduler's own.

The ledger is told of submissions, aborts, plans and commits. It keeps its own count of what each
request has computed and emitted, and judges a plan by start and count alone, never by what a row
says of itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from interleave.schedule.config import SchedulerConfig
from interleave.schedule.plan import StepPlan
from interleave.schedule.policies import UNBOUNDED
from interleave.schedule.request import Request
from interleave.schedule.scheduler import Committed, Scheduler

GROUP_POLICIES = ("padded", "static")
TokenOf = Callable[[str, int], int]
"""(request id, how many it has emitted) -> the token that the model would sample next."""


@dataclass(slots=True)
class Account:
    """One request: prefill positions computed so far and wanted, tokens emitted, and how it ended."""

    request: Request
    prefill_target: int
    num_prefilled: int = 0
    emitted: list[int] = field(default_factory=list)
    admit_step: int | None = None
    first_token_step: int | None = None
    last_served: int = -1
    preempted: bool = False  # admitted once, and waiting again
    done: bool = False  # its last token is out; a static batch may still hold it
    ended: str | None = None

    @property
    def known_len(self) -> int:
        return self.request.prompt_len + len(self.emitted)

    @property
    def is_decoding(self) -> bool:
        return self.num_prefilled == self.prefill_target


@dataclass(slots=True)
class Step:
    """A step as seen from outside: (id, start, count) of prompt pieces and of decodes, in plan order."""

    admitted: list[str]
    forwards: list[list[tuple[str, int, int]]]
    prefill: list[tuple[str, int, int]]
    decode: list[tuple[str, int, int]]
    sampled: list[str]
    num_free: int
    preempted: list[str] = field(default_factory=list)
    resumed: list[str] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        return sum(count for _, _, count in self.prefill + self.decode)


class Ledger:
    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.config: SchedulerConfig = scheduler.config
        self.accounts: dict[str, Account] = {}
        self.queue: list[str] = []  # submitted, neither admitted nor aborted, in order
        self.put_back: list[str] = []  # preempted and waiting, in order
        self.last_entry = -UNBOUNDED  # the last step that let somebody in
        self.steps: list[Step] = []

    def submitted(self, request: Request) -> None:
        self.accounts[request.request_id] = Account(request, request.prompt_len)
        self.queue.append(request.request_id)

    def ended(self, request_id: str, reason: str) -> None:
        account = self.accounts[request_id]
        assert account.ended is None, f"{request_id} ended {account.ended}, then {reason}"
        account.ended = reason
        for waiting in (self.queue, self.put_back):
            if request_id in waiting:
                waiting.remove(request_id)

    def running(self) -> list[Account]:
        """Admitted, not ended and not preempted, in order of admission."""
        live = [
            a
            for a in self.accounts.values()
            if a.admit_step is not None and a.ended is None and not a.preempted
        ]
        order = {row.request_id: index for index, row in enumerate(self.scheduler.rows)}
        return sorted(live, key=lambda account: order[account.request.request_id])

    def planned(self, plan: StepPlan) -> Step:
        """Judge a plan before it is committed."""
        if self.config.allocation == "reserve":
            assert not plan.preempted
            assert not plan.resumed
            self._admission(plan)
            self._reserved(plan)
        else:
            self._resumption(plan)
            self._admission(plan)
            self._preemption(plan)
            self._grown(plan)
        step = self._pieces(plan)
        self._layout(step)
        self._within_limits(step)
        self._nobody_forgotten(step)
        self.steps.append(step)
        return step

    def _admission(self, plan: StepPlan) -> None:
        admitted = [row.request_id for row in plan.admitted]
        assert admitted == self.queue[: len(admitted)], "admission out of FCFS order"
        del self.queue[: len(admitted)]
        for request_id in admitted:
            self.accounts[request_id].admit_step = plan.step
        assert not (admitted and self.put_back), "somebody overtook a preempted row"
        if admitted:
            self.last_entry = plan.step

    def _reserved(self, plan: StepPlan) -> None:
        """Every row holds all that it can need, and the head of the queue waits for blocks or a row."""
        admitted, pool, rows = plan.admitted, self.scheduler.pool, self.scheduler.rows
        for row in rows:
            assert len(row.blocks) == -(-row.request.total_len // pool.block_tokens), "not reserved in full"
        if self.config.policy == "static" and admitted:
            assert len(admitted) == len(rows), "a static batch takes nobody aboard on its way"
        may_admit = self.config.policy != "static" or len(admitted) == len(rows)
        if self.queue and may_admit:
            head = self.accounts[self.queue[0]].request
            need = -(-head.total_len // pool.block_tokens)
            assert len(rows) == self.config.max_rows or need > pool.num_free, "the head waits for nothing"

    def _resumption(self, plan: StepPlan) -> None:
        resumed = [row.request_id for row in plan.resumed]
        assert resumed == self.put_back[: len(resumed)], "rows come back out of order"
        del self.put_back[: len(resumed)]
        for request_id in resumed:
            self.accounts[request_id].preempted = False
        if resumed:
            self.last_entry = plan.step

    def _preemption(self, plan: StepPlan) -> None:
        """Youngest first, never the only one, never soon after an admission, and nothing is held back."""
        order = [i for i, a in self.accounts.items() if a.admit_step is not None and a.ended is None]
        running = [i for i in order if not self.accounts[i].preempted]
        for gone in plan.preempted:
            assert gone.row.request_id == running.pop(), "not the youngest"
            assert running, "the oldest row gave way"
            account = self.accounts[gone.row.request_id]
            assert len(gone.blocks) == -(-gone.num_computed // self.scheduler.pool.block_tokens)
            assert gone.num_computed >= account.num_prefilled
            account.preempted, account.num_prefilled = True, 0
            account.prefill_target = account.known_len - (1 if account.emitted else 0)
            self.put_back.insert(0, gone.row.request_id)
        if plan.preempted:
            assert plan.step > self.last_entry + self.scheduler.pool.block_tokens, "preempted at once"
        assert [row.request_id for row in self.scheduler.rows] == running

    def _grown(self, plan: StepPlan) -> None:
        """Every row holds just what its computed positions and its piece need; the head waits for a reason."""
        pool, rows = self.scheduler.pool, self.scheduler.rows
        stops = {row.request_id: row.num_computed for row in rows}
        stops |= {p.row.request_id: p.stop for forward in plan.forwards for p in forward}
        for row in rows:
            assert len(row.blocks) == -(-stops[row.request_id] // pool.block_tokens)
        waiting = self.put_back or self.queue
        if waiting and not plan.preempted and len(rows) < self.config.max_rows:
            everyone = [self.accounts[i] for i in (*stops, waiting[0])]
            claims = [
                min(a.known_len + pool.block_tokens, a.request.total_len) for a in everyone
            ]  # in positions
            assert sum(-(-claim // pool.block_tokens) for claim in claims) > pool.num_blocks, "held back"

    def _pieces(self, plan: StepPlan) -> Step:
        """Sort pieces into prompt and decode by position; each must be the one that is due."""
        step = Step([row.request_id for row in plan.admitted], [], [], [], [], self.scheduler.pool.num_free)
        step.preempted = [gone.row.request_id for gone in plan.preempted]
        step.resumed = [row.request_id for row in plan.resumed]
        served: set[str] = set()
        for forward in plan.forwards:
            assert forward, "an empty forward"
            step.forwards.append([(p.row.request_id, p.start, p.num_tokens) for p in forward])
            for request_id, start, count in step.forwards[-1]:
                account = self.accounts[request_id]
                assert account.admit_step is not None
                assert account.ended is None
                assert not account.preempted
                assert request_id not in served, "two pieces of one request in a step"
                served.add(request_id)
                assert count >= 1, "an empty piece"
                if not account.is_decoding:
                    assert start == account.num_prefilled, "a prompt position skipped or computed twice"
                    assert start + count <= account.prefill_target
                    step.prefill.append((request_id, start, count))
                    if start + count == account.known_len and not account.done:
                        step.sampled.append(request_id)
                else:
                    assert (start, count) == (account.known_len - 1, 1), "a decode out of place"
                    assert account.first_token_step is not None
                    assert account.first_token_step < plan.step, "decodes in the step of its first token"
                    step.decode.append((request_id, start, count))
                    if not account.done:
                        step.sampled.append(request_id)
        return step

    def _layout(self, step: Step) -> None:
        """How a policy may arrange pieces in forwards."""
        prefill, decode = set(step.prefill), set(step.decode)
        kinds = [
            {"prefill" if p in prefill else "decode" if p in decode else "?" for p in f}
            for f in step.forwards
        ]
        if self.config.policy == "mixed":
            assert len(kinds) <= 1
            if step.decode and step.prefill:
                assert step.forwards[0][: len(step.decode)] == step.decode, "decodes come first"
        elif self.config.policy in GROUP_POLICIES:
            assert kinds in ([], [{"prefill"}], [{"decode"}])
        else:
            assert kinds in ([], [{"prefill"}], [{"decode"}], [{"prefill"}, {"decode"}])

    def _within_limits(self, step: Step) -> None:
        """T, C and kappa. A group knows no limit; `whole` may exceed them only with one prompt alone."""
        config = self.config
        if config.policy in GROUP_POLICIES:
            return
        max_tokens, max_prompt, max_piece = budgets(config)
        prompt_tokens = sum(count for _, _, count in step.prefill)
        if config.policy == "whole":
            assert all(
                start == 0 and count == self.accounts[i].prefill_target for i, start, count in step.prefill
            ), "a prompt in pieces"
            if len(step.prefill) == 1 and not step.decode:
                return
        else:
            assert all(count <= max_piece for _, _, count in step.prefill)
        assert prompt_tokens <= max_prompt
        assert step.num_tokens <= max_tokens

    def _nobody_forgotten(self, step: Step) -> None:
        """Under decode-first every decode runs, and chunks go first come first served, none held back."""
        config = self.config
        running = self.running()
        assert not running or step.forwards, "a step that does nothing"
        if config.policy in ("chunked", "mixed", "whole") and not prefill_first(config):
            decoding = {a.request.request_id for a in running if a.is_decoding}
            assert {i for i, _, _ in step.decode} == decoding, "a decode left out under decode-first"
        if config.policy not in ("chunked", "mixed"):
            return
        if prefill_first(config):
            self._stalest_first(step)
        max_tokens, max_prompt, max_piece = budgets(config)
        others = len(step.decode) if not prefill_first(config) else 0
        budget = min(max_prompt, max_tokens - others)
        expected = []
        for account in running:
            remaining = account.prefill_target - account.num_prefilled
            count = min(remaining, max_piece, budget)
            if count > 0:
                expected.append((account.request.request_id, account.num_prefilled, count))
                budget -= count
        assert step.prefill == expected

    def _stalest_first(self, step: Step) -> None:
        """Under prefill-first the decodes fill what T leaves, least recently served first."""
        prompt_tokens = sum(count for _, _, count in step.prefill)
        decoding = [a for a in self.running() if a.is_decoding]
        assert len(step.decode) == min(len(decoding), budgets(self.config)[0] - prompt_tokens)
        served = {i for i, _, _ in step.decode}
        stalest_left = min(
            (a.last_served for a in decoding if a.request.request_id not in served), default=UNBOUNDED
        )
        assert all(self.accounts[i].last_served <= stalest_left for i in served)

    def committed(self, step: Step, committed: Committed) -> None:
        """Judge what a commit brought about, then check the scheduler's own invariants."""
        assert sorted(i for i, _ in committed.tokens) == sorted(step.sampled), "tokens from the wrong pieces"
        for request_id, _, count in step.prefill:
            self.accounts[request_id].num_prefilled += count
        for request_id, _, _ in step.prefill + step.decode:
            self.accounts[request_id].last_served = self.scheduler.step - 1
        for request_id, token in committed.tokens:
            account = self.accounts[request_id]
            account.emitted.append(token)
            if account.first_token_step is None:
                account.first_token_step = self.scheduler.step - 1
            stopped = token in account.request.stop_ids
            account.done = stopped or len(account.emitted) == account.request.max_new_tokens
        for row in committed.released:
            account = self.accounts[row.request_id]
            assert account.done, "released before its end"
            stopped = account.emitted[-1] in account.request.stop_ids
            assert row.finish_reason == ("stop" if stopped else "length")
            assert row.emitted == account.emitted
            self.ended(row.request_id, str(row.finish_reason))
        if self.config.policy != "static":
            assert not any(account.done for account in self.running()), "an ended row keeps its blocks"
        self.conserved()

    def conserved(self) -> None:
        """free + owned = P, each block owned by one live row; ids live exactly until they end."""
        self.scheduler.check()
        pool = self.scheduler.pool
        owned = [block for row in self.scheduler.rows for block in row.blocks]
        assert len(owned) == len(set(owned))
        assert len(owned) + pool.num_free == pool.num_blocks
        live = {i for i, account in self.accounts.items() if account.ended is None}
        assert set(self.scheduler.live_ids) == live


def prefill_first(config: SchedulerConfig) -> bool:
    default = config.policy in ("whole", *GROUP_POLICIES)
    return default if config.order is None else config.order == "prefill_first"


def budgets(config: SchedulerConfig) -> tuple[int, int, int]:
    """T, C, kappa as the glossary defines them: T of `mixed` is C + max_rows, kappa is C."""
    chunk = config.chunk_budget if config.chunk_budget is not None else UNBOUNDED
    tokens = config.token_budget
    if tokens is None:
        tokens = chunk + config.max_rows if config.policy == "mixed" else UNBOUNDED
    return tokens, chunk, config.max_chunk if config.max_chunk is not None else chunk


def most_steps(config: SchedulerConfig, requests: Sequence[Request]) -> int:
    """A step computes a position at least. Under progressive allocation a preemption costs up to all of them
    once more, and comes only after somebody has emitted a token."""
    positions = 2 + sum(request.total_len for request in requests)
    if config.allocation == "reserve":
        return positions
    return positions * (1 + sum(request.max_new_tokens for request in requests))


def one_step(ledger: Ledger, token_of: TokenOf = lambda request_id, index: 0) -> Step:
    """Plan, judge, commit with `token_of` as the model, judge again."""
    scheduler = ledger.scheduler
    plan = scheduler.plan()
    step = ledger.planned(plan)
    tokens = {i: token_of(i, len(ledger.accounts[i].emitted)) for i in step.sampled}
    # A held row of a static batch is computed again; its model answers too, and nobody listens.
    tokens |= {i: -1 for i, _, _ in step.decode if i not in tokens}
    ledger.committed(step, scheduler.commit(plan, tokens))
    return step


def run_all(
    scheduler: Scheduler, requests: Sequence[Request], token_of: TokenOf = lambda request_id, index: 0
) -> Ledger:
    """Submit everything at once and run to the end."""
    ledger = Ledger(scheduler)
    for request in requests:
        scheduler.submit(request)
        ledger.submitted(request)
    limit = most_steps(scheduler.config, requests)
    while scheduler.has_work:
        one_step(ledger, token_of)
        assert len(ledger.steps) <= limit, "does not end"
    return ledger
