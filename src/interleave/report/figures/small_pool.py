"""Figures and tables of the small pool: what the blocks hold over time, rows that run, and what that costs.

Takes the experiment's rows as one frame, in which `kind` tells whole runs from steps; measures nothing.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from interleave.report.figures.graded import verdict
from interleave.report.figures.style import Look, panels
from interleave.report.phrases import ALIKE, compared
from interleave.report.printed import spoken

RULES: dict[str, Look] = {
    "reserve": Look("#0072B2", "o", "-"),
    "progressive": Look("#D55E00", "s", "--"),
}
HOLDINGS: dict[str, tuple[str, str]] = {  # colour and hatch
    "computed": ("#0072B2", ""),
    "rounding": ("#E69F00", "//"),
    "set aside": ("#BBBBBB", ".."),
}


def runs(points: pd.DataFrame) -> pd.DataFrame:
    """One line per batch, share and rule, with shares of the pool and of the prefill positions."""
    table = points[points["kind"] == "run"].dropna(axis="columns", how="all").reset_index(drop=True)
    size, pool = table["block_tokens"], table["num_blocks"] * table["block_tokens"]
    return table.assign(
        owned_share=table["mean_owned_blocks"] / table["num_blocks"],
        computed_share=table["mean_cached_tokens"] / pool,
        rounding_share=(table["mean_used_blocks"] * size - table["mean_cached_tokens"]) / pool,
        computed_of_owned=table["mean_cached_tokens"] / (table["mean_owned_blocks"] * size),
        recomputed_share=table["recomputed_tokens"] / table["prefill_tokens"],
    )


def nearest_share(points: pd.DataFrame, wanted: float = 0.34) -> float:
    """The share, of those that ran as a small pool, next to the published one."""
    shares = sorted(set(points["share"]), key=lambda share: (share == 1.0, abs(share - wanted)))
    return float(shares[0])


def steps(points: pd.DataFrame, batch: str, share: float, rule: str) -> pd.DataFrame:
    """One run's steps, with what the pool held in each: positions computed, lost to rounding, set aside."""
    own = points[
        (points["kind"] == "step")
        & (points["batch"] == batch)
        & (points["share"] == share)
        & (points["allocation"] == rule)
    ]
    pool = own["num_blocks"] * own["block_tokens"]
    used = own["used_blocks"] * own["block_tokens"]
    return own.assign(
        computed=own["cached_tokens"] / pool,
        rounding=(used - own["cached_tokens"]) / pool,
        aside=(own["owned_blocks"] * own["block_tokens"] - used) / pool,
    )


def _staircase(own: pd.DataFrame, *columns: str) -> list[NDArray[np.float64]]:
    """Time and columns as steps: each value from its step's start to its end."""
    time_s = own[["start_s", "end_s"]].to_numpy(dtype=float).ravel()
    return [time_s, *(np.repeat(own[column].to_numpy(dtype=float), 2) for column in columns)]


def pool_figure(points: pd.DataFrame, batch: str, share: float) -> Figure:
    """The pool over time, a panel for each rule: computed, lost to rounding, set aside; the rest is free."""
    rules = _rules(points, batch, share)
    figure, axes = panels(len(rules), 1, height_in=2.3)
    for axis, rule in zip(axes, rules, strict=True):
        time_s, *layers = _staircase(steps(points, batch, share, rule), "computed", "rounding", "aside")
        filled = axis.stackplot(
            time_s, [100 * layer for layer in layers], colors=[color for color, _ in HOLDINGS.values()]
        )
        for area, (name, (_, hatch)) in zip(filled, HOLDINGS.items(), strict=True):
            area.set_label(name)
            area.set_hatch(hatch)
            area.set_edgecolor("white")
        axis.set_ylim(0, 100)
        axis.set_ylabel("share of the pool (%)")
        axis.set_title(rule)
    axes[0].legend(loc="lower left", ncols=len(HOLDINGS), facecolor="white", framealpha=1, frameon=True)
    axes[-1].set_xlabel("time (s)")
    _share_time(axes)
    return figure


def rows_figure(points: pd.DataFrame, share: float) -> Figure:
    """Rows that run over time, a panel for each batch; a mark where somebody gives way."""
    batches = list(dict.fromkeys(points["batch"]))
    figure, axes = panels(len(batches), 1, height_in=2.3)
    for axis, batch in zip(axes, batches, strict=True):
        for rule in _rules(points, batch, share):
            own, look = steps(points, batch, share, rule), RULES[rule]
            time_s, rows = _staircase(own, "rows")
            axis.plot(time_s, rows, color=look.color, linestyle=look.line, label=rule)
            gone = own[own["preempted"] > 0]
            axis.plot(gone["start_s"], gone["rows"], "v", color=look.color, markersize=7, linestyle="none")
        axis.set_ylim(bottom=0)
        axis.set_ylabel("rows that run")
        axis.set_title(f"{batch} batch (triangles: somebody is preempted)")
    axes[0].legend(loc="upper right")
    axes[-1].set_xlabel("time (s)")
    return figure


