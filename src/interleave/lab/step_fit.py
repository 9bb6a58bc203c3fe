"""Fits a step-time model to observed times of steps, or to sums, medians and maxima of them.

Which side of each maximum (floor, roofline) a step is on makes the model linear, and the linear model
says again which side that is; the two take turns until they agree, and the best state seen is kept.
The floor is searched over a grid, for each overlap hypothesis; everything else is non-negative least squares on
errors relative to the predicted time, which the turns settle too (a gamma regression with identity link; McCullagh &
Nelder, 1989, chapter 8). Relative to the measured time a slow step would hardly count and a fast one would, so that
the fit came out below the mean. Knows nothing of where the observations come from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interleave.lab.latency_model import OVERLAPS, LatencyModel
from interleave.lab.nnls import Array, nnls
from interleave.lab.plan_features import FEATURES, Features

Flags = NDArray[np.bool_]
REDUCTIONS = ("sum", "median", "max")
POSITIONS = FEATURES.index("positions")
FARTHEST = 10.0
"""A prediction off by more than this factor weighs its observation no differently: early turns are wild."""
SLOWEST = 2.0
"""A time of more than this many times the predicted one pulls no more than one of so many: somebody else had the
machine."""
SETTLED, PATIENCE = 1e-6, 3
"""The turns end when this many of them in a row have not lowered the deviance by this share."""


@dataclass(frozen=True, slots=True)
class Observed:
    """A time that was measured: of all `steps` together, of their median or of their longest.

    bare: the counts stand for work on the device alone, outside of any step: no floor, no fixed part,
    no weights read.
    """

    label: str
    steps: Sequence[Sequence[Features]]
    seconds: float
    reduction: str = "sum"
    bare: bool = False


@dataclass(frozen=True, slots=True)
class Fit:
    """A model with its relative errors by label, (fitted - observed) / observed.

    deviance: what the fit makes small, by the mean over labels; 0 without any error.
    """

    model: LatencyModel
    errors: dict[str, float]
    deviance: float

    @property
    def rms(self) -> float:
        """The size of an error relative to the prediction: the deviance of small errors is their mean square."""
        return float(np.sqrt(self.deviance))


@dataclass(frozen=True, slots=True)
class Problem:
    """Observations as arrays: counts [forwards, features], the step of each, the steps of each label.

    ties: a feature whose cost is a fixed multiple of another one's.
    """

    observed: Sequence[Observed]
    counts: Array
    step_of: Array
    bounds: Sequence[tuple[int, int]]
    ties: Mapping[str, tuple[str, float]]
    weights_s: float
    with_fixed: bool

    @classmethod
    def of(
        cls,
        observed: Sequence[Observed],
        *,
        ties: Mapping[str, tuple[str, float]] | None = None,
        weights_s: float = 0.0,
        with_fixed: bool = True,
    ) -> Problem:
        counts: list[Features] = []
        step_of, bounds, number = [], [], 0
        for one in observed:
            first = number
            for step in one.steps:
                counts += step
                step_of += [number] * len(step)
                number += 1
            bounds.append((first, number))
        return cls(
            observed,
            np.array(counts, np.float64),
            np.array(step_of),
            bounds,
            dict(ties or {}),
            weights_s,
            with_fixed,
        )


def compare(
    problem: Problem, floors_s: Iterable[float], overlaps: Sequence[str] = OVERLAPS
) -> dict[str, Fit]:
    """The best fit of each overlap hypothesis, over the floors."""
    floors = sorted(set(floors_s))
    best: dict[str, Fit] = {}
    for overlap in overlaps:
        fits = [fit(problem, overlap, floor) for floor in ([0.0] if overlap == "additive" else floors)]
        best[overlap] = min(fits, key=lambda one: one.deviance)
    return best


def best_fit(fits: Mapping[str, Fit]) -> Fit:
    """The fit of the hypothesis that suits the observations best."""
    return min(fits.values(), key=lambda one: one.deviance)


def fit(problem: Problem, overlap: str, floor_s: float, rounds: int = 60) -> Fit:
    """The model of least deviance of one hypothesis at one floor."""
    model, best = LatencyModel(overlap, {}, floor_s, 0.0, problem.weights_s), None
    target = np.array([one.seconds for one in problem.observed])
    labels = [one.label for one in problem.observed]
    fitted, stale = target, 0
    for number in range(rounds):
        design, known = _linearised(problem, model, first=number == 0)
        scale = np.clip(fitted, target / FARTHEST, target * FARTHEST)
        wanted = (np.minimum(target, SLOWEST * scale) - known) / scale
        model = _model(problem, overlap, floor_s, nnls(design / scale[:, None], wanted))
        fitted = predicted(problem, model)
        errors = dict(zip(labels, map(float, fitted / target - 1.0), strict=True))
        candidate = Fit(model, errors, _deviance(target, fitted))
        stale = 0 if best is None or candidate.deviance < best.deviance * (1 - SETTLED) else stale + 1
        if best is None or candidate.deviance < best.deviance:
            best = candidate
        if stale == PATIENCE:
            break
    assert best is not None
    return best


def _deviance(target: Array, fitted: Array) -> float:
    """Mean gamma deviance; beyond SLOWEST it grows as slowly as the turns' pull, which stays the same there."""
    ratio = target / np.maximum(fitted, target / 1e12)
    near = np.minimum(ratio, SLOWEST)
    return float(2.0 * np.mean(near - 1.0 - np.log(near) + (SLOWEST - 1.0) * np.log(ratio / near)))


