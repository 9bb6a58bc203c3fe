"""The experiment on scale: points follow parameters, and each simulates the machines that it names."""

from __future__ import annotations

from typing import Any

import pytest

from interleave.lab.experiments import scale as experiment
from interleave.lab.experiments.scale import PROFILES, Params

SMALL: dict[str, Any] = {
    "cost_requests": (100,),
    "replicas": (1, 2),
    "routings": ("round_robin", "least_loaded"),
    "machines": 2,
    "apart_loads": (0.6,),
    "rows": (32,),
    "num_requests": 200,
    "budgets": (256,),
    "targets_s": (0.06,),
}
CHANGES: list[tuple[str, Any]] = [
    ("cost_requests", (100, 200)),
    ("load", 0.7),
    ("replicas", (1, 3)),
    ("routings", ("round_robin",)),
    ("machines", 3),
    ("apart_loads", (0.5,)),
    ("rows", (16,)),
    ("slow_gbps", 1.0),
    ("num_requests", 300),
    ("budgets", (128,)),
    ("targets_s", (0.05,)),
    ("ttft_limit_s", 1.0),
    ("gap_limit_s", 0.2),
    ("share", 0.8),
    ("seed", 1),
]


def configs(**changed: Any) -> list[dict[str, Any]]:
    return [dict(point.config) for point in experiment.points(Params(**{**SMALL, **changed}))]


@pytest.mark.parametrize(("name", "value"), CHANGES)
def test_every_parameter_changes_what_is_recorded(name: str, value: Any) -> None:
    assert configs(**{name: value}) != configs()


def test_every_parameter_is_tried_above() -> None:
    assert {name for name, _ in CHANGES} == set(Params.model_fields)


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_profiles_are_valid_and_estimated(profile: str) -> None:
    params = Params(**PROFILES[profile])
    found = experiment.points(params)
    assert len({point.label for point in found}) == len(found)
    assert len(experiment.estimate_s(params)) == len(found)
    assert min(experiment.estimate_s(params)) > 0


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
