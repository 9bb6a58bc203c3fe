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
from interleave.report.printed import MISSING, marked

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


def agreement_table(measured: pd.DataFrame, points: pd.DataFrame) -> pd.DataFrame:
    """`agreement` as a page shows it, what is simulated with its mark."""
    both = agreement(measured, points)
    return both.assign(simulated=marked(both["simulated"], "simulated", "the map's step model"))


def worst_without_long(points: pd.DataFrame) -> float | None:
    """The farthest that any simulated ratio lies from 1 where no prompt is long and the load is below 1."""
    table = ratios(simulated_cells(points))
    none = table[(table["share"] == 0) & (table["load"] < 1)]
    found = (none[list(LATENCIES)].astype(float) - 1).abs().max().max()
    return None if none.empty or pd.isna(found) else float(found)


def _tables(points: pd.DataFrame) -> dict[str, pd.DataFrame]:
    return {
        "cell": ratios(simulated_cells(points)),
        "trace, simulated": ratios(simulated_cells(points, "twin")),
        "trace, measured": ratios(measured_latencies(points)),
    }


def drawn(points: pd.DataFrame) -> pd.DataFrame:
    """The numbers of the map, and in `of` whether one is a cell's or of a measured trace."""
    tables = [table.assign(of=name) for name, table in _tables(points).items() if len(table)]
    return pd.concat(tables, ignore_index=True)


def map_figure(points: pd.DataFrame) -> Figure:
    """Four panels of cells, a number a cell. A box where it was measured: below the cell's number the simulated
    ratio of the measured traces themselves, and in bold the measured one."""
    cells, twins, measured = _tables(points).values()
    shares, loads = sorted(cells["share"].unique()), sorted(cells["load"].unique())
    figure, axes = panels(2, 2, height_in=max(2.6, 0.52 * len(shares) + 0.7))
    for axis, name in zip(axes, LATENCIES, strict=True):
        grid = cells.pivot_table(name, index="share", columns="load").reindex(index=shares, columns=loads)
        _panel(axis, grid, [_by_cell(table, name) for table in (twins, measured)])
        axis.set_title(TITLES[name])
    for axis in axes[2:]:
        axis.set_xlabel("load (x capacity of the mix)")
    for axis in axes[::2]:
        axis.set_ylabel("share of long prompts")
    return figure


def _by_cell(table: pd.DataFrame, name: str) -> dict[tuple[float, float], float]:
    """Share and load -> the ratio, where there is one."""
    own = table[table[name].notna()] if len(table) else table
    return {(row["share"], row["load"]): float(row[name]) for _, row in own.iterrows()}


def _panel(axis: Axes, grid: pd.DataFrame, boxes: list[dict[tuple[float, float], float]]) -> None:
    """grid: a line a share, a column a load. boxes: simulated and measured ratios of the measured traces."""
    twins, measured = boxes
    axis.pcolormesh(
        range(len(grid.columns) + 1),
        range(len(grid) + 1),
        grid.map(lambda value: max(-FARTHEST, min(FARTHEST, math.log2(value))) if value > 0 else math.nan),
        cmap="PuOr_r",
        norm=TwoSlopeNorm(0.0, -FARTHEST, FARTHEST),
        edgecolor="white",
    )
    for row, share in enumerate(grid.index):
        for column, load in enumerate(grid.columns):
            number = grid.loc[share, load]
            if pd.isna(number):
                continue
            texts = [f"{number:.2f}"]
            if (share, load) in measured:
                twin = twins.get((share, load))
                texts += [MISSING if twin is None else f"{twin:.2f}", f"{measured[share, load]:.2f}"]
                axis.add_patch(
                    Rectangle((column + 0.04, row + 0.04), 0.92, 0.92, fill=False, lw=1.8, ec="black")
                )
            _write(axis, texts, column, row, "white" if abs(math.log2(number)) > 0.75 * FARTHEST else "black")
    axis.set_xticks([n + 0.5 for n in range(len(grid.columns))], [f"{load:g}" for load in grid.columns])
    axis.set_yticks([n + 0.5 for n in range(len(grid))], [f"{share:.0%}" for share in grid.index])
    axis.grid(visible=False)
    axis.tick_params(length=0)


def _write(axis: Axes, texts: list[str], column: int, row: int, color: str) -> None:
    """The numbers of a cell, one below the other; the third, the measured one, in bold."""
    for place, text in enumerate(texts):
        axis.text(
            column + 0.5,
            row + 0.5 + 0.28 * ((len(texts) - 1) / 2 - place),
            text,
            ha="center",
            va="center",
            fontsize=9,
            color=color,
            fontweight="bold" if place == 2 else "normal",
        )
