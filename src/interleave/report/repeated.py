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
    if changed := sum(not _agree(line) for one in documents for line in one["predictions"]):
        values["repeated.changed"] = Value(str(changed), None, where)
    return values


def repeated_tables(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """`repeated-runs`: when, and how much of it came out again; `repeated-numbers` and `repeated-verdicts`: what
    did, and what did not."""
    if not documents:
        return {}
    runs, numbers, verdicts = [], [], []
    for one in documents:
        judged = [n for n in one["numbers"] if n["outcome"] in (EQUAL, WITHIN, BEYOND)]
        good = sum(n["outcome"] != BEYOND for n in judged)
        same = sum(_agree(line) for line in one["predictions"])
        runs.append(
            [
                one["title"],
                *[told("started", one[which]) for which in ("first", "second")],
                f"{good} of {len(judged)}",
                f"{same} of {len(one['predictions'])}",
            ]
        )
        for number in one["numbers"]:
            both = [_cell(number[which], one["mark"]) for which in ("first", "second")]
            numbers.append([one["title"], f"`{number['name']}`", *both, number["outcome"]])
        for line in one["predictions"]:
            if not _agree(line):
                both = [_verdict(line[which]) for which in ("first", "second")]
                verdicts.append([one["title"], line["no."], line["quantity"], *both])
    tables = {
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
        "repeated-numbers": aligned(["chapter", "number", "first", "second", "the two"], numbers, 5),
    }
    header = ["chapter", "no.", "quantity", "first", "second"]
    return tables | ({"repeated-verdicts": aligned(header, verdicts, 5)} if verdicts else {})


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
