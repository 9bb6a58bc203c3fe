"""Comparisons in words, for numbers whose order may turn out either way on another machine."""

from __future__ import annotations

from interleave.report.printed import spoken

ALIKE = "about the same"
SAME = 0.02  # differences below this share are within what repeated runs show


def compared(value: float, base: float, less: str = "less", more: str = "more") -> str:
    """How `value` stands to `base`, both positive: `18% less`, `2.4 times more`, `about the same`.

    less, more: the words for a smaller and a larger value (shorter and longer, lower and higher).
    """
    if not (value > 0 and base > 0):
        raise ValueError(f"only positive numbers can be compared as shares: {value!r} with {base!r}")
    word, ratio = (less, base / value) if value < base else (more, value / base)
    if ratio < 1 + SAME:
        return ALIKE
    if ratio >= 2:
        return f"{spoken(ratio, 2)} times {word}"
    share = 1 - 1 / ratio if word == less else ratio - 1
    return f"{share:.0%} {word}"


def duration(seconds: float) -> str:
    """Two digits of a time, in milliseconds below one second."""
    return f"{spoken(seconds * 1e3, 2)} ms" if seconds < 1 else f"{spoken(seconds, 2)} s"
