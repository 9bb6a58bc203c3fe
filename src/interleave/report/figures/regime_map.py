"""The regime map: what chunking does to four latencies, over the share of long prompts and the load.

Simulated cells, and beside them the ones that were measured. Ratios are of `mixed` to `whole`, each in its
usual order: below 1 chunking shortens the latency. Takes the experiment's rows; simulates nothing.
"""

from __future__ import annotations

import math

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from interleave.lab.policy_runs import USUAL_BUDGET, USUAL_ORDER
from interleave.lab.regime_map import LATENCIES, latencies
from interleave.report.figures.style import panels

TITLES = {
    "max_gap_s": "Longest gap, median request",
    "worst_gap_s": "Worst gap of all",
    "ttft_short_s": "TTFT, short prompts",
    "ttft_long_s": "TTFT, long prompts",
}
FARTHEST = 3.0  # doublings at which the colours end


def ratios(table: pd.DataFrame) -> pd.DataFrame:
    """One line per share and load: each latency of `mixed` over that of `whole`."""
    by = {name: own.set_index(["share", "load"]) for name, own in table.groupby("policy")}
    if not {"mixed", "whole"} <= by.keys():
        return pd.DataFrame(columns=["share", "load", *LATENCIES])
    return (by["mixed"][list(LATENCIES)] / by["whole"][list(LATENCIES)]).dropna(how="all").reset_index()


def simulated_cells(points: pd.DataFrame, kind: str = "cell") -> pd.DataFrame:
    """kind cell: of the map; twin: of the traces that were measured."""
    return points[points["kind"] == kind][["share", "load", "policy", *LATENCIES]]


def measured_latencies(points: pd.DataFrame) -> pd.DataFrame:
    """One line per measured share, load and policy of the map."""
    requests = points[(points["kind"] == "request") & (points["trace"] == "long") & points["load"].notna()]
    usual = requests["order"] == requests["policy"].map(USUAL_ORDER)
    requests = requests[usual & (requests["token_budget"] == USUAL_BUDGET)]
    columns = ["ttft_s", "max_gap_s", "long"]
    lines = [
        dict(zip(("share", "load", "policy"), facts, strict=True)) | latencies(_records(own[columns]))
        for facts, own in requests.groupby(["share", "load", "policy"])
    ]
    return pd.DataFrame(lines, columns=["share", "load", "policy", *LATENCIES]).astype(
        dict.fromkeys(LATENCIES, float)
    )


def _records(frame: pd.DataFrame) -> list[dict[str, float | None]]:
    return [
        {
            name: None if pd.isna(value) else float(value)
            for name, value in zip(frame.columns, row, strict=True)
        }
        for row in frame.itertuples(index=False)
    ]


def agreement(measured: pd.DataFrame, points: pd.DataFrame) -> pd.DataFrame:
    """Measured and simulated ratios on the same traces: one line per share, load and latency."""
    twins = ratios(simulated_cells(points, "twin"))
    both = measured.merge(twins, on=["share", "load"], suffixes=("", "_simulated"))
    lines = [
        {"share": row["share"], "load": row["load"], "latency": TITLES[name], "measured": row[name],
         "simulated": row[f"{name}_simulated"]}
        for _, row in both.iterrows()
        for name in LATENCIES
    ]  # fmt: skip
    return pd.DataFrame(lines, columns=["share", "load", "latency", "measured", "simulated"]).dropna()


def worst_without_long(points: pd.DataFrame) -> float | None:
    """The farthest that any simulated ratio lies from 1 where no prompt is long and the load is below 1."""
    table = ratios(simulated_cells(points))
    none = table[(table["share"] == 0) & (table["load"] < 1)]
    found = (none[list(LATENCIES)].astype(float) - 1).abs().max().max()
    return None if none.empty or pd.isna(found) else float(found)


def map_figure(points: pd.DataFrame) -> Figure:
    """Four panels of cells; a number a cell, a box and a second number where it was measured."""
    cells, measured = ratios(simulated_cells(points)), ratios(measured_latencies(points))
    shares, loads = sorted(cells["share"].unique()), sorted(cells["load"].unique())
    figure, axes = panels(2, 2, height_in=max(2.6, 0.42 * len(shares) + 0.7))
    for axis, name in zip(axes, LATENCIES, strict=True):
        _panel(axis, cells, measured, name, shares, loads)
    for axis in axes[2:]:
        axis.set_xlabel("load (x capacity of the mix)")
    for axis in axes[::2]:
        axis.set_ylabel("share of long prompts")
    return figure


def _panel(
    axis: Axes,
    cells: pd.DataFrame,
    measured: pd.DataFrame,
    name: str,
    shares: list[float],
    loads: list[float],
) -> None:
    grid = cells.pivot_table(name, index="share", columns="load").reindex(index=shares, columns=loads)
    seen = measured.pivot_table(name, index="share", columns="load") if len(measured) else pd.DataFrame()
    axis.pcolormesh(
        range(len(loads) + 1),
        range(len(shares) + 1),
        grid.map(lambda value: max(-FARTHEST, min(FARTHEST, math.log2(value))) if value > 0 else math.nan),
        cmap="PuOr_r",
        norm=TwoSlopeNorm(0.0, -FARTHEST, FARTHEST),
        edgecolor="white",
    )
    for row, share in enumerate(shares):
        for column, load in enumerate(loads):
            number = grid.loc[share, load]
            if pd.isna(number):
                continue
            color = "white" if abs(math.log2(number)) > 0.75 * FARTHEST else "black"
            boxed = share in seen.index and load in seen.columns and not pd.isna(seen.loc[share, load])
            text = f"{number:.2f}" + (f"\n{seen.loc[share, load]:.2f}" if boxed else "")
            axis.text(
                column + 0.5,
                row + 0.5,
                text,
                ha="center",
                va="center",
                fontsize=9,
                color=color,
                linespacing=1.0,
            )
            if boxed:
                axis.add_patch(
                    Rectangle((column + 0.04, row + 0.04), 0.92, 0.92, fill=False, lw=1.8, ec="black")
                )
    axis.set_xticks([n + 0.5 for n in range(len(loads))], [f"{load:g}" for load in loads])
    axis.set_yticks([n + 0.5 for n in range(len(shares))], [f"{share:.0%}" for share in shares])
    axis.grid(visible=False)
    axis.tick_params(length=0)
    axis.set_title(TITLES[name])
