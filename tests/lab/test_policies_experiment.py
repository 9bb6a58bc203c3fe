"""The policies experiment: points follow parameters, and each kind of point says what it should."""

from __future__ import annotations

from typing import Any

import pytest
from experiment_choices import CHOICES

from interleave.lab.experiments import policies as experiment
from interleave.lab.experiments.policies import BASE_LABEL, LIMITS_LABEL, MAP_LABEL, Params
from interleave.lab.policy_runs import run_label

SMALL = CHOICES["policies"].small

FIRST = {"long": "long 0.35", "uniform": "uniform"}


def test_limits_come_in_pairs() -> None:
    with pytest.raises(ValueError, match="as many of the one as of the other"):
        Params(ttft_limits=(1.0,))


def test_a_run_that_several_comparisons_need_is_one_point() -> None:
    labels = [point.label for point in experiment.points(Params(**SMALL))]
    # The policies, the token budgets and the map all want it.
    assert labels.count("long 0.35, mixed decode_first, T 512, 0.6 x") == 1


@pytest.fixture(scope="module")
def rows() -> dict[str, list[dict[str, Any]]]:
    """The rows of every point, by its label."""
    params = Params(**SMALL)
    setting = experiment.prepare(params)
    found: dict[str, list[dict[str, Any]]] = {}
    for point in experiment.points(params):
        found[point.label] = experiment.measure(point, setting, found)
    return found


Found = dict[str, list[dict[str, Any]]]


def one(
    rows: Found, trace: str, policy: str, order: str, load: str = "0.6 x", budget: int = 512
) -> list[dict[str, Any]]:
    return [
        r for r in rows[f"{FIRST[trace]}, {policy} {order}, T {budget}, {load}"] if r["kind"] == "request"
    ]


def test_all_runs_at_a_load_share_one_arrival_rate(rows: Found) -> None:
    full = one(rows, "long", "chunked", "decode_first", "all waiting")[0]["served_rate"]
    runs = [own for label, own in rows.items() if label.startswith("long 0.35") and label.endswith(", 0.6 x")]
    assert len(runs) == 6 + 2  # policies x orders, and two further budgets
    assert {own[0]["rate"] for own in runs} == {0.6 * full}
    assert len({tuple(r["due_s"] for r in own if r["kind"] == "request") for own in runs}) == 1


def test_who_is_cut_is_long(rows: Found) -> None:
    requests = one(rows, "long", "mixed", "decode_first")
    assert {r["prompt_tokens"] for r in requests if r["long"]} == {96}
    assert not any(r["long"] for r in one(rows, "uniform", "mixed", "decode_first"))


def test_one_forward_or_two_a_step_and_small_budgets_take_more_steps(rows: Found) -> None:
    mixed, chunked = (
        one(rows, "long", "mixed", "decode_first"),
        one(rows, "long", "chunked", "decode_first", "all waiting"),
    )
    assert mixed[0]["run_forwards"] == mixed[0]["run_steps"]
    assert chunked[0]["run_forwards"] > chunked[0]["run_steps"]
    steps = [
        one(rows, "long", "mixed", "decode_first", "2.25 x", budget)[0]["run_steps"] for budget in (64, 8192)
    ]
    assert steps[0] > steps[1]


def test_forwards_are_kept_of_the_runs_that_the_map_is_fitted_to(rows: Found) -> None:
    kept = {label for label, own in rows.items() if any(r["kind"] == "forward" for r in own)}
    mapped = {"long 0.1, whole prefill_first, T 512, 0.6 x", "long 0.1, mixed decode_first, T 512, 0.6 x"}
    assert mapped <= kept
    assert "long 0.35, whole decode_first, T 512, 0.6 x" not in kept
    own = rows["long 0.1, mixed decode_first, T 512, 0.6 x"]
    forwards = [r for r in own if r["kind"] == "forward"]
    prompts = sum(r["prompt_tokens"] for r in own if r["kind"] == "request")
    assert sum(r["positions"] - r["decode_rows"] for r in forwards) == prompts


def test_steps_are_timed_alone_and_together(rows: Found) -> None:
    base, ride = rows[BASE_LABEL], rows["chunks beside decodes"]
    assert [(r["form"], r["rows"]) for r in base] == [("decode", 3)] * 2
    forms = [(r["chunk"], r["form"]) for r in ride if r["repeat"] == 1]
    assert forms == [(chunk, form) for chunk in (4, 8) for form in ("decode", "one", "two", "chunk")]
    assert all(r["step_s"] > 0 for r in [*base, *ride])


def test_wider_limits_are_met_by_no_fewer(rows: Found) -> None:
    by_run: dict[str, list[dict[str, Any]]] = {}
    for row in rows[LIMITS_LABEL]:
        by_run.setdefault(run_label(row), []).append(row)
    assert len(by_run) == sum(label.endswith(" x") for label in rows)
    for first, second in by_run.values():
        assert first["gap_limit_s"] < second["gap_limit_s"]
        assert 0 <= first["within"] <= second["within"] <= 1


def test_the_map_covers_every_cell_and_every_measured_run(rows: Found) -> None:
    found = rows[MAP_LABEL]
    cells = [(r["share"], r["load"], r["policy"]) for r in found if r["kind"] == "cell"]
    assert len(cells) == len(set(cells)) == 7 * 6 * 2
    twins = {(r["share"], r["load"], r["policy"]) for r in found if r["kind"] == "twin"}
    assert twins == {
        (share, load, policy) for share in (0.1, 0.35) for load in (0.6,) for policy in ("whole", "mixed")
    } | {(0.35, 2.25, "mixed")}
