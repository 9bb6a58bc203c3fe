"""Whether a built site tells its readers which pages are out of date. Reads HTML; builds nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from interleave.lab.paths import repo_root
from interleave.report.freshness import FRESH, STALE
from interleave.report.layout import output_root
from interleave.report.runs import BOOK, PREVIEW, Page, find_pages
from interleave.report.status import BADGE


def badge_faults(site: Path, pages: Iterable[Page]) -> list[str]:
    """Where this site shows one of the pages that is out of date, or a number of it, without a visible badge."""
    return [fault for page in pages if page.state.state != FRESH for fault in _unmarked(site, page)]


def built_without_badge(*, preview: bool = False) -> list[str]:
    """Faults of the book as it was last built here, and of the preview: stale pages that are shown as if they
    were not, because their points became stale since."""
    found = []
    for site in (BOOK, PREVIEW) if preview else (BOOK,):
        pages = find_pages(repo_root(), site, output_root())
        stale = [page for page in pages if page.state.state == STALE]
        for fault in badge_faults(repo_root() / site.output, stale):
            found.append(f"{site.output}/{fault}; build it again")
    return found


def _unmarked(site: Path, page: Page) -> Iterator[str]:
    name = f"book/pages/{page.run.notebook}.html"
    built = site / name
    if built.is_file() and not shows(built.read_text("utf8"), BADGE):
        yield f"{name}: {page.state.state}, but the page carries no badge that says so"
    experiment = page.run.experiment
    for other in sorted(set(site.glob("book/**/*.html")) - {built}):
        html = other.read_text("utf8")
        if re.search(rf"\bil-from-{experiment}(?![\w-])", html) and not shows(html, f"{BADGE}-{experiment}"):
            said = f"quotes {page.run.notebook} ({page.state.state}), but carries no badge that says so"
            yield f"{other.relative_to(site).as_posix()}: {said}"


def shows(html: str, name: str) -> bool:
    """Whether a page has a box of this class that nothing hides."""
    box = rf'<div class="(?:[^"]*\s)?{name}(?:\s[^"]*)?"(?![^>]*\b(?:hidden|style)\b)'
    return re.search(box, html) is not None
