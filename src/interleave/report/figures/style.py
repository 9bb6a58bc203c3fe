"""How every figure of the report looks: one palette, one marker and one line style per engine.

Colours are the Okabe-Ito set, which stays apart under the common colour deficiencies; markers and
line styles carry the same distinction in print. The background is opaque, so a figure reads the
same on a light and on a dark page.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

FULL_WIDTH_IN = 7.2
"""Inches. A page column is 720 CSS pixels wide; at this width 9 pt text stays 9 pt."""


@dataclass(frozen=True, slots=True)
class Look:
    color: str
    marker: str
    line: str


LOOKS: dict[str, Look] = {
    "nocache": Look("#7f7f7f", "x", ":"),
    "cached": Look("#000000", "+", ":"),
    "static": Look("#CC79A7", "v", "--"),
    "continuous": Look("#E69F00", "^", "--"),
    "paged": Look("#D55E00", "s", "-."),
    "whole": Look("#56B4E9", "d", "--"),
    "chunked": Look("#0072B2", "o", "-"),
    "mixed": Look("#009E73", "D", "-"),
}

RC: dict[Any, Any] = {
    "figure.dpi": 110,
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "savefig.facecolor": "white",
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 10,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.7,
    "lines.linewidth": 1.8,
    "lines.markersize": 6,
    "svg.hashsalt": "interleave",
}


def panels(rows: int = 1, columns: int = 1, height_in: float = 3.0) -> tuple[Figure, list[Axes]]:
    """A figure of the page's width with `rows` x `columns` panels, listed row by row."""
    with matplotlib.rc_context(RC):
        figure, axes = plt.subplots(
            rows, columns, figsize=(FULL_WIDTH_IN, height_in * rows), layout="constrained", squeeze=False
        )
    plt.close(figure)  # a notebook would otherwise show it twice
    return figure, [axis for row in axes for axis in row]


def label_ends(axis: Axes, ends: Iterable[tuple[str, float, float]], min_gap: float = 0.06) -> None:
    """Write each line's name beside its last point, in its own colour, pushed apart where they meet.

    ends: (engine, x, y) in data coordinates. min_gap: least distance between two names, as a share
    of the axis height.
    """
    axis.figure.canvas.draw()
    placed: list[tuple[float, str, float]] = []
    for engine, x, y in sorted(ends, key=lambda end: end[2]):
        height = axis.transAxes.inverted().transform(axis.transData.transform((x, y)))[1]
        if placed:
            height = max(height, placed[-1][0] + min_gap)
        placed.append((height, engine, x))
    for height, engine, _ in placed:
        axis.annotate(
            engine,
            xy=(1.0, height),
            xycoords="axes fraction",
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            color=LOOKS[engine].color,
            fontsize=9,
            fontweight="bold",
            annotation_clip=False,
        )
