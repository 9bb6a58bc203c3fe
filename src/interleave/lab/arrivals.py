"""When requests arrive: Poisson, gamma or all at once. Knows nothing about what they ask for.

Due times are seconds from the start of the run, rounded to a nanosecond so that a trace has the
same text, and hash, on every platform's maths library. Gaps are never clipped: the long ones are
what a queue has to survive.
"""

from __future__ import annotations

import math
import random


def at_once(num_requests: int) -> tuple[float, ...]:
    """Every request due at 0: a closed run."""
    return (0.0,) * _checked_count(num_requests)


def poisson(rate: float, num_requests: int, seed: int = 0) -> tuple[float, ...]:
    """Poisson arrivals at `rate` requests/s: consecutive `expovariate` gaps of `random.Random(seed)`.

    The first request arrives after the first gap, not at 0. Seed 0 gives the published arrivals.
    """
    rate = checked_positive("rate", rate, "requests/s")
    rng = random.Random(seed)
    return _cumulative([rng.expovariate(rate) for _ in range(_checked_count(num_requests))])


def gamma(rate: float, cv: float, num_requests: int, seed: int = 0) -> tuple[float, ...]:
    """Arrivals with gamma gaps of mean 1/rate and coefficient of variation `cv`.

    A gamma variable with shape k has cv = 1/sqrt(k), so k = 1/cv**2; cv 1 is a Poisson process,
    above 1 is burstier, below 1 more regular.
    """
    rate = checked_positive("rate", rate, "requests/s")
    cv = checked_positive("cv", cv, "standard deviation over mean of the gaps")
    rng = random.Random(seed)
    shape = 1.0 / cv**2
    return _cumulative(
        [rng.gammavariate(shape, 1.0 / (rate * shape)) for _ in range(_checked_count(num_requests))]
    )


def checked_positive(name: str, value: float, unit: str) -> float:
    """`value` as a float; raises ValueError unless it is a finite number above 0."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value <= 0:
        raise ValueError(f"{name} must be a finite number above 0 ({unit}), got {value!r}")
    return float(value)


def _checked_count(num_requests: int) -> int:
    if not isinstance(num_requests, int) or isinstance(num_requests, bool) or num_requests < 1:
        raise ValueError(f"num_requests must be an integer of at least 1, got {num_requests!r}")
    return num_requests


def _cumulative(gaps_s: list[float]) -> tuple[float, ...]:
    due_s, total = [], 0.0
    for gap_s in gaps_s:
        total += gap_s
        due_s.append(round(total, 9))
    if not math.isfinite(total):
        raise ValueError(f"the arrivals reach {total} s: the rate is too small")
    return tuple(due_s)
