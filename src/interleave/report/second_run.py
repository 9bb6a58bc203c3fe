"""A chapter that was measured a second time: what both runs found, filed as one document.

Written by `interleave check --reproduce PAGE --record`; `repeated.py` shows it. A chapter's conclusions are
its recorded numbers, with the ranges declared beside them, and the verdicts on its predictions.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from interleave.lab.files import write_atomically
from interleave.report.difference import BEYOND, Moved
from interleave.report.evidence import Stored
from interleave.report.figures.own_predictions import COLUMNS, grader
from interleave.report.headlines import page_points
from interleave.report.layout import output_root
from interleave.report.parameters import load_experiment
from interleave.report.printed import MISSING
from interleave.report.repeated import EQUAL, UNJUDGED, folder
from interleave.report.reproduce import Reproduction
from interleave.report.runs import Page

ORIGIN = ("started", "duration_s", "device", "threads", "commit", "dirty")
LEAST_APART_S = 3600.0
"""A second run sooner than this shares the machine's mood with the first."""


def refuse_early(page: Page) -> None:
    """Raise ValueError where a second run that begins now would begin less than an hour after the page's."""
    started = datetime.fromisoformat(page.origin["started"])
    apart_s = (datetime.now(UTC) - started).total_seconds()
    if apart_s < LEAST_APART_S:
        raise ValueError(
            f"{page.path} was begun {apart_s / 60:.0f} minutes ago; a second run that is to be filed has to begin at "
            f"least {LEAST_APART_S / 60:.0f} minutes after the first"
        )


def record(found: Reproduction, again: Path) -> Path:
    """File both runs of a page; returns the document's path. again: where the second run left its points."""
    before, after = found.difference.before, found.difference.after
    document = {
        "experiment": before.run.experiment,
        "title": before.run.title,
        "tier": before.tier,
        "mark": before.mark,
        "first": {name: before.origin.get(name) for name in ORIGIN},
        "second": {name: after.origin.get(name) for name in ORIGIN},
        "numbers": [
            {"name": one.name, "first": one.before, "second": one.after, "outcome": outcome(one)}
            for one in found.difference.moved
        ],
        "predictions": _predictions(_verdicts(before, output_root()), _verdicts(after, again)),
    }
    path = folder(output_root()) / f"{before.tier}_{before.run.experiment}.json"
    write_atomically(path, json.dumps(document, indent=1, allow_nan=False) + "\n")
    return path


def outcome(one: Moved) -> str:
    """equal, within or beyond the range of repeats, or that there is none."""
    if one.before is None or one.after is None:
        return BEYOND
    if one.size == 0:
        return EQUAL
    return one.noise or UNJUDGED


def _verdicts(page: Page, root: Path) -> pd.DataFrame:
    """The chapter's own grades of its predictions, over the points that the page was made from."""
    rows = page_points(page, root)
    if rows is None:
        return pd.DataFrame(columns=COLUMNS)
    model = load_experiment(page.run.experiment).Params
    given = {name: value for name, value in page.origin["parameters"].items() if name in model.model_fields}
    params = model.model_validate_json(json.dumps(given))  # strict: JSON's lists are no tuples in Python
    return grader(page.run.experiment)(Stored(rows, params, page.mark, ()))


def _predictions(first: pd.DataFrame, second: pd.DataFrame) -> list[dict[str, Any]]:
    later = {(line["no."], line["quantity"]): line for line in second.to_dict("records")}
    found = []
    for line in first.to_dict("records"):
        other = later.get((line["no."], line["quantity"]), {})
        found.append(
            {
                "no.": line["no."],
                "quantity": line["quantity"],
                "first": {"measured": _plain(line["measured"]), "verdict": line["verdict"]},
                "second": {
                    "measured": _plain(other.get("measured")),
                    "verdict": other.get("verdict", MISSING),
                },
            }
        )
    return found


def _plain(value: Any) -> float | str | None:
    if value is None or (isinstance(value, float) and value != value):
        return None
    return value if isinstance(value, str) else float(value)
