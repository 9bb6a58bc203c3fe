"""Figures and tables of the chunk budget: the trade, the frontier, and the curve behind both.

Takes the experiment's rows as one frame, in which `kind` tells runs at a budget, runs by a target,
single steps and long prompts in pieces apart; measures nothing.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from interleave.lab.experiments.chunk_budget import Params
from interleave.lab.workload import scaled_chunk_budget
from interleave.report.figures.engine_rows import fitting_scale
from interleave.report.figures.floors import REACHED, known, reached
from interleave.report.figures.graded import verdict
from interleave.report.figures.style import LOOKS, label_ends, panels, plain_log

FLAT = 1.25
"""The knee of the step curve: the fewest positions whose time per position is within this of the best."""


def served(points: pd.DataFrame) -> pd.DataFrame:
    """One line per engine and budget."""
    return points[points["kind"] == "serve"].dropna(axis="columns", how="all").reset_index(drop=True)


def by_target(points: pd.DataFrame) -> pd.DataFrame:
    """One line per target, the tightest first; empty where none ran."""
    runs = points[points["kind"] == "target"]
    if runs.empty:
        return runs
    return runs.dropna(axis="columns", how="all").sort_values("decode_steps").reset_index(drop=True)


def step_curve(points: pd.DataFrame) -> pd.DataFrame:
    """One line per number of positions in a forward: median, range, time per position, and the floor if known."""
    steps = points[points["kind"] == "step"].assign(tokens=lambda rows: rows["tokens"].astype(int))
    curve = steps.groupby("tokens")["prefill_s"].agg(["median", "min", "max"]).reset_index()
    curve = curve.assign(per_position_s=curve["median"] / curve["tokens"])
    if known(steps):
        curve = curve.merge(steps.groupby("tokens")["floor_s"].median().reset_index(), on="tokens")
    return curve


def knee(curve: pd.DataFrame) -> int:
    """The fewest positions at which a forward is nearly as cheap per position as it gets."""
    good = curve[curve["per_position_s"] <= FLAT * curve["per_position_s"].min()]
    return int(good["tokens"].iloc[0])


def knee_band(points: pd.DataFrame) -> tuple[float, float]:
    """The least and the largest knee that single repeats of the curve have."""
    knees = [
        knee(step_curve(pd.concat([own, points[points["kind"] != "step"]])))
        for _, own in points[points["kind"] == "step"].groupby("repeat")
    ]
    return float(min(knees)), float(max(knees))


def trade_figure(points: pd.DataFrame) -> Figure:
    """Over the budget: served rate, the longest prompts' time from first chunk to first token, worst gap."""
    table = served(points)
    figure, axes = panels(3, 1, height_in=2.2)
    quantities = (
        ("served_rate", "served rate (requests/s)", "Throughput"),
        (
            "prefill_long_s",
            "prefill, longest prompts (s)",
            "From a long prompt's first chunk to its first token",
        ),
        ("worst_gap_s", "worst gap (s)", "Longest wait between two tokens of a decoding request"),
    )
    for axis, (quantity, label, title) in zip(axes, quantities, strict=True):
        _over_budget(axis, table, quantity, log=quantity != "served_rate")
        axis.set_ylabel(label)
        axis.set_title(title)
    axes[-1].set_xlabel("chunk budget (prompt positions in a step)")
    return figure


def _over_budget(axis: Axes, table: pd.DataFrame, quantity: str, log: bool) -> None:
    ends = []
    for engine, own in table.groupby("engine", sort=False):
        look, own = LOOKS[str(engine)], own.sort_values("budget")
        axis.plot(own["budget"], own[quantity], color=look.color, marker=look.marker, linestyle=look.line)
        ends.append((str(engine), float(own["budget"].iloc[-1]), float(own[quantity].iloc[-1])))
    axis.set_xscale("log", base=2)
    budgets = sorted(table["budget"].unique())
    axis.set_xticks(budgets, [f"{budget:,.0f}" for budget in budgets])
    if log:
        plain_log(axis)
    else:
        axis.set_ylim(0, table[quantity].max() * 1.08)
    label_ends(axis, ends, min_gap=0.12)


