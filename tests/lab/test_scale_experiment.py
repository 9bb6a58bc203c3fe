"""The experiment on scale: points follow parameters, and each simulates the machines that it names."""

from __future__ import annotations

from typing import Any

import pytest
from experiment_choices import CHOICES

from interleave.lab.experiments import scale as experiment
from interleave.lab.experiments.scale import Params
from interleave.lab.ways_to_serve import WAYS

SMALL = CHOICES["scale"].small


def measured(label: str) -> dict[str, Any]:
    (point,) = (point for point in experiment.points(Params(**SMALL)) if point.label == label)
    (row,) = experiment.measure(point, None, {})
    return row


def test_a_fleet_serves_at_a_rate_of_its_size() -> None:
    alone, two = measured("1 x round_robin"), measured("2 x least_loaded")
    assert two["rate"] == pytest.approx(2 * alone["rate"])
    assert (alone["machines"], two["machines"]) == (1, 2)
    assert 0 < two["ttft_p50_s"] <= two["ttft_p90_s"]
    assert 0 < two["busy_least"] <= two["busy_most"] <= 1


def test_a_split_has_the_machines_that_it_names_and_calmer_decoding() -> None:
    together, apart = measured("0+2 at 0.6, 32 rows, 100 Gb/s"), measured("1+1 at 0.6, 32 rows, 100 Gb/s")
    assert (together["prefill_machines"], apart["prefill_machines"]) == (0, 1)
    assert apart["gap_p99_s"] < together["gap_p99_s"]


def test_a_target_keeps_the_worst_gap() -> None:
    row = measured("target 0.06 s")
    assert row["worst_gap_s"] <= 0.06 + 1e-9
    assert row["target_s"] == 0.06


def test_the_cost_is_of_the_run_that_it_names() -> None:
    row = measured("cost of 100")
    assert row["requests"] == 100
    assert row["seconds"] > 0
    assert row["requests_per_s"] == pytest.approx(100 / row["seconds"])


def test_a_rate_within_limits_is_below_the_saturated_one_times_a_quarter_more() -> None:
    row = measured("capacity of chunked")
    assert 0 < row["rate"] < 1.25 * row["saturated_rate"]
    assert row["share_reached"] >= 0.9


def test_every_way_to_serve_meets_the_same_requests() -> None:
    rows = {way: measured(f"{way} on 2") for way in WAYS}
    assert len({row["rate"] for row in rows.values()}) == 1
    assert rows["chunked"]["worst_gap_s"] < rows["whole"]["worst_gap_s"]
    assert rows["apart"]["gap_p99_s"] < rows["chunked"]["gap_p99_s"]
    assert rows["static"]["saturated_rate"] < rows["chunked"]["saturated_rate"]


def test_an_agents_prompt_is_told_from_the_others() -> None:
    whole, chunked = (measured(f"{way}, agents of 8,192") for way in ("whole", "chunked"))
    assert whole["agents"] == chunked["agents"] > 0
    assert whole["rate"] == chunked["rate"]
    assert chunked["worst_gap_s"] < whole["worst_gap_s"]
    assert chunked["agent_ttft_p50_s"] > chunked["other_ttft_p90_s"] > 0
    assert 0 <= chunked["outside_share"] <= 1
