"""Comparisons in words, both ways round."""

from __future__ import annotations

import pytest

from interleave.report.phrases import compared, duration


@pytest.mark.parametrize(
    ("value", "base", "phrase"),
    [
        (82, 100, "18% shorter"),
        (118, 100, "18% longer"),
        (100, 101, "about the same"),
        (101, 100, "about the same"),
        (25, 100, "4.0 times shorter"),
        (250, 100, "2.5 times longer"),
        (51, 100, "49% shorter"),
    ],
)
def test_a_comparison_reads_either_way(value: float, base: float, phrase: str) -> None:
    assert compared(value, base, "shorter", "longer") == phrase


def test_nothing_is_compared_with_zero() -> None:
    with pytest.raises(ValueError, match="only positive numbers"):
        compared(1.0, 0.0)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0123, "12 ms"), (0.94, "940 ms"), (1.26, "1.3 s"), (12.6, "13 s")]
)
def test_durations_have_two_digits(seconds: float, text: str) -> None:
    assert duration(seconds) == text
