"""The small-pool experiment: points follow parameters, and a point measures what it says."""

from __future__ import annotations

from typing import Any

import pytest
from experiment_choices import CHOICES

from interleave.lab.experiments import small_pool as experiment
from interleave.lab.experiments.small_pool import Params

SMALL = CHOICES["small_pool"].small


def test_a_pool_that_the_largest_request_does_not_fit_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"a share of 0\.1 of \d+ blocks has no room for the largest request"
    ):
        Params(**(SMALL | {"shares": (0.1,)}))


@pytest.fixture(scope="module")
def rows() -> dict[str, list[dict[str, Any]]]:
    """The rows of every point, by its label."""
    params = Params(**SMALL)
    setting = experiment.prepare(params)
    return {point.label: experiment.measure(point, setting, {}) for point in experiment.points(params)}


@pytest.mark.parametrize("batch", ["mixed", "uniform"])
def test_a_run_sums_its_steps_up(batch: str, rows: dict[str, list[dict[str, Any]]]) -> None:
    for label, found in rows.items():
        if not label.startswith(batch):
            continue
        whole, *steps = found
        assert [row["kind"] for row in found] == ["run"] + ["step"] * len(steps)
        assert len(steps) == whole["steps"]
        assert sum(step["preempted"] for step in steps) == whole["preemptions"]
        assert max(step["rows"] for step in steps) == whole["most_rows"]
        assert all(step["owned_blocks"] <= whole["num_blocks"] for step in steps)
        assert 0 < whole["mean_cached_tokens"] <= whole["mean_used_blocks"] * whole["block_tokens"]


def test_the_rules_differ_as_they_should(rows: dict[str, list[dict[str, Any]]]) -> None:
    ample, reserve, progressive = (
        rows[f"uniform12, {share}% of the blocks, {rule}"][0]
        for share, rule in ((100, "reserve"), (34, "reserve"), (34, "progressive"))
    )
    assert ample["most_rows"] == 12 > progressive["most_rows"] > reserve["most_rows"]
    assert ample["preemptions"] == reserve["preemptions"] == 0 < progressive["preemptions"]
    assert reserve["recomputed_tokens"] == 0 < progressive["recomputed_tokens"]
    assert progressive["prefill_tokens"] - progressive["recomputed_tokens"] == reserve["prefill_tokens"]
    assert progressive["mean_owned_blocks"] == pytest.approx(progressive["mean_used_blocks"])
    assert reserve["mean_owned_blocks"] > reserve["mean_used_blocks"]
