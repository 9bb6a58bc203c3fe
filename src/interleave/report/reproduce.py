"""`interleave check --reproduce`: a page is made again from nothing, and must say the same within its own limits.

A simulated or published number has to come out equal, a measured one within the range of its repeats, which the
notebook declares beside it (`band`). A page without a measured number has to come out equal to the last byte.
Page and points lie in `_build/reproduced`, laid out like a checkout; what is published is read and never written.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from interleave.lab.devices import place
from interleave.report.difference import BEYOND, RUN_FIELDS, Difference, Moved, difference
from interleave.report.freshness import FRESH
from interleave.report.layout import (
    COMMITTED_PROFILES,
    PROFILES,
    executed_folder,
    find_notebook,
    output_root,
    reproduced_root,
)
from interleave.report.parameters import ParameterizedSource, plain_values, read_source
from interleave.report.readings import plain
from interleave.report.runner import run_notebook
from interleave.report.runs import Page
from interleave.report.source import INJECTED_TAG
from interleave.report.tries import copy_points, read_page

EXACT_MARKS = ("simulated", "published-elsewhere")
CLOSING = 'class="il-closing"'  # how long it took and when


@dataclass(frozen=True)
class Reproduction:
    """A page as published and made again.

    wrong: what is not as it has to be, a line each; unjudged: numbers that moved and declare no range.
    """

    difference: Difference
    wrong: list[str]
    unjudged: list[str]


def reproduce(name: str, *, quick: bool = False, say: Callable[[str], None] = print) -> Reproduction:
    """Make a published page again, with nothing measured before, and compare the two.

    name: of a notebook, or the path of an executed one; quick: the quick run's page. Raises ValueError, before
    anything is run, where there is no such page, where it is not what today's code makes, or where it was measured
    on another machine; and what `run_notebook` raises.
    """
    before = published_page(name, quick)
    template = read_source(find_notebook(before.path.stem))
    if before.state.state != FRESH:
        reasons = "; ".join(before.state.reasons)
        raise ValueError(
            f"{before.path} is {before.state.state} ({reasons}), so this code would make another page: run it again, "
            f"or check out the commit that made it ({before.origin.get('commit')})"
        )
    _refuse_elsewhere(before)
    root = reproduced_root(output_root())
    if root.exists():
        shutil.rmtree(root)
    if "evidence" in before.origin:
        copy_points(before.tier, root, leave=template.experiment_name.rpartition(".")[2])
    run_notebook(template.path, profile=before.tier, overrides=chosen(before, template), root=root, say=say)
    return compared(
        before, read_page(executed_folder(before.tier, root) / before.path.name, before.tier, root)
    )


def published_page(name: str, quick: bool) -> Page:
    """The page that a name or a path means. ValueError where it is not published."""
    tiers = ("quick",) if quick else COMMITTED_PROFILES
    file = f"{find_notebook(Path(name).stem).stem}.ipynb"
    pages = {tier: executed_folder(tier, output_root()) / file for tier in PROFILES}
    there = [tier for tier, path in pages.items() if path.is_file()]
    named = [tier for tier in there if pages[tier].resolve() == Path(name).resolve()]
    found = [read_page(pages[tier], tier, output_root()) for tier in there if tier in (named or tiers)]
    if not found:
        hint = "" if quick else "; with --quick, one of the quick run"
        raise ValueError(f"{name} is no published page of profile {' or '.join(tiers)}{hint}")
    return next((page for page in found if _is_here(page)), found[0])


def chosen(page: Page, source: ParameterizedSource) -> dict[str, Any]:
    """The parameters of a page that are not its profile's own."""
    usual = plain_values(source.experiment.Params()) | source.experiment.PROFILES[page.tier]
    given = page.origin["parameters"].items()
    return {k: value for k, value in given if k not in RUN_FIELDS and plain(usual[k]) != value}


def compared(before: Page, after: Page) -> Reproduction:
    """Judge a page against the one that it should equal."""
    found = difference(before, after)
    moved = [one for one in found.moved if one.size != 0]
    faults = {one.name: fault(one, before) for one in moved}
    wrong = [f"{name}: {reason}" for name, reason in faults.items() if reason]
    unjudged = [one.name for one in moved if not faults[one.name] and one.noise is None]
    marks = {number.get("mark", before.mark) for number in before.origin["numbers"].values()}
    if marks <= set(EXACT_MARKS) and before.mark in EXACT_MARKS:
        wrong += other_outputs(before.notebook, after.notebook)
    return Reproduction(found, wrong, unjudged)


def fault(one: Moved, before: Page) -> str:
    """What is wrong with a number that moved; empty where it may have."""
    if one.before is None or one.after is None:
        return f"recorded only {'before' if one.before else 'now'}"
    mark = one.before.get("mark", before.mark)
    if mark in EXACT_MARKS:
        return f"{mark}, so it has to be equal: {one.before['value']!r} before, {one.after['value']!r} now"
    return "beyond the range of its repeats" if one.noise == BEYOND else ""


def other_outputs(before: NotebookNode, after: NotebookNode) -> Iterator[str]:
    """The cells whose outputs are not equal to the last byte; the closing table tells times and is left out."""
    old, new = _outputs(before), _outputs(after)
    for cell in {**old, **new}:
        if old.get(cell) != new.get(cell):
            yield f"cell {cell!r}: another output"


def _outputs(notebook: NotebookNode) -> Mapping[str, str]:
    return {
        cell["id"]: json.dumps(
            [one for one in cell.outputs if CLOSING not in str(one.get("data", {}).get("text/html", ""))],
            sort_keys=True,
        )
        for cell in notebook.cells
        if cell.cell_type == "code" and INJECTED_TAG not in cell.metadata.get("tags", [])
    }


def _refuse_elsewhere(page: Page) -> None:
    if page.mark in EXACT_MARKS or _is_here(page):
        return
    raise ValueError(
        f"{page.path} was measured on {page.origin.get('device')!r} with {page.origin.get('threads')} threads, this is "
        f"{_place(page)}: numbers of two machines are not each other's repeats (`interleave try` shows both)"
    )


def _is_here(page: Page) -> bool:
    return f"{page.origin.get('device')!r} with {page.origin.get('threads')} threads" == _place(page)


def _place(page: Page) -> str:
    kind = str(page.origin.get("parameters", {}).get("device", "cpu"))
    try:
        here = place(kind)
    except ValueError:
        here = place("cpu")
    return f"{here.device!r} with {here.threads} threads"
