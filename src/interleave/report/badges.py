"""Whether a built site tells its readers which pages are out of date. Reads HTML; builds nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from interleave.lab.paths import repo_root
from interleave.report.freshness import FRESH, STALE
from interleave.report.layout import output_root
from interleave.report.runs import BOOK, PREVIEW, Page, find_pages
from interleave.report.simulated import simulation_states
from interleave.report.status import BADGE


def badge_faults(site: Path, pages: Iterable[Page], simulations: Iterable[str] = ()) -> list[str]:
    """Where this site shows one of the pages that is out of date, or a number of it, without a visible badge; or the
    drawing of one of these simulations, all of which are stale."""
    found = [fault for page in pages if page.state.state != FRESH for fault in _unmarked(site, page)]
    for name in simulations:
        said = f"draws the simulation {name} (stale), but carries no badge that says so"
        found += [f"{shown}: {said}" for shown in _unmarked_quotes(site, name)]
    return found


def built_without_badge(*, preview: bool = False) -> list[str]:
    """Faults of the book as it was last built here, and of the preview: stale pages and simulations that are shown
    as if they were not, because they became stale since."""
    found = []
    simulations = [state.name for state in simulation_states(repo_root()) if state.state == STALE]
    for site in (BOOK, PREVIEW) if preview else (BOOK,):
        pages = find_pages(repo_root(), site, output_root())
        stale = [page for page in pages if page.state.state == STALE]
        for fault in badge_faults(repo_root() / site.output, stale, simulations):
            found.append(f"{site.output}/{fault}; build it again")
    return found


def _unmarked(site: Path, page: Page) -> Iterator[str]:
    name = f"book/pages/{page.run.notebook}.html"
    built = site / name
    if built.is_file() and not shows(built.read_text("utf8"), BADGE):
        yield f"{name}: {page.state.state}, but the page carries no badge that says so"
    said = f"quotes {page.run.notebook} ({page.state.state}), but carries no badge that says so"
    for shown in _unmarked_quotes(site, page.run.experiment):
        if shown != name:
            yield f"{shown}: {said}"


def _unmarked_quotes(site: Path, name: str) -> Iterator[str]:
    """The pages that show something of a chapter or a simulation, and no badge of its name."""
    for path in sorted(site.glob("book/**/*.html")):
        html = path.read_text("utf8")
        if re.search(rf"\bil-from-{name}(?![\w-])", html) and not shows(html, f"{BADGE}-{name}"):
            yield path.relative_to(site).as_posix()


def shows(html: str, name: str) -> bool:
    """Whether a page has a box of this class that nothing hides."""
    box = rf'<div class="(?:[^"]*\s)?{name}(?:\s[^"]*)?"(?![^>]*\b(?:hidden|style)\b)'
    return re.search(box, html) is not None
