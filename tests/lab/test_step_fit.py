"""Fitting step times: known models are found again, and the right overlap hypothesis wins."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interleave.lab.latency_model import OVERLAPS, LatencyModel, StepTimer
from interleave.lab.nnls import nnls
from interleave.lab.plan_features import Features
from interleave.lab.step_fit import Observed, Problem, best_fit, compare, fit, predicted

TRUE_S = {"positions": 6e-5, "prefill_attended": 8e-9, "decode_rows": 4e-4, "decode_attended": 2e-7}


def random_steps(number: int, seed: int = 0) -> list[list[Features]]:
    """Chunk forwards, decode forwards and both, as a chunking engine would run them."""
    rng, steps = random.Random(seed), []
    for _ in range(number):
        chunk, rows = rng.randint(1, 512), rng.randint(1, 32)
        forwards = [
            Features(1, chunk, chunk * rng.randint(0, 4000)),
            Features(1, rows, decode_rows=rows, decode_attended=rows * rng.randint(50, 3000)),
        ]
        steps.append(rng.choice([forwards[:1], forwards[1:], forwards]))
    return steps


@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 12))
def test_nnls_meets_the_conditions_of_an_optimum(seed: int, unknowns: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    matrix, target = rng.normal(size=(rows, unknowns)), rng.normal(size=rows)
    solution = nnls(matrix, target)
    slope = matrix.T @ (target - matrix @ solution)
    assert (solution >= 0).all()
    assert (slope <= 1e-6).all()
    assert np.abs(slope * solution).max() < 1e-6


def test_nnls_of_a_column_of_zeros() -> None:
    assert nnls(np.array([[0.0, 1.0], [0.0, 2.0]]), np.array([1.0, 2.0])).tolist() == pytest.approx(
        [0.0, 1.0]
    )


@pytest.mark.parametrize("overlap", OVERLAPS)
def test_a_known_model_is_found_again(overlap: str) -> None:
    truth = LatencyModel(overlap, TRUE_S, floor_s=0.0 if overlap == "additive" else 0.02, fixed_s=0.001)
    steps = random_steps(300)
    observed = [Observed(str(n), [step], truth.step_s(step)) for n, step in enumerate(steps)]
    fits = compare(Problem.of(observed), [0.0, 0.01, 0.02, 0.03])
    assert min(fits, key=lambda name: fits[name].rms) == overlap
    found = fits[overlap]
    assert found.rms < 1e-6
    assert found.model.floor_s == truth.floor_s
    for name, value in TRUE_S.items():
        assert found.model.per[name] == pytest.approx(value, rel=1e-3)


def test_sums_medians_and_bare_work_are_predicted_as_they_were_observed() -> None:
    model = LatencyModel("step_floor", TRUE_S, floor_s=0.02, weights_s=0.005)
    steps = random_steps(25)
    times = sorted(model.step_s(step) for step in steps)
    observed = [
        Observed("sum", steps, 1.0),
        Observed("median", steps, 1.0, "median"),
        Observed("max", steps, 1.0, "max"),
        Observed("bare", [[Features(decode_attended=1000)]], 1.0, bare=True),
    ]
    expected = [sum(times), times[12], times[-1], 1000 * TRUE_S["decode_attended"]]
    assert predicted(Problem.of(observed, weights_s=0.005), model) == pytest.approx(expected)


def test_a_tie_holds() -> None:
    steps = random_steps(100)
    truth = LatencyModel("additive", {"positions": 6e-5, "prefill_attended": 6e-9})
    observed = [Observed(str(n), [step], truth.step_s(step)) for n, step in enumerate(steps)]
    problem = Problem.of(observed, ties={"prefill_attended": ("positions", 1e-4)})
    found = fit(problem, "additive", 0.0).model.per
    assert found["prefill_attended"] == pytest.approx(1e-4 * found["positions"])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"overlap": "step_flor"}, "did you mean 'step_floor'"),
        ({"per": {"position": 1.0}}, "did you mean 'positions'"),
        ({"floor_s": float("nan")}, "floor_s must be finite"),
        ({"per": {"positions": -1.0}}, "positions must be finite and at least 0"),
    ],
)
def test_a_wrong_model_is_refused(change: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        LatencyModel(**({"overlap": "additive", "per": {}} | change))  # type: ignore[arg-type]


def test_counts_outside_the_fit_are_named() -> None:
    model = LatencyModel("additive", {}, fitted={"forwards": (1, 2), "positions": (1, 512)})
    assert model.outside(Features(1, 512)) == []
    assert model.outside(Features(1, 513, 7)) == ["positions", "prefill_attended"]


@given(st.integers(1, 600), st.integers(0, 10**6), st.integers(0, 64), st.sampled_from([0.0, 0.005]))
def test_the_short_way_to_a_forward_says_the_same(
    positions: int, attended: int, rows: int, weights_s: float
) -> None:
    timer = StepTimer(LatencyModel("step_floor", {"forwards": 1e-3, **TRUE_S}, weights_s=weights_s))
    seen, growth = 100 * rows, positions**2
    counts = Features(1, positions, attended, decode_rows=rows, decode_attended=seen)
    more = Features(prefill_attended=growth, decode_attended=rows)
    assert timer.packed_work((positions, attended, growth, rows, seen, 0)) == (
        timer.work(counts),
        timer.work(more),
    )
    alone = Features(1, rows, decode_rows=rows, decode_attended=seen), Features(decode_attended=rows)
    for _ in range(2):  # the second time from what is remembered
        assert timer.decode_work(rows, seen) == tuple(map(timer.work, alone))


@given(
    st.integers(0, 3),
    st.integers(0, 20),
    st.integers(0, 5),
    st.integers(0, 20),
    st.integers(0, 3),
    st.integers(1, 9),
)
def test_the_short_way_to_a_range_says_the_same(
    forwards: int, attended: int, growth: int, seen: int, rows: int, num_steps: int
) -> None:
    """A run of steps at once, from below a range, into it and beyond it, or over it."""
    fitted = {"forwards": (1, 2), "prefill_attended": (3, 12), "decode_attended": (5, 7)}
    model = LatencyModel("additive", {}, fitted=fitted)
    steps = [
        Features(forwards, prefill_attended=attended + n * growth, decode_attended=seen + n * rows)
        for n in range(num_steps)
    ]
    names = [model.outside(step) for step in steps]
    largest: dict[str, int] = {}
    for step, outside in zip(steps, names, strict=True):
        largest |= {name: getattr(step, name) for name in outside}  # counts only grow
    timer = StepTimer(model)
    more = Features(prefill_attended=growth, decode_attended=rows)
    assert timer.within(steps[0], steps[-1]) == (not any(names))
    assert timer.outside(steps[0], more, num_steps) == (sum(map(bool, names)), largest)


def noisy(factors: np.ndarray) -> tuple[LatencyModel, LatencyModel, list[list[Features]], list[float]]:
    """(the truth, what is fitted, steps, their times) where each time is off by a factor."""
    truth = LatencyModel("additive", TRUE_S, fixed_s=0.001)
    steps = random_steps(len(factors))
    seconds = [truth.step_s(step) * factor for step, factor in zip(steps, map(float, factors), strict=True)]
    observed = [
        Observed(str(n), [step], time) for n, (step, time) in enumerate(zip(steps, seconds, strict=True))
    ]
    return truth, fit(Problem.of(observed), "additive", 0.0).model, steps, seconds


def test_noise_leaves_the_mean_where_it_is() -> None:
    """Times that scatter by a fifth: what is fitted adds up to what was measured.

    Errors relative to the measured times would find 8% less.
    """
    truth, found, steps, seconds = noisy(np.random.default_rng(0).gamma(25.0, 1 / 25.0, 3000))
    assert sum(map(found.step_s, steps)) == pytest.approx(sum(seconds), rel=0.01)
    assert sum(map(found.step_s, steps)) == pytest.approx(sum(map(truth.step_s, steps)), rel=0.02)


@pytest.mark.parametrize(("every", "slower"), [(20, 4.0), (50, 20.0)])
def test_a_neighbour_now_and_then_moves_little(every: int, slower: float) -> None:
    """A slowed step pulls like one of twice the time: a step in twenty by 5%, a step in fifty by 2%, however slow."""
    factors = np.random.default_rng(0).gamma(100.0, 1 / 100.0, 3000)
    factors[::every] *= slower
    truth, found, steps, _ = noisy(factors)
    expected = (1 + 1 / every) * sum(map(truth.step_s, steps))
    assert sum(map(found.step_s, steps)) == pytest.approx(expected, rel=0.015)


def test_the_best_fit_is_the_one_of_least_deviance() -> None:
    truth = LatencyModel("step_floor", TRUE_S, floor_s=0.02)
    steps = random_steps(200)
    fits = compare(Problem.of([Observed(str(n), [s], truth.step_s(s)) for n, s in enumerate(steps)]), [0.02])
    assert best_fit(fits) is fits["step_floor"]
    assert fits["step_floor"].deviance < 1e-9 < fits["additive"].deviance
