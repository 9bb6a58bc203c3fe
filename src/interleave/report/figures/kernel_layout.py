"""Figures and tables of the layouts of an attention call: what uniting rows costs, alone and beside a chunk.

Takes the experiment's rows as one frame; measures nothing.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from pydantic import BaseModel

from interleave.lab.reference import load_published
from interleave.report.figures.graded import verdict
from interleave.report.figures.style import Look, over_rows, panels, plain_log

LAYOUT_LOOKS = {
    "separate": Look("#0072B2", "o", "-"),
    "union": Look("#D55E00", "s", "-."),
    "segmented": Look("#009E73", "D", "--"),
}
MEAN_LINES: tuple[Any, ...] = ("-", "--", "-.", (0, (8, 2)))  # dotted is the published ratio


def published_ratio() -> float:
    """Union tiles over separate rows as published for an A10: c13 over c12."""
    took = {row.id: row.value for row in load_published() if row.id in ("c12", "c13")}
    slow, fast = took["c13"], took["c12"]
    assert slow is not None
    assert fast is not None
    return slow / fast


def calls(points: pd.DataFrame) -> pd.DataFrame:
    """One line per batch: the median time of each layout, the ratio of union to separate, the floor.

    Ratios are medians over repetitions of calls made one after the other; union_ratio_low and _high are what
    the middle 80% of the repetitions say. mean and spread are missing for the published mix.
    """
    keys = ["rows", "mean", "spread", "cached", "longest", "chunk"]
    wide = points.set_index([*keys, "repeat", "layout"])["call_s"].unstack("layout").reset_index()
    wide["union_ratio"] = wide["union"] / wide["separate"]
    wide["segmented_ratio"] = wide["segmented"] / wide["separate"]
    found = wide.groupby(keys, dropna=False).median(numeric_only=True).drop(columns="repeat").reset_index()
    ends = wide.groupby(keys, dropna=False)["union_ratio"].quantile([0.1, 0.9]).unstack().reset_index()
    found = found.merge(ends.rename(columns={0.1: "union_ratio_low", 0.9: "union_ratio_high"}), on=keys)
    floors = points.groupby(keys, dropna=False)["floor_s"].first().reset_index()
    return found.merge(floors, on=keys)


def union_band(line: pd.Series) -> tuple[float, float]:
    """What the middle 80% of a line's repetitions say of its ratio."""
    return float(line["union_ratio_low"]), float(line["union_ratio_high"])


def layout_figure(table: pd.DataFrame) -> Figure:
    """Decode rows alone, equal lengths: time over rows for each layout; and what uniting costs."""
    figure, axes = panels(1, 2, height_in=3.2)
    equal = _grid(table, 0)
    equal = equal[equal["spread"] == equal["spread"].min()]
    longest = equal["mean"].max()
    for layout, look in LAYOUT_LOOKS.items():
        own = equal[equal["mean"] == longest].sort_values("rows")
        axes[0].plot(
            own["rows"],
            own[layout] * 1e3,
            color=look.color,
            marker=look.marker,
            linestyle=look.line,
            label=layout,
        )
    axes[0].set_ylabel("one call (ms)")
    axes[0].set_title(f"Rows of {longest:,.0f} positions")
    for mean, line in zip(sorted(equal["mean"].unique()), MEAN_LINES, strict=False):
        own = equal[equal["mean"] == mean].sort_values("rows")
        axes[1].plot(
            own["rows"],
            own["union_ratio"],
            color="#D55E00",
            marker="s",
            linestyle=line,
            label=f"{mean:,.0f} positions",
        )
    axes[1].axhline(published_ratio(), color="black", linestyle=":", lw=1.2)
    axes[1].set_ylabel("union / separate")
    axes[1].set_title("Uniting; dotted: published, A10")
    for axis in axes:
        plain_log(axis)
        over_rows(axis, sorted(equal["rows"].unique()))
    return figure


