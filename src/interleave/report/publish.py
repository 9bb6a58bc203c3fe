"""`interleave publish`: the last try of a notebook becomes the page of its profile.

Points first, the page last, each renamed into place; refused for a try that failed or that today's code would
not make. Runs nothing.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

from interleave.report.cluster import left_files, publish_files
from interleave.report.difference import changed_parameters
from interleave.report.freshness import BROKEN, FRESH, page_state
from interleave.report.layout import PROFILES, executed_folder, failed_folder, output_root, tried_root
from interleave.report.runner import refuse_unwritable
from interleave.report.runs import Page
from interleave.report.tries import read_page


def publish_try(path: Path, profile: str | None = None) -> list[str]:
    """Publish the last try of the template at `path`; returns what was replaced and how to undo it.

    profile: which try, if there are several; by default the newest. Raises ValueError, with the reason, where
    there is none that is fit to publish; everything then is as it was.
    """
    out = output_root()
    root = tried_root(out)
    tried = last_try(path, profile, root)
    state = page_state(tried.path, tried.tier, root)
    if state.state != FRESH:
        why = "is not fit to be a page" if state.state == BROKEN else "is not what today's code would make"
        reasons = "; ".join(state.reasons)
        raise ValueError(f"the last try of {path.stem} {why} ({reasons}): try again; nothing was published")
    destination = executed_folder(tried.tier, out) / path.name
    refuse_unwritable(destination.parent)
    files = left_files(tried.path, tried.origin, root)
    name = destination.relative_to(out).as_posix()
    before = read_page(destination, tried.tier, out) if destination.is_file() else None
    new_points = sum(file.endswith(".csv") and not (out / file).is_file() for file in files)
    undo = undo_command(name, before, out)
    publish_files(files, out)
    tried.path.unlink()
    return list(_told(name, tried, before, new_points, undo))


def last_try(path: Path, profile: str | None, root: Path) -> Page:
    """The tried page to publish. ValueError where there is none, or where the last try failed."""
    tiers = PROFILES if profile is None else (profile,)
    pages = {tier: executed_folder(tier, root) / path.name for tier in tiers}
    there = {tier: page for tier, page in pages.items() if page.is_file()}
    failed = failed_folder(root) / path.name
    if failed.is_file():
        raise ValueError(f"the last try of {path.stem} failed ({failed}): nothing was published")
    if not there:
        which = "" if profile is None else f" at profile {profile}"
        raise ValueError(
            f"no try of {path.stem}{which} waits to be published: `interleave try {path.stem} -p NAME VALUE` makes "
            "one (what `interleave run` makes is published when it succeeds)"
        )
    newest = max(there, key=lambda tier: there[tier].stat().st_mtime_ns)
    return read_page(there[newest], newest, root)


def undo_command(name: str, before: Page | None, root: Path) -> str:
    """What brings the page before back: git where it holds it, else its own command, whose points are stored."""
    if before is None:
        return f"rm {name}"
    if _git(root, "ls-files", "--", name) and not _git(root, "status", "--porcelain", "--", name):
        return f"git restore {name}"
    return (
        f"{before.origin.get('command')}  (git has no copy; the points are stored, nothing is measured again)"
    )


def _told(name: str, tried: Page, before: Page | None, new_points: int, undo: str) -> Iterator[str]:
    yield f"published {name}"
    if before is None:
        yield "  there was no such page before"
    else:
        yield f"  in place of the one of {str(before.origin.get('started'))[:16].replace('T', ' ')} UTC"
        old, new = (page.origin.get("parameters", {}) for page in (before, tried))
        for parameter, (was, now) in changed_parameters(old, new).items():
            yield f"  {parameter}: {json.dumps(was)} -> {json.dumps(now)}"
    yield f"  {new_points} of its {len(tried.origin['point_keys'])} points are new; points of other pages stay"
    yield f"to undo: {undo}"


def _git(root: Path, *arguments: str) -> str:
    """What git says; nothing where there is no git or no repository."""
    command = ["git", "-C", str(root), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout
    except OSError:
        return ""
