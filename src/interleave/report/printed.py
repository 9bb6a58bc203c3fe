"""Numbers and data frames as a page prints them, marks included. Knows no results."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
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


def marked(numbers: Iterable[float], mark: str, source: str) -> list[Value]:
    """A column whose numbers come from elsewhere than the page's, three digits each, with their mark."""
    return [Value(MISSING if math.isnan(one) else spoken(float(one), 3), mark, source) for one in numbers]


def table_html(frame: pd.DataFrame, digits: int = 3, caption: str | None = None) -> str:
    """The frame's columns in order, without its index; floats to `digits` significant digits.

    A missing value is a dash; a `Value` has its mark beside it. caption: what the table holds, words in backquotes
    as code. The book aligns the columns. Raises ValueError for more columns than a page holds.
    """
    if len(frame.columns) > MAX_COLUMNS:
        raise ValueError(f"a table of {len(frame.columns)} columns; at most {MAX_COLUMNS} fit a page")
    head = "".join(f"<th>{escape(str(name))}</th>" for name in frame.columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{_cell(value, digits)}</td>' for value in row)}</tr>"
        for row in frame.itertuples(index=False)
    )
    said = "" if caption is None else f"<caption>{_with_code(caption)}</caption>"
    return f"<table>{said}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _with_code(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))


def _cell(value: Any, digits: int) -> str:
    if isinstance(value, Value):
        return escape(value.text) + (f"&nbsp;{badge_html(value.mark)}" if value.mark else "")
    return escape(_text(value, digits))


def _text(value: Any, digits: int) -> str:
    missing = value is None or (isinstance(value, float) and math.isnan(value))
    return MISSING if missing else spoken(value, digits)
