"""Gives the tables in a cell's HTML output the look of the book's own: one class, numbers to the right.

Works on HTML text. What a cell holds stays as it is; ids, inline styles and other classes go, among them
the random ones of pandas' Styler. Knows nothing of notebooks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import unescape

TABLE = re.compile(r"(?:<style\b[^>]*>[^<]*</style>\s*)?<table\b([^>]*)>(.*?)</table>", re.S | re.I)
ROW = re.compile(r"<tr\b[^>]*>(.*?)</tr>", re.S | re.I)
CELL = re.compile(r"<(t[hd])\b([^>]*)>(.*?)</\1>", re.S | re.I)
HEAD = re.compile(r"<thead\b.*?</thead>", re.S | re.I)
CAPTION = re.compile(r"<caption\b[^>]*>(.*?)</caption>", re.S | re.I)
CLASS = re.compile(r"\bclass=\"([^\"]*)\"")
SPAN = re.compile(r"\b(?:col|row)span=\"\d+\"")
# A number with an optional sign, thousands separators, a short unit or a mark behind it; or a dash for none.
NUMBER = re.compile(
    r"[-+\N{MINUS SIGN}±]?[\d,]*\.?\d+(?:e[-+]?\d+)?(?:\s?(?:%|×|x|[a-zA-Zµ/]{1,8}))?|[-–]|", re.I
)


@dataclass
class Cell:
    tag: str
    content: str
    spans: list[str] = field(default_factory=list)

    @property
    def is_number(self) -> bool:
        """Whether the cell says a number, without its mark; an empty cell goes with any column."""
        text = re.sub(r"<abbr\b.*?</abbr>|<[^>]+>", "", self.content)
        return NUMBER.fullmatch(unescape(text).strip()) is not None


def tidy_tables(html: str) -> str:
    """`html` with each table rewritten."""
    return TABLE.sub(lambda found: tidy(found[1], found[2]), html)


def tidy(attributes: str, body: str) -> str:
    """One table: its caption, the classes of ours that it had (`il-...`), the theme's, and right-aligned number
    columns."""
    head, caption = HEAD.search(body), CAPTION.search(body)
    head_rows = rows_of(head[0]) if head else []
    body_rows = rows_of(HEAD.sub("", body))
    named = CLASS.search(attributes)
    ours = [name for name in (named[1].split() if named else []) if name.startswith("il-")]
    width = max((len(row) for row in body_rows), default=0)
    # Where cells span, columns can't be told by counting, and everything stays to the left.
    regular = not any(cell.spans for row in head_rows + body_rows for cell in row)
    numeric = {
        column
        for column in range(width if regular and "il-closing" not in ours else 0)
        if all(row[column].is_number for row in body_rows if column < len(row))
    }
    lines = [f'<div class="pst-scrollable-table-container"><table class="{" ".join(["table", *ours])}">']
    lines += [f"<caption>{caption[1].strip()}</caption>"] if caption else []
    lines += ["<thead>", *[row_html(row, numeric) for row in head_rows], "</thead>"] if head_rows else []
    lines += ["<tbody>", *[row_html(row, numeric) for row in body_rows], "</tbody>"]
    return "\n".join([*lines, "</table></div>"])


def rows_of(html: str) -> list[list[Cell]]:
    return [
        [Cell(tag.lower(), content.strip(), SPAN.findall(attributes)) for tag, attributes, content in cells]
        for cells in (CELL.findall(row) for row in ROW.findall(html))
    ]


def row_html(row: list[Cell], numeric: set[int]) -> str:
    cells = []
    for column, cell in enumerate(row):
        attributes = "".join(f" {span}" for span in cell.spans)
        attributes += ' class="text-right"' if column in numeric else ""
        cells.append(f"<{cell.tag}{attributes}>{cell.content}</{cell.tag}>")
    return f"<tr>{''.join(cells)}</tr>"
