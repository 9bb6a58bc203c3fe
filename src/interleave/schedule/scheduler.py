"""Admission, planning and bookkeeping: decides, and leaves computing and timing to others.

Strict FCFS: the head of the queue blocks those behind it. When rows get their blocks is a rule of its
own (`allocation`). Where that rule lets the pool run dry, the youngest row is preempted: its blocks go
back, and it waits at the head of the queue, to be computed again. So whoever runs is older than whoever
was preempted, and those are older than whoever was never admitted. A row leaves by `release`, and blocks
come back to the pool in one place, unless a step breaks off: then `end_all` ends everybody at once. Imports
no torch and reads no clock, so the same object drives an engine and a simulation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from interleave.schedule.allocation import ALLOCATIONS, Allocation
from interleave.schedule.block_pool import BlockPool, need_blocks
from interleave.schedule.booking import book
from interleave.schedule.config import SchedulerConfig
from interleave.schedule.lockstep import Lockstep
from interleave.schedule.plan import Preemption, StepPlan
from interleave.schedule.policies import POLICIES
from interleave.schedule.queue import Queue
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
    """Owns the queue, the rows and the pool.

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
        self._rows: list[Row] = []
        self._allocation: Allocation = ALLOCATIONS[config.allocation](pool)
        self.queue = Queue(config, self._allocation)
        # Rows of a static batch are held after their end, and rows that may be preempted come and go, so
        # they don't move together.
        self._moves_together = look_ahead and config.policy != "static" and config.allocation == "reserve"
        self._lockstep = Lockstep() if self._moves_together else None
        self._policy = POLICIES[config.policy]
        self._limits = config.limits
        self._max_rows = config.max_rows
        self._pads = config.policy in ("padded", "static")
        self._holds_ended = config.policy == "static"
        self._live: set[str] = set()

    @property
    def rows(self) -> list[Row]:
        """Running, in order of first admission."""
        if self._lockstep is not None:
            self._lockstep.write_all()
        return self._rows

    @property
    def num_rows(self) -> int:
        return len(self._rows)

    @property
    def has_work(self) -> bool:
        return bool(self._rows or self.queue)

    @property
    def live_ids(self) -> list[str]:
        """Ids of every request that runs or waits, in order of admission."""
        return [row.request_id for row in self._rows] + self.queue.ids

    def submit(self, request: Request) -> None:
        """Queue a request. ValueError, holding nothing, for one that is a duplicate or can never fit."""
        self.validate(request)
        if request.request_id in self._live:
            raise ValueError(f"request id {request.request_id!r} is already live")
        self._live.add(request.request_id)
        self.queue.waiting.append(request)

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
        """Admit what fits, let the policy choose the next step's forwards, and give these their blocks.

        Rows are preempted, youngest first, until the pool holds what all forwards of the step need. That
        never falls together with an admission: whoever is admitted leaves room for everybody's next step.
        """
        queue = self.queue
        resumed = queue.resume(self._rows) if queue.preempted else ()
        admitted = queue.admit(self._rows, self.step) if queue.waiting else ()
        if self._lockstep is not None:
            for row in admitted:
                if not row.is_prefilling:  # its prompt was computed elsewhere
                    self._lockstep.add(row)
        preempted: tuple[Preemption, ...] = ()
        while True:
            prefilling, decoding = self._by_phase()
            if self._tpot is None:
                forwards = self._policy(prefilling, decoding, self._limits)
            else:
                forwards = self._tpot.plan(self._policy, prefilling, decoding, self._limits)
            if self._allocation.take(forwards):
                break
            preempted += (self._preempt(self._rows[-1]),)
        padded = self._pads and bool(prefilling)
        repeats, full = 1, False
        if self.look_ahead:
            full = len(self._rows) >= self._max_rows or bool(queue.preempted or queue.waiting)
            # A budget that follows the time of a step shrinks as the history of a prompt grows.
            if self._tpot is None or not prefilling:
                repeats = self._allocation.most_repeats(forwards, recurrences(forwards, decoding))
        return StepPlan(self.step, admitted, forwards, padded, repeats, full, resumed, preempted)

    def _by_phase(self) -> tuple[list[Row], Sequence[Row]]:
        """(prefilling, decoding), each in order of admission. Row.is_prefilling, without a call for each."""
        together = self._lockstep
        if together is not None:
            if len(together.ids) == len(self._rows):
                return [], together
            # Prefilling rows are nearly always the youngest.
            youngest = self._rows[len(together.ids) :]
            for row in youngest:
                if row.num_computed >= row.prefill_target:
                    return [row for row in self._rows if row.num_computed < row.prefill_target], together
            return youngest, together
        prefilling = [row for row in self._rows if row.num_computed < row.prefill_target]
        if not prefilling:
            return prefilling, self._rows
        return prefilling, [row for row in self._rows if row.num_computed >= row.prefill_target]

    def commit(self, plan: StepPlan, tokens: Mapping[str, int], repeats: int = 1) -> Committed:
        """Book a computed step: `tokens` holds the sampled token of every piece that yields one.

        repeats: book the plan so many times in a row (at most `plan.repeats`), the same token each
        time. KeyError, with nothing booked, when a token is missing.
        """
        emitted, ended = book(plan, tokens, repeats, self._lockstep)
        self.step += repeats
        if repeats > 1:
            self._allocation.catch_up(self._rows)
        # A static batch may have lost its last unfinished row to an abort, so that nobody ends in this step.
        released, freed = self._release_ended(ended) if ended or self._holds_ended else ([], [])
        return Committed(emitted, released, freed)

    def _release_ended(self, ended: list[Row]) -> tuple[list[Row], list[list[int]]]:
        """In order of admission. A static batch is held until all of it has ended."""
        if self._holds_ended:
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
        """How a running row ends: its blocks go back, and the next step can grant them."""
        self._give_back(row)
        row.finish_reason = reason
        self._live.discard(row.request_id)

    def _preempt(self, row: Row) -> Preemption:
        """Put the youngest row back at the head of the queue, without its blocks."""
        num_computed, blocks = row.num_computed, row.blocks
        self.queue.put_back(row)  # first, so that an interrupt in between loses nobody
        self._give_back(row)
        row.restart()
        return Preemption(row, blocks, num_computed)

    def _give_back(self, row: Row) -> None:
        """The one place where blocks return to the pool."""
        if self._lockstep is not None:
            self._lockstep.discard(row)
        self.pool.free(row.blocks, row.request_id)
        row.blocks = []
        self._rows.remove(row)

    def abort(self, request_id: str, reason: str = "abort") -> Row | Request | None:
        """End a live request; None for an id that is unknown or has already ended, also if its batch holds its row."""
        for row in self.rows:
            if row.request_id == request_id:
                if row.finish_reason is not None:
                    return None
                self.release(row, reason)
                return row
        waited = self.queue.remove(request_id)
        if isinstance(waited, Row):
            waited.finish_reason = reason
        self._live.discard(request_id)
        return waited

    def end_all(self, reason: str) -> tuple[list[str], list[Row], list[list[int]]]:
        """End every live request and empty the pool, also when a plan broke off halfway.

        Rows, queue and pool need not agree then, so nothing is given back piece by piece. Returns the ids in
        order of admission, and the rows among them with the blocks that they held.
        """
        # Halfway into a step somebody may stand in two places.
        ids = list(dict.fromkeys(self.live_ids))
        rows = list(dict.fromkeys([*self.rows, *self.queue.preempted]))
        blocks = [row.blocks for row in rows]
        for row in rows:
            row.blocks = []
            row.finish_reason = reason
        self._rows.clear()
        self._lockstep = Lockstep() if self._moves_together else None
        self.queue.clear()
        self._live.clear()
        self.pool.free_all()
        return ids, rows, blocks

    def check(self) -> None:
        """Assert that the pool is conserved, that each row owns what it was granted, and the order of the queue."""
        self.pool.check()
        owned = sum(len(row.blocks) for row in self.rows)
        if owned + self.pool.num_free != self.pool.num_blocks:
            raise AssertionError(
                f"rows hold {owned} blocks, {self.pool.num_free} are free of {self.pool.num_blocks}"
            )
        if len(self.rows) > self.config.max_rows:
            raise AssertionError(f"{len(self.rows)} rows exceed max_rows {self.config.max_rows}")
        if len(self._live) != len(self.rows) + len(self.queue):
            raise AssertionError("live ids do not match rows and queue")
        self.queue.check(self.rows)
        for row in self.rows:
            row.check()
            if row.num_computed > len(row.blocks) * self.pool.block_tokens:
                raise AssertionError(f"{row.request_id!r} has computed more than its blocks can keep")
            if self.pool.owned_by(row.request_id) != sorted(row.blocks):
                raise AssertionError(f"{row.request_id!r} and the pool disagree on its blocks")
