"""Which executed notebook stands for a run on which site. Runs nothing."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from interleave.report.freshness import PageState, page_state
from interleave.report.layout import executed_folder
from interleave.report.marks import measured_with
from interleave.report.run_list import Run as Run
from interleave.report.run_list import load_runs as load_runs
from interleave.report.source import load_notebook


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
TRY = "try"


def try_site(profile: str) -> Site:
    """The site of a try: the pages of its own profile beside it."""
    return Site(TRY, executed_folder(profile, Path()).parent.as_posix(), (profile,), "_build/try/site")


@dataclass(frozen=True, eq=False)
class Page:
    """An executed notebook that becomes a page, and the tier that it was measured at.

    root: below which its points are stored, if not the output root; remark: Markdown to stand under its title.
    """

    run: Run
    tier: str
    path: Path
    notebook: NotebookNode
    root: Path | None = None
    remark: str = ""

    @property
    def origin(self) -> dict[str, Any]:
        """What the runner recorded about the execution: parameters, device, versions, numbers."""
        return dict(self.notebook.metadata.get("interleave", {}))

    @cached_property
    def state(self) -> PageState:
        """Whether the page still says what today's sources say."""
        return page_state(self.path, self.tier, self.root)

    @property
    def mark(self) -> str:
        """Where the numbers of this page come from: a simulation, or the device that measured them."""
        return "simulated" if self.run.simulated else measured_with(self.origin.get("driver"))


def find_pages(root: Path, site: Site, runs_root: Path | None = None) -> list[Page]:
    """The pages this site can show, in the order of the run list; an experiment without one is left out.

    runs_root: where executed notebooks lie, if not below `root` (see `layout.output_root`).
    """
    pages = []
    runs_root = runs_root or root
    for run in load_runs(root):
        for tier in site.tiers:
            path = runs_root / site.executed / tier / f"{run.notebook}.ipynb"
            if path.is_file():
                pages.append(Page(run, tier, path, load_notebook(path), runs_root))
                break
    return pages
