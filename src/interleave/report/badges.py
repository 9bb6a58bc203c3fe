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

SHOWN = re.compile(rf'<div class="[^"]*\b{BADGE}\b[^"]*"(?![^>]*\b(?:hidden|style)\b)')


def badge_faults(site: Path, pages: Iterable[Page]) -> list[str]:
    """The pages, of those that this site shows, that are out of date and carry no visible badge, a line each."""
    return list(_unmarked(site, pages))


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


def _unmarked(site: Path, pages: Iterable[Page]) -> Iterator[str]:
    for page in pages:
        name = f"book/pages/{page.run.notebook}.html"
        built = site / name
        if page.state.state != FRESH and built.is_file() and not SHOWN.search(built.read_text("utf8")):
            yield f"{name}: {page.state.state}, but the page carries no badge that says so"
