"""Figures of the policies chapter: single steps, policies in either order, token budgets over the load."""

from __future__ import annotations

from itertools import cycle
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from interleave.report.figures.engine_rows import fitting_scale
from interleave.report.figures.policies import ORDER_WORDS, budgets, compared, ride_table
from interleave.report.figures.style import LOOKS, panels, plain_log
from interleave.report.printed import spoken

TRACE_WORDS = {"long": "some long prompts", "published": "published draw", "uniform": "all alike"}
BUDGET_LOOKS = (("#0072B2", "o", "-"), ("#E69F00", "s", "--"), ("#009E73", "D", "-."), ("#CC79A7", "^", ":"))
FORMS = (
    ("two forwards [ms]", "chunk and decodes, two forwards", "#D55E00", "s", "--"),
    ("one forward [ms]", "chunk and decodes, one forward", "#009E73", "D", "-"),
    ("chunk alone [ms]", "chunk alone", "#0072B2", "o", ":"),
    ("decodes alone [ms]", "decodes alone", "#000000", "", "-."),
)


def ride_figure(points: pd.DataFrame) -> Figure:
    """Step time over the chunk: alone, beside decodes in two forwards and in one, and the decodes alone."""
    table = ride_table(points)
    figure, (axis,) = panels(height_in=3.4)
    for column, label, color, marker, line in FORMS:
        axis.plot(table["chunk"], table[column], color=color, marker=marker, linestyle=line, label=label)
    axis.set_xscale("log", base=2)
    axis.set_xticks(table["chunk"], [f"{chunk:,}" for chunk in table["chunk"]])
    plain_log(axis)
    axis.set_xlabel("chunk (prompt positions)")
    axis.set_ylabel("one step (ms)")
    axis.set_title("What a chunk costs beside decodes")
    axis.legend(loc="upper left")
    return figure


def policies_figure(table: pd.DataFrame, traces: list[str], load: float, calm: float) -> Figure:
    """A row of panels a trace: TTFT of the prompts that are cut (all, where none is), the longest gap of the
    median request, and the worst of all.

    Large markers with numbers at `load`, small ones at `calm`; filled for decodes first, hollow for prompts.
    """
    figure, axes = panels(len(traces), 3, height_in=2.5)
    for row, trace in enumerate(traces):
        lines, quiet = compared(table, trace, load), compared(table, trace, calm)
        cut = bool(lines["ttft_long_s"].notna().any())
        first, second, third = axes[3 * row : 3 * row + 3]
        _variants(first, lines, quiet, "ttft_long_s" if cut else "ttft_s", 1.0)
        _variants(second, lines, quiet, "max_gap_s", 1e3)
        _variants(third, lines, quiet, "worst_gap_s", 1e3)
        first.set_title(TRACE_WORDS[trace])
        labels = (
            ("TTFT, " + ("cut" if cut else "all") + " prompts", "s"),
            ("gap, median", "ms"),
            ("gap, worst", "ms"),
        )
        for axis, (quantity, unit) in zip((first, second, third), labels, strict=True):
            fitting_scale(axis, quantity, unit)
            axis.set_xlabel(f"{quantity} ({unit})")  # narrow panels: a short label, and room for the numbers
            axis.set_xlim(right=axis.get_xlim()[1] * 1.2)
        second.set_yticklabels([])
        third.set_yticklabels([])
    return figure


def _variants(axis: Axes, lines: pd.DataFrame, quiet: pd.DataFrame, quantity: str, factor: float) -> None:
    names = list(zip(lines["policy"], lines["order"], strict=True))
    calm = quiet.set_index(["policy", "order"])[quantity]
    for place, (name, number) in enumerate(zip(names, lines[quantity], strict=True)):
        look, hollow = LOOKS[name[0]], name[1] == "prefill_first"
        style: dict[str, Any] = {"color": look.color, "markerfacecolor": "white" if hollow else look.color}
        if name in calm.index and pd.notna(calm[name]):
            axis.plot(calm[name] * factor, place, look.marker, markersize=4, **style)
        if pd.notna(number):
            axis.plot(number * factor, place, look.marker, markersize=8, markeredgewidth=1.6, **style)
            axis.annotate(
                spoken(number * factor),
                (number * factor, place),
                (9, 0),
                textcoords="offset points",
                va="center",
                fontsize=9,
            )
    axis.set_yticks(range(len(names)), [f"{policy}, {ORDER_WORDS[order]} first" for policy, order in names])
    for tick, (policy, _) in zip(axis.get_yticklabels(), names, strict=True):
        tick.set_color(LOOKS[policy].color)
    axis.set_ylim(len(names) - 0.4, -0.6)


def budget_figure(table: pd.DataFrame) -> Figure:
    """Over the load, a line per token budget: served rate, TTFT of long prompts, median and longest gap."""
    own = budgets(table)
    figure, axes = panels(2, 2, height_in=2.5)
    quantities = (
        ("served_rate", 1.0, "served rate (requests/s)", "Throughput"),
        ("ttft_long_s", 1.0, "median TTFT (s)", "First tokens of long prompts"),
        ("gap_p50_s", 1e3, "gap (ms)", "Median over all gaps"),
        ("max_gap_s", 1e3, "gap (ms)", "Longest gap of the median request"),
    )
    for axis, (quantity, factor, label, title) in zip(axes, quantities, strict=True):
        for (color, marker, line), (budget, lines) in zip(
            cycle(BUDGET_LOOKS), own.groupby("token_budget"), strict=False
        ):
            axis.plot(
                lines["load"],
                lines[quantity] * factor,
                color=color,
                marker=marker,
                linestyle=line,
                label=f"T = {int(float(str(budget))):,}",
            )
        if quantity == "served_rate":
            axis.set_ylim(bottom=0)
        else:
            plain_log(axis)
        axis.set_ylabel(label)
        axis.set_title(title)
    for axis in axes[2:]:
        axis.set_xlabel("load (x reference capacity)")
    axes[0].legend(loc="best")
    return figure
