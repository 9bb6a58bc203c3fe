"""The run list, `book/runs.yml`, and which executed notebook stands for a run on which site. Runs nothing."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import nbformat
import yaml
from nbformat import NotebookNode

from interleave.report.freshness import PageState, page_state
from interleave.schedule.names import nearest


@dataclass(frozen=True)
class Run:
    """One notebook: `notebook` is its file's stem, `experiment` its module in `lab.experiments`.

    `headline` notebooks are the ones that `interleave report` runs.
    """

    notebook: str
    experiment: str
    title: str
    headline: bool = False


def load_runs(root: Path) -> list[Run]:
    """The runs listed in `root/book/runs.yml`, in order.

    ValueError for an entry with an unknown or missing key, or a notebook named twice.
    """
    path = root / "book" / "runs.yml"
    known = {field.name for field in fields(Run)}
    runs: list[Run] = []
    entries = yaml.safe_load(path.read_text("utf8")) or []
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(f"{path}: must be a list of runs, each with notebook, experiment and title")
    for number, entry in enumerate(entries, 1):
        for key in sorted(set(entry) - known):
            raise ValueError(f"{path}: entry {number}: {nearest('key', key, sorted(known))}")
        if missing := {"notebook", "experiment", "title"} - set(entry):
            raise ValueError(f"{path}: entry {number} lacks {', '.join(sorted(missing))}")
        run = Run(**entry)
        if any(run.notebook == other.notebook or run.experiment == other.experiment for other in runs):
            raise ValueError(f"{path}: entry {number} lists {run.notebook} ({run.experiment}) a second time")
        runs.append(run)
    return runs


@dataclass(frozen=True)
class Site:
    """Where a site takes its executed notebooks from (first tier that has one) and where it goes."""

    name: str
    executed: str
    tiers: tuple[str, ...]
    output: str


BOOK = Site("book", "book/executed", ("gpu", "cpu", "quick"), "_build/html")
PREVIEW = Site("preview", "_build/executed", ("quick",), "_build/preview")
SITES = {site.name: site for site in (BOOK, PREVIEW)}


@dataclass(frozen=True, eq=False)
class Page:
    """An executed notebook that becomes a page, and the tier that it was measured at."""

    run: Run
    tier: str
    path: Path
    notebook: NotebookNode

    @property
    def origin(self) -> dict[str, Any]:
        """What the runner recorded about the execution: parameters, device, versions, numbers."""
        return dict(self.notebook.metadata.get("interleave", {}))

    @cached_property
    def state(self) -> PageState:
        """Whether the page still says what today's sources say."""
        return page_state(self.path, self.tier)

    @property
    def mark(self) -> str:
        """Where the numbers of this page come from: a device with a driver is a GPU."""
        return "measured-gpu" if self.origin.get("driver") else "measured-cpu"


def find_pages(root: Path, site: Site, runs_root: Path | None = None) -> list[Page]:
    """The pages this site can show, in the order of the run list; an experiment without one is left out.

    runs_root: where executed notebooks lie, if not below `root` (see `layout.output_root`).
    """
    pages = []
    for run in load_runs(root):
        for tier in site.tiers:
            path = (runs_root or root) / site.executed / tier / f"{run.notebook}.ipynb"
            if path.is_file():
                pages.append(Page(run, tier, path, nbformat.read(path, as_version=4)))
                break
    return pages
