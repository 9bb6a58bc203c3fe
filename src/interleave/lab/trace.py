"""A trace: which request is due when, as data with a hash. Knows no tokens and no engine.

The canonical text is CSV with the header `due_s,prompt_tokens,new_tokens`, one row per request in
order of arrival, line feeds, and floats in Python's shortest form; its SHA-256 names the trace.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from interleave.lab.files import write_atomically
from interleave.lab.tables import TableError, read_table

COLUMNS = ("due_s", "prompt_tokens", "new_tokens")

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_COUNT = re.compile(r"\d{1,9}", re.ASCII)


class TraceError(TableError):
    """A trace that cannot be used; for a file the message starts with path, line and column."""


class TraceRow(NamedTuple):
    """One request: due time in seconds from the start, prompt length, generation budget."""

    due_s: float
    prompt_tokens: int
    new_tokens: int


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in order of arrival; at least one, due times finite, >= 0 and never decreasing.

    Raises TraceError naming the row (counted from 1) and column otherwise.
    """

    rows: tuple[TraceRow, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", tuple(TraceRow(*row) for row in self.rows))
        if not self.rows:
            raise TraceError("a trace needs at least one request")
        previous_s = 0.0
        for number, row in enumerate(self.rows, 1):
            problem = _problem(row, previous_s)
            if problem:
                raise TraceError(f"row {number}, {problem}")
            previous_s = row.due_s

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def num_prompt_tokens(self) -> int:
        return sum(row.prompt_tokens for row in self.rows)

    @property
    def num_new_tokens(self) -> int:
        return sum(row.new_tokens for row in self.rows)

    def to_csv(self) -> str:
        """The canonical text."""
        lines = [",".join(COLUMNS)]
        lines += [f"{row.due_s + 0.0!r},{row.prompt_tokens},{row.new_tokens}" for row in self.rows]
        return "\n".join(lines) + "\n"

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.to_csv().encode()).hexdigest()


def write_csv(trace: Trace, path: Path) -> None:
    """Write the canonical text; all of it or nothing."""
    write_atomically(path, trace.to_csv())


def read_csv(path: Path) -> Trace:
    """Read a trace file. Raises TableError with path, line and column for the first broken cell.

    Numbers are plain decimals: no spaces, underscores, or digits of other scripts.
    """
    rows: list[TraceRow] = []
    for line, cells in read_table(path, COLUMNS):
        try:
            rows.append(_parse_row(cells, rows[-1].due_s if rows else 0.0))
        except TraceError as error:
            raise TraceError(f"{path}:{line}: {error}") from None
    if not rows:
        raise TraceError(f"{path}:2: a trace needs at least one request")
    return Trace(tuple(rows))


def _parse_row(cells: Sequence[str], previous_s: float) -> TraceRow:
    due_s = float(cells[0]) if _NUMBER.fullmatch(cells[0]) else cells[0]
    prompt_tokens, new_tokens = (int(cell) if _COUNT.fullmatch(cell) else cell for cell in cells[1:])
    problem = _problem((due_s, prompt_tokens, new_tokens), previous_s)
    if problem:
        raise TraceError(problem)
    return TraceRow(float(due_s), int(prompt_tokens), int(new_tokens))


def _problem(row: Sequence[object], previous_s: float) -> str | None:
    """What is wrong with a row, starting with the column, or None."""
    due_s, *counts = row
    if (
        isinstance(due_s, bool)
        or not isinstance(due_s, (int, float))
        or not math.isfinite(due_s)
        or due_s < 0
    ):
        return f"column due_s: expected a finite number of seconds of at least 0, got {due_s!r}"
    if due_s < previous_s:
        return f"column due_s: {due_s!r} is earlier than the row before it ({previous_s!r}); sort by due time"
    for column, count in zip(COLUMNS[1:], counts, strict=True):
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count < 10**9:
            return f"column {column}: expected a whole number of at least 1, got {count!r}"
    return None
