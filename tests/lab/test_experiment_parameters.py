"""What holds for the parameters of every experiment: each one moves what is recorded, and profiles are sound."""

from __future__ import annotations

import math
from typing import Any

import pytest
import yaml
from experiment_choices import CHOICES, configs, experiment
from pydantic import ValidationError

from interleave.lab.choices import ModelChoices
from interleave.lab.paths import repo_root

PROFILES = [(name, profile) for name in CHOICES for profile in sorted(experiment(name).PROFILES)]


@pytest.mark.parametrize(
    ("name", "parameter", "value"),
    [(name, parameter, value) for name in CHOICES for parameter, value in CHOICES[name].changes],
)
def test_every_parameter_changes_what_is_recorded(name: str, parameter: str, value: Any) -> None:
    beside = CHOICES[name].beside.get(parameter, {})
    assert configs(name, **beside, **{parameter: value}) != configs(name, **beside)


@pytest.mark.parametrize(
    ("name", "changed"),
    [("closed_batches", {"chunked", "mixed"}), ("arrival_curves", {"whole", "chunked", "mixed"})],
)
def test_another_chunk_budget_measures_only_what_it_moves(name: str, changed: set[str]) -> None:
    """The engines that a budget does not reach keep their points, and the reference capacity is one for all."""
    engines = ("paged", *sorted(changed))
    before, after = configs(name, engines=engines), configs(name, engines=engines, chunk_budget=7)
    assert {config["engine"] for config in after if config not in before} == changed
    same = [config for config in after if config in before]
    assert {"paged"} <= {config["engine"] for config in same} <= {"paged", "chunked"}


def test_every_chapter_is_tried() -> None:
    chapters = yaml.safe_load((repo_root() / "book" / "runs.yml").read_text())
    assert {chapter["experiment"] for chapter in chapters} == set(CHOICES)


@pytest.mark.parametrize("name", CHOICES)
def test_every_parameter_is_tried(name: str) -> None:
    assert {parameter for parameter, _ in CHOICES[name].changes} == set(experiment(name).Params.model_fields)


@pytest.mark.parametrize(("name", "profile"), PROFILES)
def test_profiles_are_valid_and_estimated(name: str, profile: str) -> None:
    """Points find one another by label, so no label stands for two."""
    module = experiment(name)
    params = module.Params(**module.PROFILES[profile])
    seconds, points = module.estimate_s(params), module.points(params)
    assert len(seconds) == len(points) == len({point.label for point in points})
    assert min(seconds) > 0


RATES = [
    (name, parameter)
    for name in CHOICES
    for parameter in experiment(name).Params.model_fields
    if parameter.endswith(("loads", "rates"))
]


@pytest.mark.parametrize("values", [(), (math.nan,), (math.inf,), (0.0,), (-1.0,), (0.5, math.nan)])
@pytest.mark.parametrize(("name", "parameter"), RATES)
def test_rates_that_cannot_be_are_refused_by_name(
    name: str, parameter: str, values: tuple[float, ...]
) -> None:
    with pytest.raises(ValidationError, match=parameter):
        experiment(name).Params(**{parameter: values})


def test_a_model_name_that_no_file_system_takes_is_refused_in_short() -> None:
    with pytest.raises(ValueError, match=r"model 'a{60}'\.\.\. \(5000 characters\): File name too long"):
        ModelChoices(model="a" * 5000)