def frontier_figure(points: pd.DataFrame) -> Figure:
    """Served rate against worst gap, a marker for each budget with its number: up and left is better. Runs by
    a target are hollow, with the target in decode steps."""
    table, targets = served(points), by_target(points)
    figure, (axis,) = panels(height_in=3.6)
    for engine, own in table.groupby("engine", sort=False):
        look, own = LOOKS[str(engine)], own.sort_values("budget")
        axis.plot(
            own["worst_gap_s"] * 1e3,
            own["served_rate"],
            color=look.color,
            marker=look.marker,
            linestyle=look.line,
            label=str(engine),
        )
        for line in own.itertuples():
            axis.annotate(
                f"{line.budget:,.0f}",
                (line.worst_gap_s * 1e3, line.served_rate),
                (0, 8 if engine == "mixed" else -14),
                textcoords="offset points",
                ha="center",
                fontsize=9,
                color=look.color,
            )
    for engine, own in targets.groupby("engine") if len(targets) else ():
        look = LOOKS[str(engine)]
        axis.plot(
            own["worst_gap_s"] * 1e3,
            own["served_rate"],
            color=look.color,
            marker="*",
            markersize=11,
            markerfacecolor="white",
            linestyle=":",
            label=f"{engine}, by a target (decode steps)",
        )
        for line in own.itertuples():
            axis.annotate(
                f"{line.decode_steps:g}x",
                (line.worst_gap_s * 1e3, line.served_rate),
                (8, -13),
                textcoords="offset points",
                ha="left",
                fontsize=9,
                color=look.color,
            )
    fitting_scale(axis, "worst gap of a decoding request", "ms")
    axis.set_ylim(0, max([*table["served_rate"], *targets.get("served_rate", [])]) * 1.15)
    axis.set_ylabel("served rate (requests/s)")
    axis.set_title("What a budget buys and sells")
    axis.legend(loc="lower right")
    return figure


def step_figure(points: pd.DataFrame) -> Figure:
    """Time of one forward over its positions, and positions per second: flat, then in proportion. Dashed: the
    floor at the machine's ceilings."""
    curve = step_curve(points)
    figure, axes = panels(1, 2, height_in=3.0)
    color = LOOKS["chunked"].color
    axes[0].plot(curve["tokens"], curve["median"] * 1e3, color=color, marker="o")
    axes[0].fill_between(
        curve["tokens"], curve["min"] * 1e3, curve["max"] * 1e3, color=color, alpha=0.15, lw=0
    )
    axes[0].set_ylabel("one forward (ms)")
    axes[0].set_title("Time")
    axes[1].plot(curve["tokens"], 1 / curve["per_position_s"], color=color, marker="o")
    axes[1].axvline(knee(curve), color="black", linestyle=":", lw=1.2)
    axes[1].set_ylabel("positions per second")
    axes[1].set_title("Throughput; dotted: the knee")
    if known(curve):
        axes[0].plot(curve["tokens"], curve["floor_s"] * 1e3, color="black", linestyle="--", lw=1.2)
        axes[0].set_title("Time; dashed: the floor")
        axes[1].plot(
            curve["tokens"], curve["tokens"] / curve["floor_s"], color="black", linestyle="--", lw=1.2
        )
    for axis in axes:
        axis.set_xscale("log", base=2)
        plain_log(axis)
        axis.set_xlabel("positions in the forward")
        ticks = list(curve["tokens"])[:: 2 if len(curve) > 7 else 1]
        axis.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    return figure


def pieces_table(points: pd.DataFrame) -> pd.DataFrame:
    """One long prompt alone, in pieces: time, against one piece, and the history that is read again."""
    alone = points[points["kind"] == "passes"]
    lines = []
    for chunk, own in sorted(alone.groupby("chunk"), key=lambda group: -float(group[0])):
        prompt, steps = int(own["tokens"].iloc[0]), int(own["steps"].iloc[0])
        lines.append(
            {
                "pieces": f"{steps} x {int(chunk)}",
                "prefill [s]": own["prefill_s"].median(),
                "re-read [positions]": sum(range(int(chunk), prompt, int(chunk))),
                **({REACHED: reached(own["floor_s"], own["prefill_s"]).median()} if known(own) else {}),
            }
        )
    table = pd.DataFrame(lines)
    table.insert(2, "against one piece", table["prefill [s]"] / table["prefill [s]"].iloc[0])
    return table


def most_pieces(points: pd.DataFrame) -> tuple[float, tuple[float, float]]:
    """The long prompt in the most pieces against one piece: ratio of medians, and the least and most that it
    could be with single repeats for medians."""
    alone = points[points["kind"] == "passes"]
    times = {chunk: own["prefill_s"] for chunk, own in alone.groupby("chunk")}
    many, one = times[min(times)], times[max(times)]
    band = (float(many.min() / one.max()), float(many.max() / one.min()))
    return float(many.median() / one.median()), band


def budget_table(points: pd.DataFrame) -> pd.DataFrame:
    table = served(points)
    return pd.DataFrame(
        {
            "engine": table["engine"],
            "budget": table["budget"].astype(int),
            "served [requests/s]": table["served_rate"],
            "median TTFT [s]": table["ttft_p50_s"],
            "median gap [ms]": table["gap_p50_s"] * 1e3,
            "worst gap [ms]": table["worst_gap_s"] * 1e3,
        }
    )


def target_table(points: pd.DataFrame) -> pd.DataFrame:
    """What each target led to: the chunks beside decodes, the rate, and who waited longer than it."""
    table = by_target(points)
    return pd.DataFrame(
        {
            "target [decode steps]": table["decode_steps"],
            "target [ms]": table["target_s"] * 1e3,
            "median chunk [positions]": table["chunk_p50"],
            "served [requests/s]": table["served_rate"],
            "worst gap [ms]": table["worst_gap_s"] * 1e3,
            "gaps beyond it [%]": 100 * table["late_share"],
        }
    )


