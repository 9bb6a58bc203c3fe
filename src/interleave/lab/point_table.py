"""The CSV of one stored point: typed rows to text and back, strictly. Does not know where files lie.

Every row starts with the point's key, its device and its own number, so that a row which strayed in
from another point or machine is seen. An empty cell is a missing value; floats are written so that
they read back exactly.
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from interleave.lab.tables import TableError, read_table

FRAME_COLUMNS = ("key", "device", "row")

Value = bool | int | float | str | None
Row = dict[str, Value]


class ResultsError(TableError):
    """A stored point that must not be used; the message starts with file and line."""


def column_types(rows: Sequence[Mapping[str, Value]]) -> dict[str, str]:
    """Column -> bool, int, float, str, or null where no row has a value.

    Raises ValueError for no rows, a column of the frame, or a column of several types (ints among
    floats are fine).
    """
    if not rows:
        raise ValueError("a point needs at least one row")
    types: dict[str, str] = {}
    for column in rows[0]:
        if column in FRAME_COLUMNS:
            raise ValueError(f"column {column!r} is the store's own; name it otherwise")
        kinds = {_kind(row.get(column)) for row in rows} - {"null"}
        if kinds == {"int", "float"}:
            kinds = {"float"}
        if len(kinds) > 1 or not kinds <= {"bool", "int", "float", "str"}:
            raise ValueError(
                f"column {column!r} must hold one of bool, int, float, str; got {', '.join(sorted(kinds))}"
            )
        types[column] = kinds.pop() if kinds else "null"
    return types


def csv_text(key: str, device: str, columns: Mapping[str, str], rows: Sequence[Mapping[str, Value]]) -> str:
    """The file's text. Raises ValueError for other columns, NaN, infinity or an empty string."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*FRAME_COLUMNS, *columns])
    for number, row in enumerate(rows):
        if row.keys() != columns.keys():
            raise ValueError(f"row {number} has columns {list(row)}, the first row {list(columns)}")
        cells = [_cell(name, kind, row[name]) for name, kind in columns.items()]
        writer.writerow([key, device, number, *cells])
    return text.getvalue()


def read_rows(
    path: Path, *, key: str, device: str, columns: Mapping[str, str], num_rows: int, sha256: str
) -> list[Row]:
    """The rows of a point's CSV, without the frame. Raises TableError for any other content."""
    rows: list[Row] = []
    line = 1
    for line, cells in read_table(path, [*FRAME_COLUMNS, *columns]):
        for column, found, expected in zip(FRAME_COLUMNS, cells, (key, device, str(len(rows))), strict=False):
            if found != expected:
                why = "duplicate or missing row" if column == "row" else f"a row of another {column}"
                raise ResultsError(f"{path}:{line}: {why}: column {column} is {found!r}, not {expected!r}")
        values = zip(columns.items(), cells[len(FRAME_COLUMNS) :], strict=True)
        rows.append({name: _value(path, line, name, kind, cell) for (name, kind), cell in values})
    if len(rows) != num_rows:
        raise ResultsError(
            f"{path}:{line}: half-written: {len(rows)} rows of {num_rows}; delete it to measure again"
        )
    if hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
        raise ResultsError(
            f"{path}:{line}: not the rows that were measured (their hash differs); restore the file, "
            "or delete it to measure again"
        )
    return rows


def one_table(facts: Row, rows: Sequence[Row]) -> list[Row]:
    """The rows with the same columns each, null where a kind has none of that; facts repeated on each.

    Raises ValueError for a column that is also a fact.
    """
    columns = dict.fromkeys(name for row in rows for name in row)
    if both := sorted(facts.keys() & columns.keys()):
        raise ValueError(f"{', '.join(both)}: a column of some rows and a fact of all of them")
    return [{**facts, **{name: row.get(name) for name in columns}} for row in rows]


def _kind(value: object) -> str:
    if value is None:
        return "null"
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind.__name__
    return type(value).__name__


def _cell(column: str, kind: str, value: Value) -> str:
    if value is None:
        return ""
    if kind == "float":
        number = float(value)
        if not math.isfinite(number):
            raise ValueError(f"column {column!r}: {number!r} is no measurement; None stands for missing")
        return repr(number)
    text = str(value)
    if not text or "\r" in text or "\n" in text:
        raise ValueError(f"column {column!r}: {text!r} cannot be stored; None stands for missing")
    return text


def _value(path: Path, line: int, column: str, kind: str, cell: str) -> Value:
    if cell == "":
        return None
    try:
        if kind == "bool":
            return {"True": True, "False": False}[cell]
        value = {"int": int, "float": float, "str": str}[kind](cell)
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError
    except (KeyError, ValueError):
        raise ResultsError(f"{path}:{line}: column {column}: expected {kind}, got {cell!r}") from None
    return value
