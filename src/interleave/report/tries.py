"""`interleave try`: one notebook with changed parameters, beside the page that it would replace.

Page and points of a try lie in `_build/try`, which is laid out like a checkout; published pages, the preview
and their points are read and never written.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from interleave.lab.paths import repo_root
from interleave.lab.results import PointStore
from interleave.report.book import build_site
from interleave.report.difference import Difference, difference
from interleave.report.difference_text import markdown_box
from interleave.report.layout import executed_folder, failed_folder, output_root, results_root, tried_root
from interleave.report.parameters import read_source
from interleave.report.runner import RunFailed, resolve_parameters, run_notebook
from interleave.report.runs import Page, Run, find_pages, load_runs, try_site
from interleave.report.source import load_notebook

USUAL = "quick"  # what a try is compared with where its own profile has no page


@dataclass(frozen=True)
class Try:
    """A finished try: what moved, and how many of its points were measured for it."""

    difference: Difference
    num_points: int
    num_measured: int


def try_notebook(
    path: Path,
    *,
    profile: str = USUAL,
    overrides: Mapping[str, Any] | None = None,
    time_limit_s: float | None = None,
    say: Callable[[str], None] = print,
) -> Try:
    """Run the template at `path` apart and compare it with its page.

    The page is that of `profile`, else the quick run's, which is made first where there is none. Stored
    points are read, and those of earlier tries. Raises what `run_notebook` raises; a try that failed
    leaves no page to publish.
    """
    source = read_source(path)
    resolve_parameters(source, profile, overrides or {})  # refuses before anything is run
    before = standing_page(path, profile)
    if before is None:
        say(
            f"{path.stem} has no page of profile {profile} and no quick run to compare with: running that first"
        )
        run_notebook(path, profile=USUAL, say=say)
        before = standing_page(path, USUAL)
    assert before is not None
    root = tried_root(output_root())
    copy_points(profile, root)
    slug = source.experiment_name.rpartition(".")[2]
    stored = set(PointStore(results_root(profile, root), profile, slug).keys())
    page, failed = executed_folder(profile, root) / path.name, failed_folder(root) / path.name
    try:
        run_notebook(
            path, profile=profile, overrides=overrides, time_limit_s=time_limit_s, root=root, say=say
        )
    except RunFailed:
        page.unlink(missing_ok=True)
        raise
    failed.unlink(missing_ok=True)
    after = read_page(page, profile, root)
    keys = set(after.origin["point_keys"])
    return Try(difference(before, after), len(keys), len(keys - stored))


def build_try_site(tried: Try, say: Callable[[str], None] = print) -> Path | None:
    """The tried page, with what moved under its title, among its profile's other pages; its path.

    None for a notebook that the run list does not name: no site has a page for it.
    """
    after = tried.difference.after
    listed = load_runs(repo_root())
    if after.run not in listed:
        return None
    site = try_site(after.tier)
    pages = {page.run: page for page in find_pages(repo_root(), site, output_root())}
    pages[after.run] = replace(after, remark=markdown_box(tried.difference))
    index = build_site(
        repo_root(), site, say, runs_root=output_root(), pages=[pages[run] for run in listed if run in pages]
    )
    return index.parent / "book" / "pages" / f"{after.run.notebook}.html"


def standing_page(path: Path, profile: str) -> Page | None:
    """The page that a try of the template at `path` is compared with."""
    for tier in dict.fromkeys((profile, USUAL)):
        page = executed_folder(tier, output_root()) / path.name
        if page.is_file():
            return read_page(page, tier, output_root())
    return None


def read_page(path: Path, tier: str, root: Path) -> Page:
    """An executed notebook with its entry of the run list, or one made up for a notebook that has none."""
    notebook = load_notebook(path)
    named = {run.notebook: run for run in load_runs(repo_root())}
    made_up = Run(path.stem, str(notebook.metadata.get("interleave", {}).get("experiment")), path.stem)
    return Page(named.get(path.stem, made_up), tier, path, notebook, root)


def copy_points(profile: str, root: Path, leave: str = "") -> None:
    """Give a run apart all points that the profile has, less those of the experiment `leave`, so that it measures
    only what is missing."""
    stored = results_root(profile, output_root()) / profile
    if stored.is_dir():
        ignored = shutil.ignore_patterns(".*", leave)  # the first are half-written
        shutil.copytree(stored, results_root(profile, root) / profile, ignore=ignored, dirs_exist_ok=True)