def predicted(problem: Problem, model: LatencyModel) -> Array:
    """What a model says of each observation, in seconds."""
    times, _, _, forward_s = _times(problem, model)
    return np.array(
        [
            forward_s[np.searchsorted(problem.step_of, low) : np.searchsorted(problem.step_of, high)].sum()
            if one.bare
            else _reduced(times[low:high], one.reduction)[0]
            for one, (low, high) in zip(problem.observed, problem.bounds, strict=True)
        ]
    )


def _reduced(times: Array, reduction: str) -> tuple[float, Array]:
    """(value, weight of each step in it)."""
    weights = np.zeros(len(times))
    if reduction == "sum":
        weights[:] = 1.0
    elif reduction == "max":
        weights[np.argmax(times)] = 1.0
    else:
        weights[np.argsort(times, kind="stable")[(len(times) - 1) // 2]] = 1.0
    return float(times @ weights), weights


def _times(problem: Problem, model: LatencyModel) -> tuple[Array, Flags, Flags, Array]:
    """(step seconds, forwards below the roofline, forwards or steps at the floor, bare forward seconds)."""
    per = np.array([model.per.get(name, 0.0) for name in FEATURES])
    bare_s = problem.counts @ per
    linear = per[POSITIONS] * problem.counts[:, POSITIONS]
    light = linear < model.weights_s
    forward_s = bare_s + np.where(light, model.weights_s - linear, 0.0)
    num_steps = problem.bounds[-1][1]
    if model.overlap == "forward_floor":
        floored = forward_s < model.floor_s
        step_s = np.bincount(problem.step_of, np.where(floored, model.floor_s, forward_s), num_steps)
    else:
        step_s = np.bincount(problem.step_of, forward_s, num_steps)
        floored = step_s < (model.floor_s if model.overlap == "step_floor" else -1.0)
        step_s = np.where(floored, model.floor_s, step_s)
    return (step_s + model.fixed_s).astype(np.float64), light, floored, bare_s


def _linearised(problem: Problem, model: LatencyModel, first: bool) -> tuple[Array, Array]:
    """(design, known seconds) with every maximum on the side where `model` puts it."""
    times, light, floored, _ = _times(problem, model)
    if first:  # nothing is known yet: no floor binds, steps rank by their positions
        light, floored = np.zeros_like(light), np.zeros_like(floored)
        times = np.bincount(problem.step_of, problem.counts.sum(1), problem.bounds[-1][1]).astype(np.float64)
    bare = np.zeros(len(times), dtype=bool)
    for one, (low, high) in zip(problem.observed, problem.bounds, strict=True):
        bare[low:high] = one.bare
    forward_bare = bare[problem.step_of]
    stuck = floored if len(floored) == len(light) else floored[problem.step_of]
    if model.overlap == "forward_floor":
        stuck = floored
    stuck = stuck & ~forward_bare
    light = light & ~forward_bare
    counts = problem.counts.copy()
    counts[light, POSITIONS] = 0.0
    counts[stuck] = 0.0
    known_forward = np.where(light & ~stuck, model.weights_s, 0.0)
    if model.overlap == "forward_floor":
        known_forward = known_forward + np.where(stuck, model.floor_s, 0.0)
    known = np.bincount(problem.step_of, known_forward, len(times))
    if model.overlap == "step_floor":
        known = known + np.where(floored & ~bare, model.floor_s, 0.0)
    by_step = np.stack([np.bincount(problem.step_of, column, len(times)) for column in counts.T], axis=1)
    fixed = (~bare).astype(float)[:, None]
    design, constant = [], []
    for one, (low, high) in zip(problem.observed, problem.bounds, strict=True):
        weights = _reduced(times[low:high], "sum" if one.bare else one.reduction)[1]
        columns = np.concatenate([by_step[low:high], fixed[low:high]], axis=1)
        design.append(weights @ columns)
        constant.append(weights @ known[low:high])
    matrix = np.array(design)
    for tied, (to, factor) in problem.ties.items():
        matrix[:, FEATURES.index(to)] += factor * matrix[:, FEATURES.index(tied)]
        matrix[:, FEATURES.index(tied)] = 0.0
    if not problem.with_fixed:
        matrix[:, -1] = 0.0
    return matrix, np.array(constant)


def _model(problem: Problem, overlap: str, floor_s: float, solution: Array) -> LatencyModel:
    per = dict(zip(FEATURES, map(float, solution), strict=False))
    for tied, (to, factor) in problem.ties.items():
        per[tied] = factor * per[to]
    return LatencyModel(overlap, per, floor_s, float(solution[-1]), problem.weights_s)
