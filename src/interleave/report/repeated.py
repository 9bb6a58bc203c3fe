"""What the page of runs shows of chapters that were measured twice: tables, and values under `repeated.`.

Reads the documents that `second_run.py` files, one a chapter; measures nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interleave.documents import read_document
from interleave.report.difference import BEYOND, WITHIN
from interleave.report.difference_text import number_text
from interleave.report.marks import Value
from interleave.report.printed import MISSING, spoken
from interleave.report.status import aligned, counted
from interleave.report.status import spoken as told

NOT_RUN = "not run"
EQUAL, UNJUDGED = "equal", "no range"
"""How a number came out the second time, beside `within` and `beyond` the range of its repeats."""


def folder(root: Path) -> Path:
    return root / "data" / "results" / "repeated"


def read_repeated(root: Path) -> list[dict[str, Any]]:
    """Every filed document, by file name. DocumentError names a file that is no JSON."""
    return [read_document(path) for path in sorted(folder(root).glob("*.json"))]


def repeated_values(documents: list[dict[str, Any]]) -> dict[str, Value]:
    """`repeated.count`, where anything was run twice; `repeated.changed`, where a verdict became another."""
    where = "data/results/repeated"
    values = {}
    if documents:
        values["repeated.count"] = Value(counted(len(documents), "chapter"), None, where)
    if changed := sum(not _agree(line) for one in documents for line in _graded(one)):
        values["repeated.changed"] = Value(str(changed), None, where)
    return values


def repeated_tables(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """`repeated-runs`: when, and how much of it came out again; `repeated-numbers` and `repeated-verdicts`: what
    both runs say, number by number and prediction by prediction. What was published elsewhere, or could not run
    here, is left out."""
    if not documents:
        return {}
    runs, numbers, verdicts = [], [], []
    for one in documents:
        own = [n for n in one["numbers"] if not _quoted(n)]
        judged = [n for n in own if n["outcome"] in (EQUAL, WITHIN, BEYOND)]
        good = sum(n["outcome"] != BEYOND for n in judged)
        graded = _graded(one)
        same = sum(map(_agree, graded))
        runs.append(
            [
                one["title"],
                *[told("started", one[which]) for which in ("first", "second")],
                f"{good} of {len(judged)}" if judged else "no range given",
                f"{same} of {len(graded)}",
            ]
        )
        for number in own:
            both = [_cell(number[which], one["mark"]) for which in ("first", "second")]
            numbers.append([one["title"], number["name"].replace("_", " "), *both, number["outcome"]])
        for line in graded:
            both = [_verdict(line[which]) for which in ("first", "second")]
            verdicts.append([one["title"], line["no."], line["quantity"], *both])
    return {
        "repeated-runs": aligned(
            [
                "chapter",
                "first run [UTC]",
                "second run [UTC]",
                "numbers that came out again",
                "verdicts that did",
            ],
            runs,
            3,
        ),
        "repeated-numbers": aligned(["chapter", "number", "first", "second", "came out"], numbers, 5),
        "repeated-verdicts": aligned(["chapter", "no.", "quantity", "first", "second"], verdicts, 5),
    }


def _graded(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The predictions that the first run could grade."""
    return [line for line in document["predictions"] if line["first"]["verdict"] != NOT_RUN]


def _quoted(number: Mapping[str, Any]) -> bool:
    return any((number[which] or {}).get("mark") == "published-elsewhere" for which in ("first", "second"))


def _agree(line: Mapping[str, Any]) -> bool:
    return bool(line["first"]["verdict"] == line["second"]["verdict"])


def _verdict(one: Mapping[str, Any]) -> str:
    value = one["measured"]
    shown = MISSING if value is None else value if isinstance(value, str) else spoken(value, 3)
    return f"{shown}, {one['verdict']}"


def _cell(number: Mapping[str, Any] | None, mark: str) -> Any:
    text = number_text(number)
    if number is None or isinstance(number["value"], str):
        return text
    unit = number.get("unit")
    told = text if not unit or unit in str(number["text"]) else f"{text} {unit}"
    return {"text": told, "mark": number.get("mark", mark)}