def _rules(points: pd.DataFrame, batch: str, share: float) -> list[str]:
    own = points[(points["batch"] == batch) & (points["share"] == share)]
    return [rule for rule in RULES if rule in set(own["allocation"])]


def _share_time(axes: list[Axes]) -> None:
    longest = max(axis.dataLim.x1 for axis in axes)
    for axis in axes:
        axis.set_xlim(0, longest)


def pool_table(points: pd.DataFrame) -> pd.DataFrame:
    """What the pool held on average over time, in percent of it."""
    table = runs(points)
    return pd.DataFrame(
        {
            "batch": table["batch"],
            "pool [blocks]": table["num_blocks"].astype(int),
            "rule": table["allocation"],
            "owned [%]": 100 * table["owned_share"],
            "computed [%]": 100 * table["computed_share"],
            "rounding [%]": 100 * table["rounding_share"],
        }
    )


def cost_table(points: pd.DataFrame) -> pd.DataFrame:
    table = runs(points)
    return pd.DataFrame(
        {
            "run": table["batch"] + [f", {share:.0%}, " for share in table["share"]] + table["allocation"],
            "rows on average": table["mean_rows"],
            "preemptions": table["preemptions"].astype(int),
            "recomputed [%]": 100 * table["recomputed_share"],
            "served [requests/s]": table["served_rate"],
            "worst gap [ms]": table["worst_gap_s"] * 1e3,
        }
    )


def at(points: pd.DataFrame, batch: str, share: float, rule: str, quantity: str) -> float | None:
    """One number of a run; None where it did not run or has none."""
    table = runs(points)
    found = table[(table["batch"] == batch) & (table["share"] == share) & (table["allocation"] == rule)]
    if found.empty or pd.isna(found[quantity].iloc[0]):
        return None
    return float(found[quantity].iloc[0])


def rows_told(points: pd.DataFrame, share: float) -> str:
    """What `progressive` does to the rows that run, batch by batch; how many ran, where only one rule did."""
    told = []
    for batch in dict.fromkeys(points["batch"]):
        found = {rule: at(points, batch, share, rule, "mean_rows") for rule in RULES}
        means = {rule: mean for rule, mean in found.items() if mean is not None}
        if len(means) < len(RULES):
            told += [
                f"`{rule}` runs {spoken(mean)} rows on the {batch} batch" for rule, mean in means.items()
            ]
            continue
        old, new = means["reserve"], means["progressive"]
        more = compared(new, old, "fewer", "more")
        rows = "about as many rows as" if more == ALIKE else f"{more} rows than"
        times = int(at(points, batch, share, "progressive", "preemptions") or 0)
        told.append(
            f"`progressive` runs {rows} `reserve` on the {batch} batch ({spoken(new)} against {spoken(old)} on "
            f"average), with {times} preemption{'' if times == 1 else 's'}"
        )
    return "; ".join(told)


def gain(points: pd.DataFrame, batch: str, share: float, quantity: str) -> float | None:
    """A quantity under progressive over that under reserve; None unless both ran."""
    new, old = (at(points, batch, share, rule, quantity) for rule in ("progressive", "reserve"))
    return None if new is None or not old else new / old


def verdicts(points: pd.DataFrame) -> pd.DataFrame:
    """Each recorded prediction with what was measured; left open where what it speaks of did not run."""
    table, share = runs(points), nearest_share(points)
    small = table[table["share"] == share]
    beyond = float("inf")
    lines: list[tuple[str, str, float | None, float, float]] = [
        ("1a", "reserve, mixed: computed of what is owned",
         at(points, "mixed", share, "reserve", "computed_of_owned"), 0.8, 1),
        ("1b", "reserve, uniform: computed of what is owned",
         at(points, "uniform", share, "reserve", "computed_of_owned"), 0.6, 0.85),
        ("2", "rounding, largest share of the pool", float(small["rounding_share"].max()), 0, 0.08),
        ("3a", "rows, progressive / reserve, uniform", gain(points, "uniform", share, "mean_rows"), 1.2, beyond),
        ("3b", "rows, progressive / reserve, mixed", gain(points, "mixed", share, "mean_rows"), 1, 1.25),
        ("4a", "recomputed share of prefill, uniform",
         at(points, "uniform", share, "progressive", "recomputed_share"), 0.2, 1),
        ("4b", "recomputed share of prefill, mixed", at(points, "mixed", share, "progressive", "recomputed_share"), 0,
         0.2),
        ("5a", "served rate, progressive / reserve, uniform", gain(points, "uniform", share, "served_rate"), 0.9, 1.2),
        ("5b", "served rate, progressive / reserve, mixed", gain(points, "mixed", share, "served_rate"), 0.95, 1.1),
        ("6", "worst gap, progressive / reserve, uniform", gain(points, "uniform", share, "worst_gap_s"), 3, beyond),
    ]  # fmt: skip
    return pd.DataFrame([verdict(*line) for line in lines])
