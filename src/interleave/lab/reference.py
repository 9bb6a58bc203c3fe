"""Figures that other people published, as typed rows. Does not know how ours compare.

`data/reference/published.csv` holds one figure a row and `reports.csv` the source of each. `use` says
what a figure is for: calibrate and holdout (of the simulator), constant (of a machine or model),
prediction (with the grade its authors gave it), kind (to be reproduced in kind, not in value) and
claim (to be tested).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from interleave.lab.paths import data_dir
from interleave.lab.tables import TableError, read_table
from interleave.schedule.names import nearest

USES = ("calibrate", "holdout", "constant", "prediction", "kind", "claim")
REPORT_COLUMNS = ("report", "title", "what it measures")
_TEXT_COLUMNS = ("id", "report", "engine", "workload", "quantity")
_NUMBER_COLUMNS = ("value", "low", "high")
COLUMNS = (*_TEXT_COLUMNS, *_NUMBER_COLUMNS, "unit", "use", "grade", "note")


@dataclass(frozen=True, slots=True)
class Report:
    """A source: its short name, title, and what it measured."""

    report: str
    title: str
    measures: str


@dataclass(frozen=True, slots=True)
class Published:
    """One published figure: a value, a range from low to high, both, or (predictions only) words.

    printed: the value as it was printed, which carries its precision; None where there is no value.
    grade: how its authors graded a prediction; empty elsewhere and where they have not.
    """

    id: str
    report: str
    engine: str
    workload: str
    quantity: str
    value: float | None
    low: float | None
    high: float | None
    unit: str
    use: str
    grade: str
    note: str
    printed: str | None


def load_reports(path: Path | None = None) -> dict[str, Report]:
    """The sources by short name. Raises TableError with file and line."""
    path = path or data_dir() / "reference" / "reports.csv"
    reports: dict[str, Report] = {}
    for line, cells in read_table(path, REPORT_COLUMNS):
        report = Report(*cells)
        if not report.report or report.report in reports:
            raise TableError(f"{path}:{line}: column report: empty or used before: {report.report!r}")
        reports[report.report] = report
    return reports


def load_published(path: Path | None = None, reports: Mapping[str, Report] | None = None) -> list[Published]:
    """Every published figure, in file order.

    Raises TableError with file, line and column for an unknown use or report, a repeated id, a number
    that is not finite, a range upside down or around another value, and a figure without a number.
    """
    path = path or data_dir() / "reference" / "published.csv"
    reports = load_reports() if reports is None else reports
    rows: list[Published] = []
    seen: set[str] = set()
    for line, cells in read_table(path, COLUMNS):
        try:
            row = _parse(dict(zip(COLUMNS, cells, strict=True)), reports)
            if row.id in seen:
                raise TableError(f"column id: {row.id!r} is used before")
        except TableError as error:
            raise TableError(f"{path}:{line}: {error}") from None
        seen.add(row.id)
        rows.append(row)
    return rows


def _parse(cells: dict[str, str], reports: Mapping[str, Report]) -> Published:
    for column in _TEXT_COLUMNS:
        if not cells[column]:
            raise TableError(f"column {column}: empty")
    for column, allowed in (("use", USES), ("report", tuple(reports))):
        if cells[column] not in allowed:
            raise TableError(f"column {column}: {nearest(column, cells[column], allowed)}")
    numbers = {column: _number(column, cells[column]) for column in _NUMBER_COLUMNS}
    value, low, high = numbers["value"], numbers["low"], numbers["high"]
    if (low is None) != (high is None):
        raise TableError("columns low, high: a range needs both ends")
    if low is not None and high is not None and not low <= (low if value is None else value) <= high:
        raise TableError(f"columns value, low, high: {value} is not within {low} to {high}")
    if value is None and low is None and cells["use"] != "prediction":
        raise TableError("column value: a figure needs a value or a range; only a prediction may be words")
    if cells["grade"] and cells["use"] != "prediction":
        raise TableError(f"column grade: only a prediction has one, got {cells['grade']!r}")
    texts = {column: cells[column] for column in COLUMNS if column not in numbers}
    return Published(**texts, value=value, low=low, high=high, printed=cells["value"] or None)


def _number(column: str, text: str) -> float | None:
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise TableError(f"column {column}: expected a finite number, got {text!r}")
    return number
