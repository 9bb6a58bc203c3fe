"""The choices that shape a scheduler's plans, checked when they are made."""

from __future__ import annotations

from dataclasses import dataclass

from interleave.schedule.allocation import ALLOCATIONS
from interleave.schedule.names import nearest
from interleave.schedule.policies import DEFAULT_ORDER, ORDERS, POLICIES, UNBOUNDED, StepLimits


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Every choice that shapes a plan. ValueError, naming the value, for one that cannot work.

    chunk_budget (C): prompt positions per step; max_chunk (kappa): of one prompt per step;
    token_budget (T): query positions per step. None is no limit, except that `mixed` defaults T
    to C + max_rows. T must leave one position beside max_rows decodes, so prefill always advances.
    max_request_tokens: longest prompt + generation budget accepted.
    allocation: when rows get their blocks, see `allocation`.
    """

    policy: str
    order: str | None = None
    chunk_budget: int | None = 512
    max_chunk: int | None = None
    token_budget: int | None = None
    max_rows: int = 32
    max_request_tokens: int | None = None
    allocation: str = "reserve"

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise ValueError(nearest("policy", self.policy, POLICIES))
        if self.order is not None and self.order not in ORDERS:
            raise ValueError(nearest("order", self.order, ORDERS))
        if self.allocation not in ALLOCATIONS:
            raise ValueError(nearest("allocation", self.allocation, ALLOCATIONS))
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
        grows = self.allocation if self.policy == "static" and self.allocation != "reserve" else None
        for name, value, reason in (
            ("order", self.order if group and self.order == "decode_first" else None, "its group runs first"),
            ("token_budget", self.token_budget if group else None, "its group is never cut"),
            ("allocation", grows, "its rows are held until the last of them has ended"),
            ("max_chunk", self.max_chunk if group or self.policy == "whole" else None, "it cuts no prompt"),
        ):
            if value is not None:
                raise ValueError(f"{name} {value!r} does not apply to policy {self.policy!r}: {reason}")

    @property
    def limits(self) -> StepLimits:
        chunk_budget = self.chunk_budget or UNBOUNDED
        token_budget = self.token_budget or UNBOUNDED
        if self.policy == "mixed" and self.token_budget is None and self.chunk_budget is not None:
            token_budget = self.chunk_budget + self.max_rows
        return StepLimits(
            chunk_budget=chunk_budget,
            max_chunk=self.max_chunk or chunk_budget,
            token_budget=token_budget,
            prefill_first=(self.order or DEFAULT_ORDER[self.policy]) == "prefill_first",
        )
