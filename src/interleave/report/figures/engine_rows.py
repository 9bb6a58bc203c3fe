"""Panels with an engine a row: names down the side, a marker with its number, bars by part of a step."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from interleave.report.figures.style import LOOKS

PART_LOOKS: dict[str, tuple[str, str]] = {  # colour and hatch
    "prefill": ("#0072B2", ""),
    "decode": ("#E69F00", "//"),
    "mixed": ("#009E73", "xx"),
    "copy": ("#D55E00", ""),
    "sample": ("#CC79A7", ".."),
    "host": ("#999999", ""),
}


def marked(axis: Axes, engine: str, value: float, place: int, text: str, beyond: float | None = None) -> None:
    """An engine's marker, and its number to the right of it (or of `beyond`)."""
    look = LOOKS[engine]
    axis.plot(value, place, look.marker, color=look.color, markersize=8)
    start = (max(value, beyond or value), place)
    axis.annotate(text, start, (9, 0), textcoords="offset points", va="center", fontsize=9)


def fitting_scale(axis: Axes, quantity: str, unit: str) -> None:
    """Logarithmic where the values differ more than fourfold, else from 0; plain numbers either way,
    and room on the right for those beside the markers."""
    low, high = axis.dataLim.intervalx
    if high < 4 * low:
        axis.set_xlim(0, high * 1.15)
        axis.set_xlabel(f"{quantity} ({unit})")
        return
    axis.set_xscale("log")
    axis.set_xlim(low / (high / low) ** 0.06, high * (high / low) ** 0.2)
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 30 * low else (1,)))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set_xlabel(f"{quantity} ({unit}, logarithmic)")


def engine_rows(axis: Axes, engines: list[str]) -> None:
    """Engines down the side, the first on top, each in its own colour."""
    axis.set_yticks(range(len(engines)), engines)
    for tick, engine in zip(axis.get_yticklabels(), engines, strict=True):
        tick.set_color(LOOKS[engine].color)
        tick.set_fontweight("bold")
    axis.set_ylim(len(engines) - 0.4, -0.6)
