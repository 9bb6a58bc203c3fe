"""The few repeats of one measurement as median, range and number. Knows not what was measured."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def spread(values: Sequence[float]) -> dict[str, float | int]:
    """Median, lowest, highest and number of repeated measurements."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "n": len(values)}
