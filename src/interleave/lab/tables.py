"""Reading CSV strictly: every refusal names file and line. Does not know what the columns mean."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path


class TableError(ValueError):
    """A table that cannot be used; the message starts with path and, where it has one, line."""


def read_table(path: Path, columns: Sequence[str]) -> list[tuple[int, list[str]]]:
    """(line number, cells) of every row below a header that must be exactly `columns`.

    A byte-order mark and CRLF line ends are accepted, so that a spreadsheet's export works. Raises
    TableError for an unreadable file, text that is not UTF-8, another header, a row with another
    number of cells, a blank line or a quote that never closes.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise TableError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise TableError(f"{path}: not UTF-8 text (byte {error.start})") from error
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    expected = ",".join(columns)
    rows: list[tuple[int, list[str]]] = []
    try:
        header = next(reader, [])
        if header != list(columns):
            raise TableError(f"{path}:1: the header must be {expected!r}, got {','.join(header)!r}")
        for cells in reader:
            if len(cells) != len(columns):
                raise TableError(
                    f"{path}:{reader.line_num}: expected {len(columns)} cells ({expected}), got {len(cells)}"
                )
            rows.append((reader.line_num, cells))
    except csv.Error as error:
        raise TableError(f"{path}:{reader.line_num}: {error}") from error
    return rows
