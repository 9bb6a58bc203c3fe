"""Public request traces as ours: a time, context tokens and generated tokens become a trace.

The columns are those of the Azure LLM inference traces (TIMESTAMP, ContextTokens, GeneratedTokens; Patel
et al., 2024), found by name in any order and case. Other columns are ignored. A time is a number of
seconds or an ISO 8601 timestamp, in UTC where it names no zone; the first request becomes due at 0.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from interleave.lab.trace import Trace, TraceError, TraceRow

NAMES = {
    "due_s": ("timestamp", "due_s", "arrival_s", "time"),
    "prompt_tokens": ("contexttokens", "prompt_tokens", "context_tokens", "num_prefill_tokens"),
    "new_tokens": ("generatedtokens", "new_tokens", "generated_tokens", "num_decode_tokens"),
}
_FRACTION = re.compile(r"(\.\d{6})\d+")  # datetime reads microseconds; some traces have more digits


def read_public_trace(path: Path, limit: int | None = None) -> Trace:
    """The first `limit` requests of a public trace.

    Raises TraceError with path, line and column for a missing column, a cell that is no time or no
    whole number of at least 1, a request earlier than the one in front of it, a quote that never closes, and
    a file without rows.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: not UTF-8 text (byte {error.start})") from error
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    header = [cell.strip().lower() for cell in _cells(path, reader) or []]
    at = {ours: _column(path, header, ours) for ours in NAMES}
    rows: list[TraceRow] = []
    start_s = 0.0
    while (limit is None or len(rows) < limit) and (cells := _cells(path, reader)) is not None:
        where = f"{path}:{reader.line_num}"
        if len(cells) != len(header):
            raise TraceError(f"{where}: expected {len(header)} cells, got {len(cells)}")
        time_s = _seconds(where, cells[at["due_s"]])
        if not rows:
            start_s = time_s
        due_s = round(time_s - start_s, 9)
        if not math.isfinite(due_s):
            raise TraceError(f"{where}: no finite time after the first request: {cells[at['due_s']]}")
        if rows and due_s < rows[-1].due_s:
            raise TraceError(
                f"{where}: column {header[at['due_s']]}: {cells[at['due_s']]} is earlier than the row before it; "
                "sort by time"
            )
        counts = [
            _count(where, header[at[name]], cells[at[name]]) for name in ("prompt_tokens", "new_tokens")
        ]
        rows.append(TraceRow(due_s, *counts))
    if not rows:
        raise TraceError(f"{path}:2: a trace needs at least one request")
    return Trace(tuple(rows))


def _cells(path: Path, reader: Any) -> list[str] | None:
    """The next row of the file; None at its end."""
    try:
        return next(reader, None)
    except csv.Error as error:
        raise TraceError(f"{path}:{reader.line_num}: {error}") from error


def _column(path: Path, header: Sequence[str], ours: str) -> int:
    for name in NAMES[ours]:
        if name in header:
            return header.index(name)
    raise TraceError(
        f"{path}:1: no column for {ours}: one of {', '.join(NAMES[ours])}; got {','.join(header)!r}"
    )


def _seconds(where: str, cell: str) -> float:
    try:
        seconds = float(cell)
    except ValueError:
        try:
            moment = datetime.fromisoformat(_FRACTION.sub(r"\1", cell.strip()))
            # Else this machine's clock would jump by an hour in the middle of a trace, twice a year.
            seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            raise TraceError(f"{where}: expected seconds or an ISO 8601 time, got {cell!r}") from None
    if not math.isfinite(seconds):
        raise TraceError(f"{where}: expected a finite time, got {cell!r}")
    return seconds


def _count(where: str, column: str, cell: str) -> int:
    if not re.fullmatch(r"\d{1,9}", cell.strip(), re.ASCII) or int(cell) < 1:
        raise TraceError(f"{where}: column {column}: expected a whole number of at least 1, got {cell!r}")
    return int(cell)
