"""Gaps between tokens as weighted (value, count) pairs in a fixed amount of memory.

Values fall into bins a thousandth apart; a bin remembers how many fell into it and their sum, so that
its value is their mean. Quantiles are then within 0.1% of the exact ones. Smallest and largest value,
count and sum are exact.
"""

from __future__ import annotations

import math
from array import array

import numpy as np
from numpy.typing import NDArray

from interleave.lab.quantiles import PERCENTS, supports

BIN_WIDTH = 1e-3
LOWEST_S, HIGHEST_S = 1e-7, 1e6
_NUM_BINS = math.ceil(math.log(HIGHEST_S / LOWEST_S) / BIN_WIDTH) + 1
_BUFFER = 1 << 14


class GapHistogram:
    def __init__(self) -> None:
        self._counts = np.zeros(_NUM_BINS, dtype=np.int64)
        self._sums = np.zeros(_NUM_BINS)
        self._runs = array("d")  # first, last, steps, count of each run not yet binned
        self._lowest, self._highest = math.inf, -math.inf

    def add(self, value_s: float, count: int) -> None:
        """`count` gaps of one length."""
        self._runs.extend((value_s, value_s, 1, count))  # as `add_run`, without a call
        if len(self._runs) >= 4 * _BUFFER:
            self._flush()

    def add_run(self, first_s: float, last_s: float, steps: int, count: int) -> None:
        """`steps` lengths, equally spaced from first to last, `count` gaps of each."""
        self._runs.extend((first_s, last_s, steps, count))
        if len(self._runs) >= 4 * _BUFFER:
            self._flush()

    def _flush(self) -> None:
        if not self._runs:
            return
        first, last, lengths, count = np.frombuffer(self._runs).reshape(-1, 4).T
        steps = lengths.astype(np.int64)
        index = np.arange(steps.sum()) - np.repeat(np.cumsum(steps) - steps, steps)
        spacing = (last - first) / np.maximum(steps - 1, 1)
        values = np.repeat(first, steps) + index * np.repeat(spacing, steps)
        weights = np.repeat(count, steps)
        bins = np.log(np.clip(values, LOWEST_S, HIGHEST_S) / LOWEST_S) / BIN_WIDTH
        where = bins.astype(np.int64)
        self._counts += np.bincount(where, weights, _NUM_BINS).astype(np.int64)
        self._sums += np.bincount(where, weights * values, _NUM_BINS)
        self._lowest = min(self._lowest, float(values.min()))
        self._highest = max(self._highest, float(values.max()))
        self._runs = array("d")

    def pairs(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """(values, counts) of the bins that hold any, in ascending order."""
        self._flush()
        filled = np.flatnonzero(self._counts)
        counts = self._counts[filled]
        return self._sums[filled] / counts, counts

    def quantile(self, percent: float) -> float | None:
        """The value below which `percent` of the gaps lie; None for what the number does not support."""
        values, counts = self.pairs()
        number = int(counts.sum())
        if not supports(number, percent):
            return None
        rank = (number - 1) * percent / 100
        return float(values[np.searchsorted(np.cumsum(counts), rank, side="right")])

    def distribution(self) -> dict[str, float | int | None]:
        """As `lab.quantiles.distribution`: n, p50 to p99, min, max, interquartile spread."""
        _, counts = self.pairs()
        number = int(counts.sum())
        summary: dict[str, float | int | None] = {"n": number}
        for percent in PERCENTS:
            summary[f"p{percent}"] = self.quantile(percent)
        summary["min"] = self._lowest if number else None
        summary["max"] = self._highest if number else None
        low, high = self.quantile(25), self.quantile(75)
        summary["spread"] = high - low if number > 1 and low is not None and high is not None else None
        return summary

    def ends(self) -> tuple[float, float]:
        """(smallest, largest) gap; infinities where there is none."""
        self._flush()
        return self._lowest, self._highest

    def above(self, limit_s: float) -> int:
        """Gaps longer than a limit, to the width of a bin."""
        values, counts = self.pairs()
        return int(counts[values > limit_s].sum())