def beside_figure(table: pd.DataFrame) -> Figure:
    """Beside a chunk: one launch for all, and union tiles with a second call, against two calls."""
    figure, (axis,) = panels(height_in=3.0)
    beside = _grid(table, None)
    beside = beside[(beside["chunk"] > 0) & (beside["mean"] == beside["mean"].max())]
    beside = beside[beside["spread"] == beside["spread"].min()].sort_values("rows")
    for layout in ("union", "segmented"):
        look, ratio = LAYOUT_LOOKS[layout], beside[f"{layout}_ratio"]
        axis.plot(
            beside["rows"], ratio, color=look.color, marker=look.marker, linestyle=look.line, label=layout
        )
    axis.axhline(1.0, color="black", linestyle=":", lw=1.2)
    axis.set_ylabel("time / separate calls")
    axis.set_title(f"With a chunk of {beside['chunk'].iloc[0]:,.0f} positions in the same layer")
    plain_log(axis)
    over_rows(axis, sorted(beside["rows"].unique()))
    return figure


def mix_table(table: pd.DataFrame, layers: int) -> pd.DataFrame:
    """The published mix of rows: each layout's call, a step's worth of them, ratio, fraction of the limit.

    Ratios are those of `calls`, medians over neighbouring calls, and so not quite the quotients of the medians.
    """
    lines = []
    for line in table[table["mean"].isna()].sort_values("chunk").itertuples():
        for layout in LAYOUT_LOOKS:
            took = float(getattr(line, layout))
            floor = float(line.floor_s) if pd.notna(line.floor_s) else None
            lines.append(
                {
                    "chunk beside": int(line.chunk),
                    "layout": layout,
                    "one call [ms]": took * 1e3,
                    f"{layers} layers [ms]": took * 1e3 * layers,
                    "against separate": 1.0
                    if layout == "separate"
                    else float(getattr(line, f"{layout}_ratio")),
                    "of the machine's limit": None if floor is None else floor / took,
                }
            )
    return pd.DataFrame(lines)


def _grid(table: pd.DataFrame, chunk: int | None) -> pd.DataFrame:
    """Batches of the grid, not the published mix; of one chunk size or all."""
    found = table[table["mean"].notna()]
    return found if chunk is None else found[found["chunk"] == chunk]


def at(table: pd.DataFrame, rows: int, quantity: str, chunk: bool = False) -> float | None:
    """The median over the grid's batches of so many rows; None where none ran."""
    found = _grid(table, None)
    found = found[(found["rows"] == rows) & ((found["chunk"] > 0) == chunk)]
    return float(found[quantity].median()) if len(found) else None


def spread_effect(table: pd.DataFrame, layout: str) -> float | None:
    """The largest change of a call's time when lengths spread about the same mean, as a ratio above 1."""
    grid = _grid(table, 0)
    grid = grid[grid["rows"] > 1]
    times = grid.pivot_table(layout, index=["rows", "mean"], columns="spread")
    if times.shape[1] < 2:
        return None
    return float((times.max(axis=1) / times.min(axis=1)).max())


def verdicts(table: pd.DataFrame) -> pd.DataFrame:
    """Each recorded prediction with what was measured; left open where what it speaks of did not run."""
    beyond = float("inf")
    at_32, at_8, at_1 = (at(table, rows, "union_ratio") for rows in (32, 8, 1))
    growth = at_32 / at_8 if at_32 is not None and at_8 is not None else None
    alone = table[table["chunk"] == 0]["union_ratio"]
    published = published_ratio()
    both_sides = float((alone > published).any() and (alone < published).any())
    lines: list[tuple[str, str, float | None, float, float]] = [
        ("1", "union / separate, 32 rows", at_32, 4, beyond),
        ("2", "that ratio at 32 rows / at 8", growth, 2, beyond),
        ("3", "union / separate, 1 row", at_1, 0, 2),
        ("4", "separate rows, longest / shortest time over spreads", spread_effect(table, "separate"), 1, 1.25),
        ("5a", "segmented / two calls, 32 rows beside a chunk", at(table, 32, "segmented_ratio", True), 0, 1.1),
        ("5b", "union / two calls, 32 rows beside a chunk", at(table, 32, "union_ratio", True), 1.5, beyond),
        ("6", "ratios on both sides of the published one (1: yes)", both_sides, 1, 1),
    ]  # fmt: skip
    return pd.DataFrame([verdict(*line) for line in lines])


def graded(points: pd.DataFrame, _params: BaseModel) -> pd.DataFrame:
    """The verdicts, from the experiment's rows."""
    return verdicts(calls(points))
