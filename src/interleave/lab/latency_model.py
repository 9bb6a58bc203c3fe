"""How long a step takes, from what its plan holds. Knows no engine, clock or file.

A forward takes max(weights, per_position x positions) plus a non-negative multiple of each other count
of `lab.plan_features`. How the forwards of a step and the host that launches them overlap is a
hypothesis, one of `OVERLAPS`:

    additive        step = fixed + the sum of its forwards
    forward_floor   step = fixed + the sum over forwards of max(floor, forward)
    step_floor      step = fixed + max(floor, the sum of its forwards): the host launches the second
                    forward while the device computes the first, and waits once, at the end

All times are whole femtoseconds (`TICKS_PER_S`), so that sums over thousands of steps are exact and a
closed form over a run of steps equals adding them one by one, bit for bit.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from interleave.lab.plan_features import FEATURES, Features
from interleave.schedule.names import nearest

TICKS_PER_S = 10**15
OVERLAPS = ("additive", "forward_floor", "step_floor")

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class LatencyModel:
    """Seconds per count, and how they overlap.

    per: seconds per unit of each feature (a missing one costs nothing); fixed_s: once a step;
    floor_s: see `OVERLAPS`; weights_s: the time in which a forward reads the weights, hidden behind
    the work on its positions as soon as that takes longer (a roofline).
    fitted: lowest and highest count of each feature, over steps, that the fit has seen; None for a model
    that states none. Raises ValueError for an unknown name and for a time that is not finite and >= 0.
    """

    overlap: str
    per: Mapping[str, float]
    floor_s: float = 0.0
    fixed_s: float = 0.0
    weights_s: float = 0.0
    fitted: Mapping[str, Range] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.overlap not in OVERLAPS:
            raise ValueError(nearest("overlap", self.overlap, OVERLAPS))
        for name in self.per:
            if name not in FEATURES:
                raise ValueError(nearest("feature", name, FEATURES))
        times = {"floor_s": self.floor_s, "fixed_s": self.fixed_s, "weights_s": self.weights_s, **self.per}
        for name, value in times.items():
            if not (isinstance(value, (int, float)) and math.isfinite(value) and value >= 0):
                raise ValueError(f"latency model: {name} must be finite and at least 0 s, got {value!r}")

    def step_s(self, forwards: Sequence[Features]) -> float:
        """Seconds of a step that runs `forwards`, one after the other."""
        timer = StepTimer(self)
        return timer.at([(timer.work(counts), 0) for counts in forwards], 0)[0] / TICKS_PER_S

    def outside(self, step: Features) -> list[str]:
        """Names of the features of a step that lie outside what the fit has seen."""
        fitted = self.fitted
        if fitted is None:
            return []
        return [
            name
            for name, value in zip(FEATURES, step, strict=True)
            if not fitted.get(name, (0, 0))[0] <= value <= fitted.get(name, (0, 0))[1]
        ]


class StepTimer:
    """A model in whole ticks. A step's `regime` says which side of every maximum it is on.

    Between two recurrences of a plan in the same regime the time is linear, since each maximum is
    one of linear functions of the counts, and those grow linearly.
    """

    def __init__(self, model: LatencyModel) -> None:
        def ticks(seconds: float) -> int:
            return round(seconds * TICKS_PER_S)

        self._per = tuple(ticks(model.per.get(name, 0.0)) for name in FEATURES)
        self._packed = (*self._per[:3], *self._per[4:6])
        self._decodes: dict[int, tuple[int, int]] = {}  # rows -> ticks without what they see, growth
        self._weights = ticks(model.weights_s)
        self._floor = ticks(model.floor_s)
        self._fixed = ticks(model.fixed_s)
        self._overlap = model.overlap
        ranges = [(model.fitted or {}).get(name, (0, 0)) for name in FEATURES]
        self._low, self._high = tuple(low for low, _ in ranges), tuple(high for _, high in ranges)

    def within(self, first: Features, last: Features) -> bool:
        """Whether every count of steps that grow from `first` to `last` lies in the fitted range."""
        return not (any(map(operator.lt, first, self._low)) or any(map(operator.gt, last, self._high)))

    def outside(self, first: Features, growth: Features, num_steps: int) -> tuple[int, dict[str, int]]:
        """(steps with a count outside the fitted range, the largest value of each such count).

        Steps 0 .. num_steps - 1; counts only grow, so the steps inside of a range are a stretch of them.
        """
        begin, end = 0, num_steps  # of the stretch inside of all ranges
        largest: dict[str, int] = {}
        for name, value, more, low, high in zip(FEATURES, first, growth, self._low, self._high, strict=True):
            # Steps below the range, and steps not above it.
            if more:
                below, reached = -((value - low) // more), (high - value) // more + 1
            else:
                below, reached = (num_steps if value < low else 0), (num_steps if value <= high else 0)
            below, reached = min(max(below, 0), num_steps), min(max(reached, 0), num_steps)
            begin, end = max(begin, below), min(end, reached)
            if reached < num_steps:
                largest[name] = value + (num_steps - 1) * more
            elif below:
                largest[name] = value + (below - 1) * more
        return num_steps - max(0, end - begin), largest

    def decode_work(self, rows: int, seen: int) -> tuple[int, int]:
        """`packed_work` of a forward in which `rows` rows decode, and nothing else."""
        known = self._decodes.get(rows)
        if known is None:
            known = self._decodes[rows] = self.packed_work((rows, 0, 0, rows, 0, 0))
        return known[0] + self._packed[4] * seen, known[1]

    def packed_work(self, counts: tuple[int, int, int, int, int, int]) -> tuple[int, int]:
        """(ticks, growth) of a packed forward, as `packed_counts` tells it: `work` without making `Features`."""
        positions, attended, growth, rows, seen, _ = counts
        forward, position, prefill, row, decode = self._packed
        linear = position * positions
        if linear < self._weights:
            linear = self._weights
        return (
            linear + forward + prefill * attended + row * rows + decode * seen,
            prefill * growth + decode * rows,
        )

    def work(self, counts: Features) -> int:
        """Ticks of a forward on its own, or their growth for the growth of its counts.

        Positions never grow while a plan recurs, so its roofline side stays.
        """
        per = self._per
        ticks = sum(map(operator.mul, per, counts))
        if counts[0] and per[1] * counts[1] < self._weights:
            ticks += self._weights - per[1] * counts[1]
        return ticks

    def at(self, lines: Sequence[tuple[int, int]], recurrence: int) -> tuple[int, int]:
        """(ticks, regime) of a step of which each forward takes `ticks + recurrence x growth`, given as such pairs."""
        floor = self._floor
        work = regime = 0
        if self._overlap == "forward_floor":
            for ticks, growth in lines:
                ticks += recurrence * growth
                regime *= 2
                if ticks < floor:
                    ticks, regime = floor, regime + 1
                work += ticks
            return self._fixed + work, regime
        for ticks, growth in lines:
            work += ticks + recurrence * growth
        if work < floor and self._overlap == "step_floor":
            return self._fixed + floor, 1
        return self._fixed + work, 0
