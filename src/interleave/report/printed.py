"""Numbers and data frames as a page prints them, marks included. Knows no results."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Any

from interleave.report.marks import Value, badge_html

if TYPE_CHECKING:
    import pandas as pd

MAX_COLUMNS = 6
MISSING = "–"


def spoken(value: float | str, digits: int = 2) -> str:
    """A number as prose has it: `digits` significant ones, thousands separated, no exponent."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) or value == 0:
        return f"{value:,.0f}"
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    return f"{round(value, decimals):,.{max(0, decimals)}f}"


def table_html(frame: pd.DataFrame, digits: int = 3) -> str:
    """The frame's columns in order, without its index; floats to `digits` significant digits.

    A missing value is a dash; a `Value` has its mark beside it. The book aligns the columns. Raises ValueError for
    more columns than a page holds.
    """
    if len(frame.columns) > MAX_COLUMNS:
        raise ValueError(f"a table of {len(frame.columns)} columns; at most {MAX_COLUMNS} fit a page")
    head = "".join(f"<th>{escape(str(name))}</th>" for name in frame.columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{_cell(value, digits)}</td>' for value in row)}</tr>"
        for row in frame.itertuples(index=False)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any, digits: int) -> str:
    if isinstance(value, Value):
        return escape(value.text) + (f"&nbsp;{badge_html(value.mark)}" if value.mark else "")
    return escape(_text(value, digits))


def _text(value: Any, digits: int) -> str:
    missing = value is None or (isinstance(value, float) and math.isnan(value))
    return MISSING if missing else spoken(value, digits)
