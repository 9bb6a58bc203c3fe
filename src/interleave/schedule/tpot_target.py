"""The chunk budget that keeps a step within a target time: a search over plans, not a formula.

Whoever knows how long a step takes (a fitted model, a table, a guess) hands in a function of the
forwards; this module asks it about the plans that the policy itself would make. No clock, no model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from interleave.schedule.plan import Forward
from interleave.schedule.policies import Policy, StepLimits
from interleave.schedule.row import Row

PredictStep = Callable[[Sequence[Forward]], float]
"""Seconds that a step with these forwards is expected to take; more positions never take less."""


@dataclass(frozen=True, slots=True)
class TpotTarget:
    """target_s: seconds that a step may take while somebody decodes. predict_s: see `PredictStep`.

    Raises ValueError for a target that is not a finite number above 0.
    """

    target_s: float
    predict_s: PredictStep

    def __post_init__(self) -> None:
        number = isinstance(self.target_s, (int, float)) and not isinstance(self.target_s, bool)
        if not (number and math.isfinite(self.target_s) and self.target_s > 0):
            raise ValueError(
                f"tpot_target_s must be a finite number of seconds above 0, got {self.target_s!r}"
            )

    def plan(
        self, policy: Policy, prefilling: Sequence[Row], decoding: Sequence[Row], limits: StepLimits
    ) -> tuple[Forward, ...]:
        """The policy's forwards under the largest chunk budget (at most C, at least 1) within the target.

        One prompt position a step is always computed, so prefill advances under any target. With nobody
        decoding there is nobody to keep waiting, and C alone decides.
        """
        if not prefilling or not decoding:
            return policy(prefilling, decoding, limits)
        waiting = sum(row.remaining_prefill for row in prefilling)
        low, high = 1, min(limits.chunk_budget, waiting)
        fitting = policy(prefilling, decoding, replace(limits, chunk_budget=low))
        while low < high:
            middle = (low + high + 1) // 2
            forwards = policy(prefilling, decoding, replace(limits, chunk_budget=middle))
            if self.predict_s(forwards) <= self.target_s:
                low, fitting = middle, forwards
            else:
                high = middle - 1
        return fitting
