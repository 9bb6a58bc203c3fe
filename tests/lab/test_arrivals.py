"""Arrival generators: mean and coefficient of variation within their sampling error, nothing clipped."""

import math
import statistics

import pytest

from interleave.lab.arrivals import at_once, gamma, poisson

NUM_GAPS = 40_000
# Five standard errors: a correct generator misses this once in about two million seeds.
SIGMAS = 5.0


def gaps_of(due_s):
    return [later - earlier for earlier, later in zip((0.0, *due_s), due_s, strict=False)]


def mean_and_cv(gaps):
    mean = statistics.fmean(gaps)
    return mean, statistics.pstdev(gaps) / mean


def cv_standard_error(cv, num_gaps):
    """Asymptotic standard error of the sample CV of gamma gaps (delta method).

    With variance v, third and fourth central moments of a gamma of mean 1 (2v^2 and 3v^2 + 6v^3):
    var(cv) = [m4 - v^2] / (4 v n) - m3 / n + v^2 / n.
    """
    v = cv**2
    return math.sqrt(((3 * v**2 + 6 * v**3 - v**2) / (4 * v) - 2 * v**2 + v**2) / num_gaps)


@pytest.mark.parametrize("rate", [0.25, 2.0, 7.0, 1000.0])
def test_poisson_mean_and_cv(rate):
    mean, cv = mean_and_cv(gaps_of(poisson(rate, NUM_GAPS, seed=11)))
    assert abs(mean * rate - 1) < SIGMAS / math.sqrt(NUM_GAPS)
    assert abs(cv - 1) < SIGMAS * cv_standard_error(1.0, NUM_GAPS)


@pytest.mark.parametrize("cv", [0.3, 1.0, 2.5])
def test_gamma_mean_and_cv(cv):
    mean, measured_cv = mean_and_cv(gaps_of(gamma(3.0, cv, NUM_GAPS, seed=5)))
    assert abs(mean * 3.0 - 1) < SIGMAS * cv / math.sqrt(NUM_GAPS)
    assert abs(measured_cv - cv) < SIGMAS * cv_standard_error(cv, NUM_GAPS)


def test_no_gap_is_clipped():
    """Of 40,000 exponential gaps 40,000 e^-3 = 1,991 exceed three means; the longest is near ln(40,000)."""
    gaps = gaps_of(poisson(1.0, NUM_GAPS, seed=11))
    beyond = sum(gap > 3.0 for gap in gaps)
    expected = NUM_GAPS * math.exp(-3)
    assert abs(beyond - expected) < SIGMAS * math.sqrt(expected)
    assert max(gaps) > 8.0


def test_a_seed_is_a_trace():
    assert poisson(2.0, 50, seed=1) == poisson(2.0, 50, seed=1)
    assert poisson(2.0, 50, seed=1) != poisson(2.0, 50, seed=2)
    assert poisson(2.0, 50) == poisson(2.0, 400)[:50]


def test_at_once():
    assert at_once(3) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("rate", [0, -1, math.nan, math.inf, -0.0, "2", None, True])
def test_bad_rate_is_refused(rate):
    for generate in (lambda: poisson(rate, 3), lambda: gamma(rate, 1.0, 3)):
        with pytest.raises(ValueError, match="rate must be a finite number above 0"):
            generate()


@pytest.mark.parametrize("cv", [0, -1, math.nan, math.inf])
def test_bad_cv_is_refused(cv):
    with pytest.raises(ValueError, match="cv must be"):
        gamma(1.0, cv, 3)


@pytest.mark.parametrize("count", [0, -1, 1.5, True])
def test_bad_count_is_refused(count):
    for generate in (at_once, lambda n: poisson(1.0, n), lambda n: gamma(1.0, 1.0, n)):
        with pytest.raises(ValueError, match="num_requests"):
            generate(count)


def test_rate_too_small_for_a_float_is_refused():
    with pytest.raises(ValueError, match="rate is too small"):
        poisson(1e-308, 100)