def against_budgets(points: pd.DataFrame) -> tuple[float, float] | None:
    """Least and most that a target serves over what fixed budgets of its engine serve at the same worst gap,
    between two of them in proportion to the gap's logarithm; None where no target lies between two."""
    targets, table = by_target(points), served(points)
    shares = []
    for line in targets.itertuples():
        fixed = table[table["engine"] == line.engine].sort_values("worst_gap_s")
        if fixed["worst_gap_s"].iloc[0] <= line.worst_gap_s <= fixed["worst_gap_s"].iloc[-1]:
            gaps = np.log(fixed["worst_gap_s"].astype(float))
            shares.append(line.served_rate / np.interp(np.log(line.worst_gap_s), gaps, fixed["served_rate"]))
    return (float(min(shares)), float(max(shares))) if shares else None


def reached_table(points: pd.DataFrame) -> pd.DataFrame:
    """How much of the possible each served run reached, its steps as they were composed."""
    table = served(points)
    return pd.DataFrame(
        {
            "engine": table["engine"],
            "budget": table["budget"].astype(int),
            "wall [s]": table["wall_s"],
            "floor [s]": table["floor_s"],
            REACHED: reached(table["floor_s"], table["wall_s"]),
        }
    )


def at(points: pd.DataFrame, engine: str, budget: float, quantity: str) -> float:
    """One number of the served runs. KeyError where that engine did not run at that budget."""
    table = served(points)
    found = table[(table["engine"] == engine) & (table["budget"] == budget)][quantity]
    if found.empty:
        raise KeyError(f"{engine} at a budget of {budget}")
    return float(found.iloc[0])


def verdicts(points: pd.DataFrame, usual: int) -> pd.DataFrame:
    """Each recorded prediction with what was measured; left open where what it speaks of did not run.

    usual: 512 / scale, the budget of the other pages.
    """
    table = served(points)
    chunked = table[table["engine"] == "chunked"].set_index("budget").sort_index()
    both = set(table[table["engine"] == "mixed"]["budget"]) & set(chunked.index)
    curve = step_curve(points).set_index("tokens")["median"]
    pieces = pieces_table(points).set_index("re-read [positions]")["against one piece"]
    rates, gaps = chunked["served_rate"], chunked["worst_gap_s"]
    least, most = (min(both), max(both)) if both else (None, None)

    def ratio(series: pd.Series, top: float, bottom: float) -> float | None:
        return float(series[top] / series[bottom]) if {top, bottom} <= set(series.index) else None

    def mixed_over_chunked(budget: float | None) -> float | None:
        return None if budget is None else at(points, "mixed", budget, "served_rate") / rates[budget]

    late, early = ratio(rates, usual, usual // 2), ratio(rates, usual // 2, usual // 4)
    flattening = None if late is None or early is None else (early - 1) - (late - 1)
    sizes = sorted(curve.index)
    targets = by_target(points)
    two = targets[targets["decode_steps"] == 2] if len(targets) else targets
    kept = two.iloc[0] if len(two) and two.iloc[0]["engine"] == "mixed" and usual in both else None

    def against_usual(quantity: str) -> float | None:
        return None if kept is None else float(kept[quantity]) / at(points, "mixed", usual, quantity)

    beyond = float("inf")
    lines: list[tuple[str, str, float | None, float, float]] = [
        ("1a", "served rate, largest / smallest budget", _ends(rates), 1, beyond),
        ("1b", "worst gap, largest / smallest budget", _ends(gaps), 4, beyond),
        ("2", "gain from a quarter to half, less that from half to the usual budget", flattening, 0, beyond),
        ("3a", "one forward, 4 positions / 1", ratio(curve, 4, 1), 0, 1.5),
        ("3b", "one forward, the last doubling", ratio(curve, sizes[-1], sizes[-1] // 2), 1.7, beyond),
        ("4a", "long prompt, 24 pieces / 1", float(pieces.iloc[-1]), 1.3, beyond),
        ("4b", "long prompt, 6 pieces / 1", float(pieces.iloc[2]), 0, 1.3),
        ("5a", "served rate, mixed / chunked, smallest budget", mixed_over_chunked(least), 1.1, beyond),
        ("5b", "served rate, mixed / chunked, largest budget", mixed_over_chunked(most), 0.9, 1.1),
        ("6a", "worst gap of mixed, target of two decode steps / usual budget", against_usual("worst_gap_s"), 0, 0.8),
        ("6b", "served rate of mixed, the same two", against_usual("served_rate"), 0.9, beyond),
        ("6c", "share of gaps beyond that target", None if kept is None else float(kept["late_share"]), 0, 0.1),
    ]  # fmt: skip
    return pd.DataFrame([verdict(*line) for line in lines])


def _ends(series: pd.Series) -> float | None:
    return float(series.iloc[-1] / series.iloc[0]) if len(series) > 1 else None


def graded(points: pd.DataFrame, params: Params) -> pd.DataFrame:
    """The verdicts, from the experiment's rows."""
    return verdicts(points, scaled_chunk_budget(params.scale))
