"""The engine: a scheduler that decides and an executor that computes, one step at a time.

Every engine of the ladder is this class with another scheduling policy, KV layout and executor;
the simulator is this class with an executor that only predicts times. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from interleave.schedule.lockstep import LockstepForward
from interleave.schedule.plan import StepPlan
from interleave.schedule.request import Request
from interleave.schedule.row import Row
from interleave.schedule.scheduler import Scheduler


@dataclass(slots=True)
class Executed:
    """What computing a plan gave.

    tokens: the sampled token of every piece that yields one, by request id.
    parts_s: seconds by kind: prefill, decode, mixed (a forward with both), copy, sample.
    copied_tokens: positions whose K and V were moved: out of a throwaway cache, or to close a gap
    between slots.
    repeats: how often in a row the plan was computed, at most `plan.repeats`; an executor that only
    predicts may leap, one that computes does not.
    span_s: seconds of the first and last of these steps, equally spaced between; None where only a
    clock can tell.
    """

    tokens: dict[str, int]
    parts_s: dict[str, float] = field(default_factory=dict)
    copied_tokens: int = 0
    repeats: int = 1
    span_s: tuple[float, float] | None = None


class Executor(Protocol):
    """Computes plans. Holds K and V, but not who may own them."""

    def execute(self, plan: StepPlan) -> Executed: ...

    def release(self, rows: list[Row], blocks: list[list[int]]) -> None:
        """Rows that ended, with the blocks they held; hearing of a row twice changes nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Finished:
    request_id: str
    reason: str


@dataclass(slots=True)
class StepOutcome:
    """A step after the fact. `held_rows` counts decodes of rows that had already ended.

    attended_tokens: keys that the asked-for positions looked at, summed over positions;
    context_tokens: positions whose keys and values those needed, once a row.
    released: the rows of `finished`; num_rows, owned_blocks: rows that ran and blocks that they held during
    the step, whether they had a part in it or not.
    """

    plan: StepPlan
    executed: Executed
    tokens: Sequence[tuple[str, int]]
    finished: list[Finished]
    released: Sequence[Row]
    num_rows: int
    owned_blocks: int
    prefill_tokens: int
    decode_rows: int
    held_rows: int
    attended_tokens: int = 0
    context_tokens: int = 0


class EngineFault(RuntimeError):
    """A step failed. Every live request has ended with reason `error`; the cause is chained."""

    def __init__(self, message: str, failed_ids: list[str]) -> None:
        super().__init__(message)
        self.failed_ids = failed_ids


class Engine:
    """Submit requests, then call `step` while `has_work`."""

    def __init__(self, name: str, scheduler: Scheduler, executor: Executor, vocab_size: int | None = None):
        self.name = name
        self.scheduler = scheduler
        self.executor = executor
        self.vocab_size = vocab_size

    @property
    def has_work(self) -> bool:
        return self.scheduler.has_work

    def submit(self, request: Request) -> None:
        """Queue a request, or raise ValueError and hold nothing."""
        self._check_computable(request)
        self.scheduler.submit(request)

    def validate(self, request: Request) -> None:
        """ValueError for a request that this engine can never serve, whatever else is running."""
        self._check_computable(request)
        self.scheduler.validate(request)

    def _check_computable(self, request: Request) -> None:
        if self.vocab_size is None:  # an executor that only predicts
            return
        if request.num_computed:
            raise ValueError(
                f"request {request.request_id!r}: {request.num_computed} positions were computed elsewhere, and this "
                f"engine receives no keys and values"
            )
        if max(request.prompt) >= self.vocab_size:
            raise ValueError(
                f"request {request.request_id!r}: token id {max(request.prompt)} is outside the "
                f"vocabulary of {self.vocab_size}"
            )

    def abort(self, request_id: str) -> bool:
        """End a live request and give its blocks back; False for one unknown or already ended."""
        blocks = {row.request_id: row.blocks for row in self.scheduler.rows}
        ended = self.scheduler.abort(request_id)
        if isinstance(ended, Row):
            self.executor.release([ended], [blocks.get(request_id, [])])  # a preempted row has none
        return ended is not None

    def end_all(self, reason: str) -> list[str]:
        """End every live request, whatever state a plan left them in; returns their ids. The pool is empty then."""
        failed, rows, blocks = self.scheduler.end_all(reason)
        # Also rows that wait after a preemption: the executor keeps their generators.
        self.executor.release(rows, blocks)
        return failed

    def step(self) -> StepOutcome:
        """Plan, compute, book. EngineFault when one of them fails, after every live request has ended."""
        scheduler = self.scheduler
        number = scheduler.step
        prefill_tokens = decode_rows = held_rows = attended_tokens = context_tokens = 0
        committed = None
        try:
            plan = scheduler.plan()
            num_rows, owned_blocks = scheduler.num_rows, scheduler.pool.num_owned
            for forward in plan.forwards:
                if type(forward) is LockstepForward:
                    decode_rows += forward.size
                    attended_tokens += forward.attended
                    context_tokens += forward.attended
                    continue
                for row, start, num_tokens in forward:
                    if start < row.prefill_target:
                        prefill_tokens += num_tokens
                    else:
                        decode_rows += 1
                        if row.finish_reason is not None:
                            held_rows += 1
                            continue
                    attended_tokens += num_tokens * start + num_tokens * (num_tokens + 1) // 2
                    context_tokens += start + num_tokens
            executed = self.executor.execute(plan)
            committed = scheduler.commit(plan, executed.tokens, executed.repeats)
            if committed.released:
                self.executor.release(committed.released, committed.freed)
        except BaseException as fault:
            failed = self.end_all("error")
            if committed is not None:  # the executor may not have heard of rows that ended in this very step
                self.executor.release(committed.released, committed.freed)
            if not isinstance(fault, Exception):
                raise
            raise EngineFault(
                f"engine {self.name!r}: step {number} failed with {type(fault).__name__}: {fault}", failed
            ) from fault
        released = committed.released
        finished = (
            [Finished(row.request_id, row.finish_reason or "length") for row in released] if released else []
        )
        # By position, since a simulation makes one of these for every event.
        return StepOutcome(
            plan, executed, committed.tokens, finished, released, num_rows, owned_blocks,
            prefill_tokens, decode_rows - held_rows, held_rows, attended_tokens, context_tokens,
        )  # fmt: skip

    def check(self) -> None:
        """Assert that no block is lost; when idle, that all of them are free."""
        self.scheduler.check()
        num_owned = self.scheduler.pool.num_owned
        if not self.has_work and num_owned:
            raise AssertionError(f"idle engine: {num_owned} blocks are still owned")
