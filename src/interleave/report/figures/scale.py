"""Figures of the page on scale: cost, fleets, splits, and budgets by a target. Measures nothing."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from interleave.report.figures.scale_splits import split_names, splits
from interleave.report.figures.scale_tables import fleets
from interleave.report.figures.simulator import of_kind
from interleave.report.figures.style import LOOKS, Look, panels, plain_log

ROUTING_LOOKS = {
    "round_robin": Look("#7f7f7f", "s", ":"),
    "shortest_queue": Look("#E69F00", "^", "--"),
    "least_loaded": Look("#0072B2", "o", "-"),
}
LOAD_LOOKS = (
    Look("#56B4E9", "v", ":"),
    Look("#009E73", "D", "--"),
    Look("#D55E00", "o", "-"),
    Look("#000000", "x", "-."),
)

WAY_LOOKS = {"apart": Look("#999999", "P", "-.")}


def cost_figure(points: pd.DataFrame) -> Figure:
    """Requests simulated a second, and the memory that it takes, over the number of requests."""
    table = of_kind(points, "cost").sort_values("requests")
    figure, axes = panels(1, 2, height_in=2.8)
    for axis, column, label in (
        (axes[0], "requests_per_s", "requests simulated a second"),
        (axes[1], "peak_mib", "peak memory (MiB)"),
    ):
        axis.plot(table["requests"], table[column], color=LOOKS["chunked"].color, marker="o")
        axis.set_xscale("log")
        axis.set_xticks(list(table["requests"]), [_short(number) for number in table["requests"]])
        axis.minorticks_off()
        axis.set_ylim(0, float(table[column].max()) * 1.15)
        axis.set_xlabel("requests in the run")
        axis.set_ylabel(label)
    return figure


def _short(number: float) -> str:
    for size, name in ((1e6, " million"), (1e3, "k")):
        if number >= size:
            return f"{number / size:g}{name}"
    return f"{number:g}"


def fleet_figure(points: pd.DataFrame) -> Figure:
    """Time to first token over the number of machines, a line per routing: median and 90th percentile."""
    table = fleets(points)
    figure, axes = panels(1, 2, height_in=3.0)
    for axis, column, title in (
        (axes[0], "ttft_p50_s", "Median"),
        (axes[1], "ttft_p90_s", "90th percentile"),
    ):
        for routing, own in table.groupby("routing", sort=False):
            look, own = ROUTING_LOOKS[str(routing)], own.sort_values("machines")
            axis.plot(own["machines"], own[column], color=look.color, marker=look.marker, linestyle=look.line,
                      label=str(routing).replace("_", " "))  # fmt: skip
        axis.set_xscale("log", base=2)
        sizes = sorted(table["machines"].unique())
        axis.set_xticks(sizes, [f"{size:g}" for size in sizes])
        axis.set_ylim(bottom=0)
        axis.set_title(title)
        axis.set_xlabel("machines, at the same load each")
        axis.set_ylabel("time to first token (s)")
    axes[0].legend(loc="best")
    return figure


def apart_figure(points: pd.DataFrame) -> Figure:
    """Served rate, first tokens and gaps over the split of the machines, a line per load.

    Two panels of gaps: a percentile over all of them hardly sees the one in each request that holds a transfer.
    """
    table = splits(points)
    figure, axes = panels(4, 1, height_in=2.1)
    quantities = (
        ("served_rate", "served rate (requests/s)", "Throughput"),
        ("ttft_p90_s", "TTFT (s)", "Time to first token, 90th percentile"),
        ("gap_p99_s", "gap (s)", "Time between two tokens, 99th percentile"),
        ("longest_gap_p50_s", "gap (s)", "Longest time between two tokens of the median request"),
    )
    for axis, (column, label, title) in zip(axes, quantities, strict=True):
        for number, (load, own) in enumerate(table.groupby("load")):
            look, own = LOAD_LOOKS[number % len(LOAD_LOOKS)], own.sort_values("prefill_machines")
            axis.plot(own["prefill_machines"], own[column], color=look.color, marker=look.marker,
                      linestyle=look.line, label=f"load {load:g}")  # fmt: skip
        axis.set_xticks(sorted(table["prefill_machines"].unique()), split_names(table))
        axis.set_ylabel(label)
        axis.set_title(title)
        if column == "served_rate":
            axis.set_ylim(bottom=0)
        else:
            plain_log(axis)
    axes[0].legend(loc="best")
    axes[-1].set_xlabel("machines: prefill + decode, or all of them chunking")
    return figure


def agents_figure(points: pd.DataFrame) -> Figure:
    """The worst gap against the agents' own first token, a line per way through the lengths of their prompts, from
    the shortest, on the left, to the longest. The highest marker of each length is labelled.

    Down is better for everybody else, left for the agents."""
    table = of_kind(points, "agent")
    figure, (axis,) = panels(height_in=3.4)
    for way, own in table.groupby("way", sort=False):
        look, own = WAY_LOOKS.get(str(way)) or LOOKS[str(way)], own.sort_values("agent_tokens")
        axis.plot(own["agent_ttft_p50_s"], own["worst_gap_s"], color=look.color, marker=look.marker,
                  linestyle=look.line, label=str(way))  # fmt: skip
    for tokens, own in table.groupby("agent_tokens"):
        highest = own.loc[own["worst_gap_s"].idxmax()]
        axis.annotate(f"{tokens:,.0f} tokens", (highest["agent_ttft_p50_s"], highest["worst_gap_s"]), (0, 7),
                      textcoords="offset points", ha="center", fontsize=9)  # fmt: skip
    plain_log(axis)
    axis.margins(x=0.1, y=0.15)
    axis.set_xlabel("the agents' median time to first token (s)")
    axis.set_ylabel("worst gap of anybody (s)")
    axis.legend(loc="best")
    return figure


def budget_figure(points: pd.DataFrame) -> Figure:
    """First tokens against the worst gap: fixed budgets, and budgets by a target. Down and left is better."""
    table = of_kind(points, "budget")
    targets = table["target_s"] if "target_s" in table else pd.Series([None] * len(table))
    figure, (axis,) = panels(height_in=3.4)
    for own, look, label, name, below in (
        (
            table[targets.isna()],
            LOOKS["chunked"],
            "fixed budget (tokens)",
            lambda row: f"{row.budget:.0f}",
            7,
        ),
        (
            table[targets.notna()],
            LOOKS["paged"],
            "budget by a target (ms a step)",
            lambda row: f"{1e3 * row.target_s:g}",
            -15,
        ),
    ):
        own = own.sort_values("worst_gap_s")
        axis.plot(own["worst_gap_s"] * 1e3, own["ttft_p90_s"], color=look.color, marker=look.marker,
                  linestyle=look.line, label=label)  # fmt: skip
        for row in own.itertuples():
            axis.annotate(name(row), (row.worst_gap_s * 1e3, row.ttft_p90_s), (0, below),
                          textcoords="offset points", ha="center", fontsize=9, color=look.color)  # fmt: skip
    axis.margins(y=0.15)
    axis.set_xlabel("worst gap (ms)")
    axis.set_ylabel("TTFT, 90th percentile (s)")
    plain_log(axis)
    axis.legend(loc="best")
    return figure
