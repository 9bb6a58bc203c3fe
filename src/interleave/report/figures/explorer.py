"""The still picture of the explorer: first token against longest gap over the chunk budgets, at three loads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from interleave.report.explorer import at, nearest, start
from interleave.report.figures.style import LOOKS, panels, plain_log

LOADS = (0.5, 0.85, 1.0)
LOOK_OF = {"whole": "whole", "padded": "paged", "chunked": "chunked", "mixed": "mixed"}
WORST_S = 100.0
"""Waits beyond this are of a queue that grows as long as the run; they are left out of the picture."""


def shown_loads(grid: Mapping[str, Any]) -> list[float]:
    return sorted({nearest(grid["axes"]["loads"], load) for load in LOADS})


def explorer_figure(grid: Mapping[str, Any]) -> Figure:
    """A panel a load, at the starting share of long prompts; a marker a chunk budget."""
    share, loads = start(grid)["long_share"], shown_loads(grid)
    figure, axes = panels(1, len(loads), height_in=3.5)
    for axis, load in zip(axes, loads, strict=True):
        _panel(axis, grid, share, load)
        axis.set_title(f"load {load:g}")
    axes[0].set_ylabel("longest gap (ms)")
    axes[len(axes) // 2].set_xlabel("first token, 90% within (s)")
    low, high = min(axis.get_ylim()[0] for axis in axes), max(axis.get_ylim()[1] for axis in axes)
    for number, axis in enumerate(axes):
        axis.set_ylim(low, high)
        axis.tick_params(labelleft=number == 0)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))
    return figure


def _panel(axis: Axes, grid: Mapping[str, Any], share: float, load: float) -> None:
    limits = grid["setting"]["limits"]
    for policy in grid["axes"]["policies"]:
        own = at(grid, policy, long_share=share, load=load).sort_values("chunk_budget")
        own = own[own["ttft_p90_s"] <= WORST_S]
        look = LOOKS[LOOK_OF[policy]]
        axis.plot(
            own["ttft_p90_s"],
            own["gap_max_s"] * 1e3,
            look.line,
            color=look.color,
            marker=look.marker,
            label=policy,
        )
        if policy == "chunked":
            for row in own.itertuples():
                axis.annotate(
                    f"{row.chunk_budget:g}", (row.ttft_p90_s, row.gap_max_s * 1e3), (5, 4),
                    textcoords="offset points", fontsize=9, color=look.color,
                )  # fmt: skip
    axis.set_xscale("log")
    plain_log(axis)
    axis.xaxis.set_major_locator(LogLocator(subs=(1.0,)))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set_xlim(0.2, WORST_S)
    bottom = axis.get_ylim()[0]
    axis.add_patch(
        Rectangle((0.01, 1e-3), limits["ttft_s"], limits["max_gap_s"] * 1e3, color="#e6f2e6", zorder=0)
    )
    axis.set_ylim(bottom, None)


def explorer_alt(grid: Mapping[str, Any]) -> str:
    loads = " and ".join(f"{load:g}" for load in shown_loads(grid))
    return (
        f"Panels for loads of {loads}: time to the first token against the longest gap, both logarithmic. Larger "
        "chunks move chunked and mixed up and to the left; whole and padded prompts lie far above them."
    )


def explorer_caption(grid: Mapping[str, Any]) -> str:
    share = start(grid)["long_share"]
    return (
        f"With {share:.0%} long prompts, prompts that are cut (markers: chunk budgets, numbers for chunked) give "
        "far shorter longest gaps than whole or padded ones. Small budgets pay with the first token, sooner the "
        "higher the load. Shaded: within both limits."
    )
