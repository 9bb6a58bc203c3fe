"""Gaps by bins: counts and ends are exact, quantiles within a thousandth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interleave.lab.gap_histogram import GapHistogram

RUNS = st.lists(
    st.tuples(st.floats(1e-4, 10), st.floats(1e-4, 10), st.integers(1, 20), st.integers(1, 30)),
    min_size=1,
    max_size=30,
)


@given(RUNS)
def test_it_says_what_the_values_say(runs: list[tuple[float, float, int, int]]) -> None:
    histogram, values = GapHistogram(), []
    for first, last, steps, count in runs:
        histogram.add_run(first, last if steps > 1 else first, steps, count)
        values += list(np.repeat(np.linspace(first, last if steps > 1 else first, steps), count))
    values.sort()
    found = histogram.distribution()
    assert found["n"] == len(values)
    assert (found["min"], found["max"]) == pytest.approx((values[0], values[-1]))
    exact = values[(len(values) - 1) // 2], values[len(values) // 2]
    assert exact[0] / 1.002 <= found["p50"] <= exact[1] * 1.002
    pairs = histogram.pairs()
    assert pairs[0] @ pairs[1] == pytest.approx(sum(values))


def test_an_empty_one_says_nothing() -> None:
    found = GapHistogram().distribution()
    assert found.pop("n") == 0
    assert set(found.values()) == {None}
