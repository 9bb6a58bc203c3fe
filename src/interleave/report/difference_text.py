"""A difference between two runs in words: lines for the terminal, Markdown for the page. Compares nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from interleave.report.difference import Difference, Moved
from interleave.report.printed import MISSING, spoken
from interleave.report.runs import Page

HEADER = ("number", "before", "after", "change", "noise")
LEGEND = (
    "Ranges in brackets are those of the repeats; a move is within noise where the two ranges overlap, and "
    "unknown where no repeats were recorded."
)


def terminal_lines(found: Difference) -> list[str]:
    """What was chosen otherwise, the table with the farthest moves first, and what else differs."""
    rows = [
        HEADER,
        *(
            (one.name, number_text(one.before), number_text(one.after), change(one), noise(one))
            for one in found.moved
        ),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    table = [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    rule = "  ".join("-" * width for width in widths)
    return [
        f"before: {run_text(found.before)}",
        f"after:  {run_text(found.after)}",
        *[line for name in found.parameters for line in _chosen(found, name)],
        *([] if found.parameters else ["  no parameter differs"]),
        "",
        *([table[0], rule, *table[1:], LEGEND] if found.moved else ["this notebook records no number"]),
        *found.caveats,
    ]


def _chosen(found: Difference, name: str) -> Iterator[str]:
    old, new = found.parameters[name]
    yield f"  {name}: {json.dumps(old)} -> {json.dumps(new)}"
    if name in found.meanings:
        yield f"    {found.meanings[name]}"


def markdown_box(found: Difference) -> str:
    """The same as a box to stand under the page's title; each number has its mark."""
    chosen = [
        f"`{name}` {plain(new)} instead of {plain(old)}" for name, (old, new) in found.parameters.items()
    ]
    rows = [
        (
            f"`{one.name}`",
            marked(one.before, found.before),
            marked(one.after, found.after),
            change(one),
            noise(one),
        )
        for one in found.moved
    ]
    table = [row_text(HEADER), "|---|---:|---:|---:|---|", *map(row_text, rows), ""]
    lines = [
        f":::{{admonition}} A try: {', '.join(chosen) or 'no parameter differs'}",
        ":class: note il-try",
        *[f"`{name}`: {meaning}.\n" for name, meaning in found.meanings.items()],
        f"Before: {run_text(found.before)}. After: {run_text(found.after)}.\n",
        *([*table, LEGEND] if rows else ["This notebook records no number."]),
        *[f"\n{caveat}" for caveat in found.caveats],
        ":::\n",
    ]
    return "\n".join(lines)


def run_text(page: Page) -> str:
    """Which run this is, as both outputs name it."""
    origin = page.origin
    return f"profile {page.tier}, {origin.get('device')}, {str(origin.get('started'))[:16].replace('T', ' ')} UTC"


def number_text(number: Mapping[str, Any] | None) -> str:
    """The number as its page prints it, and the range of its repeats."""
    if number is None:
        return MISSING
    if "low" not in number:
        return str(number["text"])
    low, high = (spoken(number[side], number["digits"]) for side in ("low", "high"))
    return f"{number['text']} [{low} to {high}]"


def marked(number: Mapping[str, Any] | None, page: Page) -> str:
    """The same with the number's mark, or its page's; a word has none."""
    text = number_text(number).replace("|", "\\|")
    if number is None or isinstance(number["value"], str):
        return text
    return f"{text} {{mark}}`{number.get('mark', page.mark)}`"


def change(one: Moved) -> str:
    """How it moved against the value before: a share, or a factor from two times on."""
    if one.before is None or one.after is None:
        return MISSING
    old, new = one.before["value"], one.after["value"]
    if old == new:
        return "same"
    if isinstance(old, str) or isinstance(new, str):
        return "another"
    if old == 0 or (old < 0) != (new < 0):
        return f"{'+' if new > old else '-'}{spoken(abs(new - old), 2)}"
    ratio = new / old
    if ratio >= 2:
        return f"{spoken(ratio, 2)} times"
    return f"{'+' if ratio > 1 else '-'}{spoken(100 * abs(ratio - 1), 2)}%"


def noise(one: Moved) -> str:
    """Whether it moved farther than its repeats do; a dash where nothing moved that has repeats."""
    if one.before is None or one.after is None or one.size == 0 or isinstance(one.after["value"], str):
        return MISSING
    return one.noise or "unknown"


def plain(value: Any) -> str:
    return f"`{json.dumps(value)}`"


def row_text(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
