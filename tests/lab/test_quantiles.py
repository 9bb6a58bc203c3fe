"""Which percentile a sample supports, and its value beside numpy's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interleave.lab.quantiles import distribution, quantile, supports

samples = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60)


@pytest.mark.parametrize(
    ("percent", "fewest"), [(50, 1), (90, 100), (95, 200), (99, 1000), (10, 100), (99.9, 10_000)]
)
def test_fewest_samples_of_a_percentile(percent, fewest):
    assert supports(fewest, percent)
    assert not supports(fewest - 1, percent)


def test_400_requests_support_p95_not_p99():
    found = distribution(range(400))
    assert (found["p50"], found["p90"], found["p95"], found["p99"]) == (199.5, 359.1, 379.05, None)


def test_one_sample_is_its_own_median_without_spread():
    assert distribution([3.0]) == {
        "n": 1,
        "p50": 3.0,
        "p90": None,
        "p95": None,
        "p99": None,
        "min": 3.0,
        "max": 3.0,
        "spread": None,
    }


def test_no_sample_is_null_everywhere():
    found = distribution([])
    assert found.pop("n") == 0
    assert set(found.values()) == {None}


@given(samples)
def test_median_and_spread_agree_with_numpy(values):
    found = distribution(values)
    assert found["p50"] == pytest.approx(np.percentile(values, 50), abs=1e-9)
    if len(values) > 1:
        quartiles = np.percentile(values, [25, 75])
        assert found["spread"] == pytest.approx(quartiles[1] - quartiles[0], abs=1e-9)


@pytest.mark.parametrize("percent", [90, 95, 99])
@pytest.mark.parametrize("num_samples", [1000, 1001, 1777])
def test_tail_agrees_with_numpy(num_samples, percent):
    values = np.random.default_rng(num_samples).lognormal(size=num_samples).tolist()
    assert quantile(values, percent) == pytest.approx(np.percentile(values, percent), rel=1e-12)


@pytest.mark.parametrize("percent", [0, 100, -5, float("nan")])
def test_percent_out_of_range(percent):
    with pytest.raises(ValueError, match="percentile lies"):
        quantile([1.0], percent)
