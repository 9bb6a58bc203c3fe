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
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

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
    "recorded": Look("#882255", "P", "-"),
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
    matplotlib.rcParams.update(RC)  # titles and labels are set later, and take their look from here
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
    to_axes = axis.transData + axis.transAxes.inverted()
    placed = sorted((float(to_axes.transform((x, y))[1]), engine) for engine, x, y in ends)
    heights = _spread([height for height, _ in placed], min_gap)
    for height, (_, engine) in zip(heights, placed, strict=True):
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


def _spread(heights: list[float], gap: float) -> list[float]:
    """Ascending heights moved as little as needed to lie `gap` apart, within 0..1 where they fit."""
    moved: list[float] = []
    for height in heights:
        moved.append(max(height, moved[-1] + gap) if moved else height)
    ceiling = max(1.0, (len(moved) - 1) * gap)
    for index in reversed(range(len(moved))):
        moved[index] = min(moved[index], ceiling)
        ceiling = moved[index] - gap
    return moved


def plain_log(axis: Axes) -> None:
    """A logarithmic y axis whose ticks read 0.2, 0.5, 1, 2 instead of powers of ten; 0.1, 1, 10 over a wide range."""
    low, high = axis.dataLim.intervaly
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 2000 * low else (1.0,)))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())


def over_rows(axis: Axes, rows: Iterable[float]) -> None:
    """An x axis of row counts, logarithmic, with a tick and a plain number for each; and the legend."""
    counts = list(rows)
    axis.set_xscale("log", base=2)
    axis.set_xticks(counts, [f"{count:.0f}" for count in counts])
    axis.set_xlabel("decode rows")
    axis.legend(loc="upper left")
