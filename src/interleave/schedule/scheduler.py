"""Admission, planning and bookkeeping: decides, and leaves computing and timing to others.

Reserve on admit: a request is admitted only when every block it can ever need is free, so nothing
runs out mid-generation. Strict FCFS: the head of the queue blocks those behind it. `release` is
the only way out for blocks. Imports no torch and reads no clock, so the same object drives an
engine and a simulation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from interleave.schedule.block_pool import BlockPool, need_blocks
from interleave.schedule.booking import book
from interleave.schedule.config import SchedulerConfig
from interleave.schedule.lockstep import Lockstep
from interleave.schedule.plan import StepPlan
from interleave.schedule.policies import POLICIES
from interleave.schedule.recurrence import recurrences
from interleave.schedule.request import Request
from interleave.schedule.row import Row
from interleave.schedule.tpot_target import TpotTarget


@dataclass(slots=True)
class Committed:
    """What a step brought about: tokens emitted, and rows that gave their blocks back, with these."""

    tokens: Sequence[tuple[str, int]]
    released: list[Row]
    freed: list[list[int]]


class Scheduler:
    """Owns the waiting queue, the rows and the pool.

    look_ahead: count in each plan how often it recurs (`StepPlan.repeats`), for an executor that only
    predicts and can book several steps at once. It samples placeholders: every token is 0, and a
    request with stop ids is refused.
    tpot: lets the chunk budget follow from a target for the time of a step, with C as its most.
    Raises ValueError for a target with a policy that cuts no prompts.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        pool: BlockPool,
        *,
        look_ahead: bool = False,
        tpot: TpotTarget | None = None,
    ) -> None:
        if tpot is not None and config.policy not in ("chunked", "mixed"):
            raise ValueError(f"tpot_target_s does not apply to policy {config.policy!r}: it cuts no prompt")
        self._tpot = tpot
        self.config = config
        self.look_ahead = look_ahead
        self.pool = pool
        self.step = 0
        self.waiting: deque[Request] = deque()
        self._rows: list[Row] = []
        self._num_admitted = 0
        # Rows of a static batch are held after their end, so they don't move together.
        self._lockstep = Lockstep() if look_ahead and config.policy != "static" else None
        self._policy = POLICIES[config.policy]
        self._limits = config.limits
        self._live: set[str] = set()

    @property
    def rows(self) -> list[Row]:
        """Admitted and not ended, in order of admission."""
        if self._lockstep is not None:
            self._lockstep.write_all()
        return self._rows

    @property
    def has_work(self) -> bool:
        return bool(self.waiting or self._rows)

    @property
    def live_ids(self) -> list[str]:
        """Ids of every request that waits or runs, rows first."""
        return [row.request_id for row in self._rows] + [request.request_id for request in self.waiting]

    def submit(self, request: Request) -> None:
        """Queue a request. ValueError, holding nothing, for one that is a duplicate or can never fit."""
        self.validate(request)
        if request.request_id in self._live:
            raise ValueError(f"request id {request.request_id!r} is already live")
        self._live.add(request.request_id)
        self.waiting.append(request)

    def validate(self, request: Request) -> None:
        """ValueError for a request that these limits and this pool can never serve."""
        if self.look_ahead and request.stop_ids:
            raise ValueError(
                f"request {request.request_id!r} has stop ids: a prediction cannot tell when one is sampled"
            )
        longest = self.config.max_request_tokens
        if longest is not None and request.total_len > longest:
            raise ValueError(
                f"request {request.request_id!r} can never fit: prompt {request.prompt_len} + max_new_tokens "
                f"{request.max_new_tokens} = {request.total_len} tokens, the limit is {longest}"
            )
        need = need_blocks(request.total_len, self.pool.block_tokens)
        if need > self.pool.num_blocks:
            raise ValueError(
                f"request {request.request_id!r} can never fit: it needs {need} blocks of "
                f"{self.pool.block_tokens} tokens, the pool has {self.pool.num_blocks}"
            )

    def plan(self) -> StepPlan:
        """Admit what fits, then let the policy choose the next step's forwards."""
        admitted = self._admit() if self.waiting else ()
        prefilling, decoding = self._by_phase()
        if self._tpot is None:
            forwards = self._policy(prefilling, decoding, self._limits)
        else:
            forwards = self._tpot.plan(self._policy, prefilling, decoding, self._limits)
        padded = bool(prefilling) and self.config.policy in ("padded", "static")
        if not self.look_ahead:
            return StepPlan(self.step, admitted, forwards, padded)
        full = bool(self.waiting) or len(self._rows) >= self.config.max_rows
        # A budget that follows the time of a step shrinks as the history of a prompt grows.
        fixed = self._tpot is None or not prefilling
        repeats = recurrences(forwards, decoding) if fixed else 1
        return StepPlan(self.step, admitted, forwards, padded, repeats, full)

    def _by_phase(self) -> tuple[list[Row], Sequence[Row]]:
        """(prefilling, decoding), each in order of admission. Row.is_prefilling, without a call for each."""
        if self._lockstep is not None:
            if len(self._lockstep) == len(self._rows):
                return [], self._lockstep
            return [row for row in self._rows if row.num_computed < row.prefill_target], self._lockstep
        prefilling = [row for row in self._rows if row.num_computed < row.prefill_target]
        if not prefilling:
            return prefilling, self._rows
        return prefilling, [row for row in self._rows if row.num_computed >= row.prefill_target]

    def _admit(self) -> tuple[Row, ...]:
        if self.config.policy == "static" and self._rows:
            return ()
        admitted = []
        while self.waiting and len(self._rows) < self.config.max_rows:
            request = self.waiting[0]
            need = need_blocks(request.total_len, self.pool.block_tokens)
            if need > self.pool.num_free:
                break
            self.waiting.popleft()
            blocks = self.pool.allocate(need, request.request_id)
            row = Row(request, blocks, self.step, request.prompt_len, number=self._num_admitted)
            self._num_admitted += 1
            self._rows.append(row)
            admitted.append(row)
        return tuple(admitted)

    def commit(self, plan: StepPlan, tokens: Mapping[str, int], repeats: int = 1) -> Committed:
        """Book a computed step: `tokens` holds the sampled token of every piece that yields one.

        repeats: book the plan so many times in a row (at most `plan.repeats`), the same token each
        time. KeyError, with nothing booked, when a token is missing.
        """
        booked = book(plan, tokens, repeats, self._lockstep)
        self.step += repeats
        released, freed = self._release_ended(booked.ended) if booked.ended else ([], [])
        return Committed(booked.tokens, released, freed)

    def _release_ended(self, ended: list[Row]) -> tuple[list[Row], list[list[int]]]:
        """In order of admission. A static batch is held until all of it has ended."""
        if self.config.policy == "static":
            ended = [row for row in self._rows if row.finish_reason is not None]
            if len(ended) < len(self._rows):
                return [], []
        elif len(ended) > 1:
            ended.sort(key=lambda row: row.number)
        freed = [row.blocks for row in ended]
        for row in ended:
            self.release(row, row.finish_reason or "length")
        return ended, freed

    def release(self, row: Row, reason: str) -> None:
        """The only way out: give the row's blocks back and forget it. The next step can grant them."""
        if self._lockstep is not None:
            self._lockstep.discard(row)
        row.finish_reason = reason
        self.pool.free(row.blocks, row.request_id)
        row.blocks = []
        self._rows.remove(row)
        self._live.discard(row.request_id)

    def abort(self, request_id: str, reason: str = "abort") -> Row | Request | None:
        """End a live request; None for an id that is unknown or has already ended."""
        for row in self.rows:
            if row.request_id == request_id:
                self.release(row, reason)
                return row
        for request in self.waiting:
            if request.request_id == request_id:
                self.waiting.remove(request)
                self._live.discard(request_id)
                return request
        return None

    def check(self) -> None:
        """Assert that the pool is conserved and that each row owns just what it was granted."""
        self.pool.check()
        owned = sum(len(row.blocks) for row in self.rows)
        if owned + self.pool.num_free != self.pool.num_blocks:
            raise AssertionError(
                f"rows hold {owned} blocks, {self.pool.num_free} are free of {self.pool.num_blocks}"
            )
        if len(self.rows) > self.config.max_rows:
            raise AssertionError(f"{len(self.rows)} rows exceed max_rows {self.config.max_rows}")
        if len(self._live) != len(self.rows) + len(self.waiting):
            raise AssertionError("live ids do not match rows and queue")
        for row in self.rows:
            row.check()
            if self.pool.owned_by(row.request_id) != sorted(row.blocks):
                raise AssertionError(f"{row.request_id!r} and the pool disagree on its blocks")
