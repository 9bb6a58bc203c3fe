"""This report's own predictions, graded by each chapter's own function over its stored results."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import pandas as pd

from interleave.lab.paths import data_dir
from interleave.report.claims import AWAITS
from interleave.report.comparisons import Compared, direction
from interleave.report.evidence import Evidence, Stored
from interleave.report.figures.graded import verdict
from interleave.report.marks import Value
from interleave.report.printed import spoken

COLUMNS = ["no.", "quantity", "predicted", "measured", "verdict"]
OWN = "predictions"


def grader(experiment: str) -> Callable[[Stored], pd.DataFrame]:
    """How a chapter grades its predictions: `graded(rows, params)` or `verdicts(rows)` of its figure module,
    or of the module of its tables. LookupError for a chapter without."""
    module = _grading(experiment)
    if hasattr(module, "graded"):
        return lambda stored: module.graded(stored.frame, stored.params)
    return lambda stored: module.verdicts(stored.frame)


def _grading(experiment: str) -> ModuleType:
    for name in (experiment, f"{experiment}_tables"):
        path = f"interleave.report.figures.{name}"
        if find_spec(path) is not None:
            module = import_module(path)
            if hasattr(module, "graded") or hasattr(module, "verdicts"):
                return module
    raise LookupError(f"no figure module of {experiment} has `graded(rows, params)` or `verdicts(rows)`")


def marks_of(experiment: str, stored: Stored) -> Mapping[str, str]:
    """The marks of verdicts, by number, whose number comes from elsewhere than the chapter's others: `marks(params)`
    of the module that grades, where it has one."""
    marks = getattr(_grading(experiment), "marks", None)
    return {} if marks is None else marks(stored.params)


def numbered(experiment: str) -> list[str]:
    """The numbers of the predictions in a chapter's file."""
    text = (data_dir() / "predictions" / f"{experiment}.md").read_text("utf8")
    return re.findall(r"^(\d+)\. ", text, re.MULTILINE)


def own_table(titles: Mapping[str, str], evidence: Evidence) -> pd.DataFrame:
    """Every prediction of this report, graded where the chapter has stored results; else a line for all of it.
    mark: None for that of the chapter."""
    lines: list[dict[str, Any]] = []
    for experiment, title in titles.items():
        if experiment == OWN or not (data_dir() / "predictions" / f"{experiment}.md").is_file():
            continue
        marks: Mapping[str, str] = {}
        if experiment in evidence.stored:
            stored = evidence.stored[experiment]
            table, marks = grader(experiment)(stored)[COLUMNS], marks_of(experiment, stored)
        else:
            numbers = numbered(experiment)
            table = pd.DataFrame(
                [{"no.": f"{numbers[0]} to {numbers[-1]}", "verdict": AWAITS}], columns=COLUMNS
            )
        for line in table.to_dict("records"):
            facts = {"chapter": title, "experiment": experiment, "mark": marks.get(str(line["no."]))}
            lines.append(facts | {str(name): value for name, value in line.items()})
    return pd.DataFrame(lines, columns=["chapter", "experiment", "mark", *COLUMNS])


def shown(own: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """The table of own predictions as the page has it, each number with its mark."""

    def cell(line: Mapping[str, Any]) -> Value | None:
        number = line["measured"]
        if number is None or pd.isna(number):
            return None
        mark = None if pd.isna(line["mark"]) else str(line["mark"])
        return evidence.marked(str(line["experiment"]), spoken(number, 3), mark)

    marked = own.assign(measured=[cell(line) for line in own.to_dict("records")])
    return marked[["chapter", *COLUMNS]]


def score(own: pd.DataFrame) -> tuple[int, int]:
    """(held, graded)."""
    return int((own["verdict"] == "held").sum()), int(own["verdict"].isin(["held", "missed"]).sum())


def missed_table(own: pd.DataFrame) -> pd.DataFrame:
    """Why each missed, from `data/predictions/misses.csv` (experiment, number, why)."""
    with (data_dir() / "predictions" / "misses.csv").open(encoding="utf8", newline="") as file:
        reasons = {(row["experiment"], row["number"]): row["why"] for row in csv.DictReader(file)}
    missed = own[own["verdict"] == "missed"]
    why = [reasons.get((line.experiment, str(line.number)), "not explained yet")
           for line in missed.rename(columns={"no.": "number"}).itertuples()]  # fmt: skip
    return pd.DataFrame(
        {"chapter": missed["chapter"], "no.": missed["no."], "quantity": missed["quantity"], "why": why}
    )


def verdicts(own: pd.DataFrame, compared: Sequence[Compared]) -> pd.DataFrame:
    """This chapter's own predictions."""
    held, total = score(own)
    known = [
        one for one in compared if one.same_direction is not None and direction(one.published) != "about 1"
    ]
    same = sum(bool(one.same_direction) for one in known)
    return pd.DataFrame(
        [
            verdict("1", "own predictions that held [%]", 100 * held / total if total else None, 60, 85),
            verdict("2", "published ratios that point the same way here [%]",
                    100 * same / len(known) if known else None, 75, 100),
            verdict("3", "published ratios that turn round here", float(len(known) - same) if known else None, 1,
                    float("inf")),
        ]
    )  # fmt: skip
