"""What the other chapters have on record: the stored points of each, at the parameters of one profile.

Reads point stores; measures nothing, and leaves out a chapter whose points are not all there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from pydantic import BaseModel

from interleave.lab.measure import MissingPoint, collect
from interleave.lab.paths import repo_root
from interleave.lab.reference import Published
from interleave.lab.results import PointStore
from interleave.report.layout import results_root
from interleave.report.marks import Value, measured_with
from interleave.report.parameters import load_experiment
from interleave.report.run_list import load_runs


@dataclass(frozen=True)
class Stored:
    """The rows of one chapter, what they were asked for, their mark, and the keys of the points."""

    frame: pd.DataFrame
    params: BaseModel
    mark: str
    keys: tuple[str, ...]


@dataclass(frozen=True)
class Evidence:
    """Published rows and simulated A10 figures by row id, and stored chapters by experiment."""

    published: Mapping[str, Published]
    simulated: Mapping[str, float]
    stored: Mapping[str, Stored]

    def value(self, row_id: str) -> float:
        """The published figure. KeyError for a row without one."""
        found = self.published[row_id].value
        if found is None:
            raise KeyError(f"published row {row_id} has no value")
        return found

    def measured(self, experiment: str, measure: Callable[[Stored], float | None]) -> float | None:
        """A number of a stored chapter; None where it has not run, or not with what the number needs."""
        if experiment not in self.stored:
            return None
        try:
            found = measure(self.stored[experiment])
        except (KeyError, IndexError):
            return None
        return None if found is None or pd.isna(found) else float(found)

    def marked(self, experiment: str, text: str, mark: str | None = None) -> Value:
        """A text about a stored chapter, with the mark of its numbers, or its own where it has another."""
        return Value(text, mark or self.stored[experiment].mark, experiment)


def chapters() -> dict[str, str]:
    """Title of every chapter in the run list, by experiment."""
    return {run.experiment: run.title for run in load_runs(repo_root())}


def keys_of(stored: Mapping[str, Stored]) -> dict[str, list[str]]:
    """The points of every chapter, none for one that is not stored: JSON-able, and comparable."""
    return {name: sorted(stored[name].keys) if name in stored else [] for name in sorted(chapters())}


def stored_results(experiments: list[str], profile: str, root: Path) -> dict[str, Stored]:
    """The chapters of `experiments` whose points are all stored at the profile's own parameters."""
    found = {}
    simulated = {run.experiment for run in load_runs(repo_root()) if run.simulated}
    for name in experiments:
        experiment = load_experiment(name)
        if profile not in experiment.PROFILES:
            continue
        params = experiment.Params(**experiment.PROFILES[profile])
        store = PointStore(results_root(profile, root), profile, name)
        try:
            points = collect(experiment, params, store, measure=False)
        except MissingPoint:
            continue
        mark = "simulated" if name in simulated else measured_with(points.origin()["driver"])
        found[name] = Stored(points.frame, params, mark, tuple(points.keys))
    return found
