"""The run list, `book/runs.yml`: which notebooks there are, and the chapter that each becomes. Runs nothing."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from interleave.report.readings import read_yaml
from interleave.schedule.names import nearest


@dataclass(frozen=True)
class Run:
    """One notebook: `notebook` is its file's stem, `experiment` its module in `lab.experiments`.

    `headline` notebooks are the ones that `interleave report` runs; a `simulated` one takes its numbers from
    the simulator, wherever it ran.
    """

    notebook: str
    experiment: str
    title: str
    headline: bool = False
    simulated: bool = False


def load_runs(root: Path) -> list[Run]:
    """The runs listed in `root/book/runs.yml`, in order.

    ValueError for an entry with an unknown or missing key, or a notebook named twice.
    """
    path = root / "book" / "runs.yml"
    known = {field.name for field in fields(Run)}
    runs: list[Run] = []
    entries = read_yaml(path, ValueError) or []
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(f"{path}: must be a list of runs, each with notebook, experiment and title")
    for number, entry in enumerate(entries, 1):
        for key in sorted(map(str, entry.keys() - known)):
            raise ValueError(f"{path}: entry {number}: {nearest('key', key, sorted(known))}")
        if missing := {"notebook", "experiment", "title"} - set(entry):
            raise ValueError(f"{path}: entry {number} lacks {', '.join(sorted(missing))}")
        for key, value in entry.items():
            if not isinstance(value, str if key in ("notebook", "experiment", "title") else bool):
                raise ValueError(f"{path}: entry {number}: {key} cannot be {value!r}")
        run = Run(**entry)
        if any(run.notebook == other.notebook or run.experiment == other.experiment for other in runs):
            raise ValueError(f"{path}: entry {number} lists {run.notebook} ({run.experiment}) a second time")
        runs.append(run)
    return runs
