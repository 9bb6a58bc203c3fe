"""Builds the site: stages one executed notebook an experiment, writes the values, runs Jupyter Book, checks.

A site is built aside and takes its place only when Sphinx had no warning and `report.site` found nothing, so
a failed build leaves the last good site untouched. Knows the folders of the repository; executes nothing.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path

import nbformat
import yaml
from filelock import FileLock, Timeout

from interleave.report.badges import badge_faults
from interleave.report.checks import faults
from interleave.report.drawings import drawings, stage_drawings
from interleave.report.figure_links import name_figures
from interleave.report.pages import dress_tables, insert_below_title, take_figure_texts
from interleave.report.runs import Page, Site, find_pages, load_runs
from interleave.report.site import check_site
from interleave.report.status import notice
from interleave.report.values import page_values, write_values

CELL_LINE = re.compile(r"(\.ipynb):(\d+)\d{4}:")  # MyST-NB counts line l of cell c as 10,000 c + l
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class BookError(RuntimeError):
    """The book cannot be built; the message says which page and why, one fault a line."""


def stage(root: Path, pages: list[Page]) -> None:
    """Check every page, then put them in `book/pages/`, emptied first; BookError lists all faults."""
    found = [f"{relative(page.path, root)}: {fault}" for page in pages for fault in faults(page.notebook)]
    if found:
        raise BookError("\n".join(found))
    folder = root / "book" / "pages"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for page in pages:
        notebook = deepcopy(page.notebook)
        take_figure_texts(notebook)
        name_figures(notebook, page.run.experiment)
        dress_tables(notebook)
        insert_below_title(notebook, notice(page) + page.remark)
        nbformat.write(notebook, folder / f"{page.run.notebook}.ipynb")


def relative(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


def documents(toc: dict) -> list[str]:
    """Every document that a table of contents names, the root first."""
    parts = toc.get("parts", [])
    return [toc["root"]] + [chapter["file"] for part in parts for chapter in part["chapters"]]


def check_toc(root: Path, toc: dict) -> None:
    """Table of contents, run list and prose files name one another, each exactly once."""
    named = documents(toc)
    faults = [f"_toc.yml names {name} twice" for name in sorted({n for n in named if named.count(n) > 1})]
    pages = {f"book/pages/{run.notebook}" for run in load_runs(root)}
    prose = {f"book/{path.stem}" for path in (root / "book").glob("*.md")}
    listed = {name for name in named if name.startswith("book/pages/")}
    faults += [f"{name} is in _toc.yml, but not in book/runs.yml" for name in sorted(listed - pages)]
    faults += [f"{name} is in book/runs.yml, but not in _toc.yml" for name in sorted(pages - listed)]
    faults += [f"{name}.md is in no part of _toc.yml" for name in sorted(prose - set(named))]
    faults += [f"_toc.yml names {name}, which does not exist" for name in sorted(set(named) - listed - prose)]
    if faults:
        raise BookError("\n".join(faults))


def staged_toc(toc: dict, pages: list[Page]) -> dict:
    """The table of contents less the experiments that this site has no page for."""
    have = {f"book/pages/{page.run.notebook}" for page in pages}
    parts = []
    for part in toc.get("parts", []):
        chapters = [
            chapter
            for chapter in part["chapters"]
            if chapter["file"] in have or not chapter["file"].startswith("book/pages/")
        ]
        if chapters:
            parts.append(part | {"chapters": chapters})
    return toc | {"parts": parts}


def run_sphinx(root: Path, toc: Path, output: Path) -> Path:
    """A clean, strict build into `output`; returns its folder of HTML. BookError carries the warnings."""
    shutil.rmtree(output, ignore_errors=True)
    command = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()", "build", str(root)]
    command += ["--toc", str(toc), "--path-output", str(output), "--builder", "html"]
    command += ["-n", "-W", "--keep-going", "-q"]
    # The order of sets must not reach the page: two builds of the same sources are equal, byte for byte.
    environment = os.environ | {"PYTHONHASHSEED": "0"}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        warnings = CELL_LINE.sub(r"\1: cell \2:", COLOUR.sub("", done.stderr).replace(f"{root}/", ""))
        raise BookError(warnings.strip() or done.stdout[-2000:])
    html = output / "_build" / "html"
    for leftover in html.glob("_static/*webpack-macros.html"):
        leftover.unlink()  # a template of the theme, not a page
    return html


def swap(built: Path, destination: Path) -> None:
    """Put `built` where `destination` was, by renames within one file system."""
    old = destination.with_name(destination.name + ".old")
    shutil.rmtree(old, ignore_errors=True)
    destination.parent.mkdir(parents=True, exist_ok=True)
    if destination.exists():
        destination.rename(old)
    built.rename(destination)
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def one_build_at_a_time(path: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Builds share `book/pages/` and `_build/`; a second one waits, and says that it does."""
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0.1)
    except Timeout:
        say("another build is running in this checkout; waiting for it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def build_site(
    root: Path,
    site: Site,
    say: Callable[[str], None] = print,
    runs_root: Path | None = None,
    pages: list[Page] | None = None,
) -> Path:
    """Build `site` from the repository at `root`; returns the path of its first page.

    `say` takes one line of progress at a time; `runs_root` is where executed notebooks and
    points lie, if not below `root`; `pages` stand for those that the site would find. Raises BookError;
    the last good site then stays.
    """
    root = root.resolve()
    build = root / "_build"
    build.mkdir(exist_ok=True)
    with one_build_at_a_time(build / "book.lock", say):
        toc = yaml.safe_load((root / "_toc.yml").read_text("utf8"))
        check_toc(root, toc)
        pages = find_pages(root, site, runs_root) if pages is None else pages
        named = ", ".join(f"{page.run.notebook} ({page.tier})" for page in pages)
        say(f"staging {len(pages)} executed notebooks: {named}" if pages else "no executed notebook yet")
        stage(root, pages)
        drawn = drawings(root, pages, runs_root or root)
        staged = stage_drawings(drawn, root / "book" / "pages")
        values = page_values(site.name, pages, runs_root or root, drawn, root)
        unstaged = {run.notebook for run in load_runs(root)} - {page.run.notebook for page in pages}
        write_values(build / "values.json", values | {"drawings": staged, "unstaged": sorted(unstaged)})
        (build / "toc.yml").write_text(yaml.safe_dump(staged_toc(toc, pages), sort_keys=False), "utf8")
        say("building, with every warning an error")
        built = run_sphinx(root, build / "toc.yml", build / f"building-{site.name}")
        stale = [drawing.name for drawing in drawn if drawing.stale]
        if problems := check_site(built) + badge_faults(built, pages, stale):
            raise BookError("\n".join(problems))
        say("checked: nothing is loaded from a network, no link is dead, every picture has its text")
        swap(built, root / site.output)
        shutil.rmtree(build / f"building-{site.name}")
    return root / site.output / "index.html"
