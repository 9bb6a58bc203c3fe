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
from interleave.schedule.lockstep import Lockstep, LockstepForward, LockstepTokens
from interleave.schedule.names import nearest
from interleave.schedule.plan import StepPlan
from interleave.schedule.policies import DEFAULT_ORDER, ORDERS, POLICIES, UNBOUNDED, Limits
from interleave.schedule.recurrence import recurrences
from interleave.schedule.request import Request
from interleave.schedule.row import Row
from interleave.schedule.tpot_target import TpotTarget


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Every choice that shapes a plan. ValueError, naming the value, for one that cannot work.

    chunk_budget (C): prompt positions per step; max_chunk (kappa): of one prompt per step;
    token_budget (T): query positions per step. None is no limit, except that `mixed` defaults T
    to C + max_rows. T must leave one position beside max_rows decodes, so prefill always advances.
    max_request_tokens: longest prompt + generation budget accepted.
    """

    policy: str
    order: str | None = None
    chunk_budget: int | None = 512
    max_chunk: int | None = None
    token_budget: int | None = None
    max_rows: int = 32
    max_request_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise ValueError(nearest("policy", self.policy, POLICIES))
        if self.order is not None and self.order not in ORDERS:
            raise ValueError(nearest("order", self.order, ORDERS))
        for name in ("chunk_budget", "max_chunk", "token_budget", "max_rows", "max_request_tokens"):
            value = getattr(self, name)
            if value is None and name != "max_rows":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")
        self._refuse_what_does_not_apply()
        if self.token_budget is not None and self.token_budget < self.max_rows + 1:
            raise ValueError(
                f"token_budget {self.token_budget} is too small for max_rows {self.max_rows}: it must be at "
                f"least {self.max_rows + 1}, so that prefill advances while every row decodes"
            )

    def _refuse_what_does_not_apply(self) -> None:
        """A limit that a policy cannot keep is an error, never ignored. (C has a default, so it may stand.)"""
        group = self.policy in ("padded", "static")
        for name, value, reason in (
            ("order", self.order if group and self.order == "decode_first" else None, "its group runs first"),
            ("token_budget", self.token_budget if group else None, "its group is never cut"),
            ("max_chunk", self.max_chunk if group or self.policy == "whole" else None, "it cuts no prompt"),
        ):
            if value is not None:
                raise ValueError(f"{name} {value!r} does not apply to policy {self.policy!r}: {reason}")

    @property
    def limits(self) -> Limits:
        chunk_budget = self.chunk_budget or UNBOUNDED
        token_budget = self.token_budget or UNBOUNDED
        if self.policy == "mixed" and self.token_budget is None and self.chunk_budget is not None:
            token_budget = self.chunk_budget + self.max_rows
        return Limits(
            chunk_budget=chunk_budget,
            max_chunk=self.max_chunk or chunk_budget,
            token_budget=token_budget,
            prefill_first=(self.order or DEFAULT_ORDER[self.policy]) == "prefill_first",
        )


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
            row = Row(
                request,
                blocks,
                self.step,
                request.prefill_target,
                request.num_computed,
                number=self._num_admitted,
            )
            self._num_admitted += 1
            self._rows.append(row)
            if self._lockstep is not None and not row.is_prefilling:
                self._lockstep.add(row)
            admitted.append(row)
        return tuple(admitted)

    def commit(self, plan: StepPlan, tokens: Mapping[str, int], repeats: int = 1) -> Committed:
        """Book a computed step: `tokens` holds the sampled token of every piece that yields one.

        repeats: book the plan so many times in a row (at most `plan.repeats`), the same token each
        time. KeyError, with nothing booked, when a token is missing.
        """
        together = self._lockstep
        ids: list[str] = []
        booked: list[tuple[Row, int, int | None]] = []
        emitted: list[tuple[str, int]] = []
        for forward in plan.forwards:
            if together is not None and type(forward) is LockstepForward:
                ids = list(together.ids)
                continue
            for row, start, num_tokens in forward:
                # Passed over: rows aborted since the plan was made, and rows that a static batch holds.
                if row.finish_reason is not None or not row.blocks:
                    continue
                if start + num_tokens == row.known_len:  # Piece.yields_token
                    token = tokens[row.request_id]
                    emitted.append((row.request_id, token))
                    booked.append((row, num_tokens, token))
                else:
                    booked.append((row, num_tokens, None))
        last_step = plan.step + repeats - 1
        ended: list[Row] = []
        if together is not None and ids:
            ended = together.advance(repeats, last_step)
            for row in ended:
                row.finish_reason = "length"
        for row, num_tokens, sampled in booked:
            row.num_computed += num_tokens * repeats
            row.last_served_step = last_step
            if sampled is not None:
                row.emit(sampled, repeats)
                row.finish_reason = _finish_reason(row, sampled)
                if row.finish_reason is not None:
                    ended.append(row)
        self.step += repeats
        if together is not None and emitted:
            self._join(booked, together)
        released, freed = self._release_ended(ended) if ended else ([], [])
        return Committed(LockstepTokens(emitted, ids) if ids else emitted, released, freed)

    @staticmethod
    def _join(booked: Sequence[tuple[Row, int, int | None]], together: Lockstep) -> None:
        """Rows that emitted one by one: one that ends its prefill joins, one that is known was told apart."""
        one_by_one = False
        for row, _, sampled in booked:
            if sampled is None:
                continue
            if together.holds(row):
                one_by_one = True
            elif row.finish_reason is None:
                together.add(row)
        if one_by_one:
            together.reload()

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


def _finish_reason(row: Row, token: int) -> str | None:
    request = row.request
    if request.stop_ids and token in request.stop_ids:
        return "stop"
    return "length" if len(row.emitted) >= request.max_new_tokens else None
