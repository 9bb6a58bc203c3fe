"""Quantiles that say null where the sample is too small. Does not know what is measured."""

from __future__ import annotations

from collections.abc import Iterable

TAIL_SAMPLES = 10
PERCENTS = (50, 90, 95, 99)


def supports(num_samples: int, percent: float) -> bool:
    """Whether a percentile may be printed: at least 10 samples are expected beyond it.

    That is 100 samples for p90, 200 for p95 and 1,000 for p99, so 400 requests give p95 but not p99.
    The median is the exception: it stands for any sample, down to a single one, and is read beside n.
    """
    if percent == 50:
        return num_samples >= 1
    return round(num_samples * min(percent, 100 - percent), 6) >= 100 * TAIL_SAMPLES


def quantile(values: Iterable[float], percent: float) -> float | None:
    """The percentile by linear interpolation between order statistics, None where unsupported.

    percent: above 0 and below 100. Raises ValueError otherwise.
    """
    if not 0 < percent < 100:
        raise ValueError(f"a percentile lies above 0 and below 100, got {percent!r}")
    ordered = sorted(values)
    return _interpolated(ordered, percent) if supports(len(ordered), percent) else None


def distribution(values: Iterable[float]) -> dict[str, float | int | None]:
    """n, p50, p90, p95, p99, min, max and spread of a sample; None for what it does not support.

    spread: interquartile range, None for fewer than two values. No value is ever 0 for missing.
    """
    ordered = sorted(values)
    summary: dict[str, float | int | None] = {"n": len(ordered)}
    for percent in PERCENTS:
        summary[f"p{percent}"] = quantile(ordered, percent)
    summary["min"] = ordered[0] if ordered else None
    summary["max"] = ordered[-1] if ordered else None
    several = len(ordered) > 1
    summary["spread"] = _interpolated(ordered, 75) - _interpolated(ordered, 25) if several else None
    return summary


def _interpolated(ordered: list[float], percent: float) -> float:
    position = (len(ordered) - 1) * percent / 100
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)
