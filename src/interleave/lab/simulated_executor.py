"""Executes a plan by predicting how long it takes: an executor like the others, on a virtual clock.

It samples zeros. Where the scheduler says that a plan recurs, it computes as many recurrences at once
as end before the next arrival could change anything, by the sum of an arithmetic progression.
"""

from __future__ import annotations

import math

from interleave.engine.batched import Executed
from interleave.lab.latency_model import TICKS_PER_S, LatencyModel, StepTimer
from interleave.lab.plan_features import (
    Features,
    packed_counts,
    packed_features,
    padded_features,
    total,
)
from interleave.lab.virtual_clock import Arrivals, VirtualClock
from interleave.schedule.lockstep import LockstepForward
from interleave.schedule.plan import StepPlan
from interleave.schedule.row import Row

_NO_GROWTH = Features()


class SimulatedExecutor:
    """slots: rows lie in slots of one width (`continuous`, `static`), so decode walks the widest span.

    arrivals: the stream that the loop serves from; None never leaps.
    num_outside: steps with a count outside the range of the model's fit; worst_outside names those
    counts with the largest value met there. span_ticks: of the first and last step of the latest event; busy_ticks:
    of all steps. steps: the features of each event's first step, where asked for. keep_pieces: make every piece, for
    somebody who looks at plans afterwards.
    """

    def __init__(
        self,
        model: LatencyModel,
        clock: VirtualClock,
        *,
        slots: bool = False,
        arrivals: Arrivals | None = None,
        keep_features: bool = False,
        keep_pieces: bool = False,
    ) -> None:
        self.model = model
        self.clock = clock
        self.arrivals = arrivals
        self.steps: list[list[Features]] | None = [] if keep_features else None
        self.num_steps = 0
        self.span_ticks = (0, 0)
        self.busy_ticks = 0
        self.num_outside = 0
        self.worst_outside: dict[str, int] = {}
        self._slots = slots
        self._keep_pieces = keep_pieces
        self._tokens: dict[str, int] = {}  # of every live row: who yields one is the scheduler's to say
        self._timer = StepTimer(model)
        self._marks = model.fitted is not None
        # Straight from the plan to ticks, unless somebody wants the counts too.
        self._direct = not (self._marks or keep_features or slots)

    def execute(self, plan: StepPlan) -> Executed:
        for row in plan.admitted:
            self._tokens[row.request_id] = 0
        if self._keep_pieces:
            plan.composition()
        timer = self._timer
        features: list[Features] = []
        growth: list[Features] = []
        if self._direct and not plan.padded:
            lines = [
                timer.decode_work(forward.size, forward.attended)
                if type(forward) is LockstepForward
                else timer.packed_work(packed_counts(forward))
                for forward in plan.forwards
            ]
        else:
            for forward in plan.forwards:
                counts, more = (
                    (padded_features(forward), _NO_GROWTH)
                    if plan.padded
                    else packed_features(forward, self._slots)
                )
                features.append(counts)
                growth.append(more)
            lines = [
                (timer.work(counts), timer.work(more)) for counts, more in zip(features, growth, strict=True)
            ]
            if self.steps is not None:
                self.steps.append(features)
        repeats, first, last = self._span(plan, lines)
        ticks, first_s = first, first / TICKS_PER_S
        last_s = first_s
        if repeats > 1:
            ticks, last_s = repeats * (first + last) // 2, last / TICKS_PER_S
        self.clock.advance(ticks)
        self.busy_ticks += ticks
        self.num_steps += repeats
        self.span_ticks = (first, last)
        if self._marks:
            self._mark(features, growth, repeats)
        copied = sum(f.copied_tokens for f in features) if plan.padded else 0
        return Executed(self._tokens, {}, copied, repeats, (first_s, last_s))

    def release(self, rows: list[Row], blocks: list[list[int]]) -> None:
        for row in rows:
            self._tokens.pop(row.request_id, None)

    def _span(self, plan: StepPlan, lines: list[tuple[int, int]]) -> tuple[int, int, int]:
        """(steps, ticks of the first, of the last): as many as begin before an arrival that matters, in one regime.

        lines: of each forward, its ticks and their growth from one recurrence to the next.
        """
        at = self._timer.at
        first, regime = at(lines, 0)
        if plan.repeats == 1 or self.arrivals is None:
            return 1, first, first
        second, second_regime = at(lines, 1)
        if second_regime != regime:
            return 1, first, first
        steps = plan.repeats
        if not plan.full:
            steps = min(steps, self._before_arrival(first, second - first))
        if steps <= 2:
            return (1, first, first) if steps == 1 else (2, first, second)
        last, last_regime = at(lines, steps - 1)
        if last_regime != regime:
            low, high = 2, steps  # steps that stay in the regime, steps that do not
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if at(lines, middle - 1)[1] == regime else (low, middle)
            steps, last = low, at(lines, low - 1)[0]
        return steps, first, last

    def _before_arrival(self, first: int, growth: int) -> int:
        """Steps that begin before the next due time: the fewest m whose end reaches it, at least 1."""
        assert self.arrivals is not None
        due_s = self.arrivals.next_due_s
        if math.isinf(due_s):
            return 1 << 62
        start = self.clock.ticks
        if (start + first) / TICKS_PER_S >= due_s:
            return 1

        def reaches(steps: int) -> bool:
            end = start + steps * first + growth * (steps * (steps - 1) // 2)
            return end / TICKS_PER_S >= due_s

        room = (due_s - self.clock()) * TICKS_PER_S
        slope, linear = growth / 2, first - growth / 2
        if linear <= 0:  # a model under which nothing takes time
            return 1
        guess = (
            room / linear if slope == 0 else (math.sqrt(linear**2 + 4 * slope * room) - linear) / (2 * slope)
        )
        steps = max(1, math.floor(guess))
        # The square root is rounded; what counts is the comparison that the loop makes.
        while not reaches(steps):
            steps += 1
        while steps > 1 and reaches(steps - 1):
            steps -= 1
        return steps

    def _mark(self, features: list[Features], growth: list[Features], repeats: int) -> None:
        first = last = total(features)
        more = _NO_GROWTH
        if repeats > 1:
            more = total(growth)
            last = Features(*[a + (repeats - 1) * b for a, b in zip(first, more, strict=True)])
        if self._timer.within(first, last):
            return
        steps, largest = self._timer.outside(first, more, repeats)
        self.num_outside += steps
        for name, value in largest.items():
            self.worst_outside[name] = max(value, self.worst_outside.get(name, value))
