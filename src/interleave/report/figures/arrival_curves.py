"""Figures and tables of the arrival curves: medians over requests, ranges over trace seeds.

Takes the experiment's rows as one frame, in which `kind` tells measured requests and simulated runs
apart; measures nothing.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import BaseModel

from interleave.report.figures.floors import reached
from interleave.report.figures.style import LOOKS, label_ends, panels, plain_log

QUANTITIES = ("served_rate", "ttft_s", "queue_wait_s", "gap_p50_s", "worst_gap_s")
MEASURED = (*QUANTITIES, "tpot_s")
SIMULATED_LETTERS = {
    "chunked": "a",
    "mixed": "b",
    "paged": "c",
    "whole": "d",
    "recorded": "e",
    "continuous": "f",
}
"""The letter of each engine in prediction 5, whoever else ran: `data/predictions/misses.csv` goes by it."""


def measured(rows: pd.DataFrame) -> pd.DataFrame:
    """A line per request that an engine served under a load."""
    return rows[(rows["kind"] == "measured") & rows["load"].notna()]


def reference_capacity(rows: pd.DataFrame) -> float:
    """Requests per second that the reference engine served with all of them there from the start."""
    return float(rows[(rows["kind"] == "measured") & rows["load"].isna()]["run_served_rate"].iloc[0])


def curves(rows: pd.DataFrame) -> pd.DataFrame:
    """The curves: one line per engine and load, each quantity's median over seeds, `_low` and `_high`.

    Quantities: served rate, median TTFT, median queue wait, median and worst gap, median TPOT.
    """
    loaded = measured(rows)
    if (loaded["rate"] / loaded["load"]).round(9).nunique() > 1:
        raise ValueError(
            "these points were paced by different reference capacities: measure again with --force"
        )
    grouped = measured_runs(rows).groupby(["engine", "load"])[["rate", *MEASURED]]
    low, high = grouped.min().add_suffix("_low"), grouped.max().add_suffix("_high")
    return pd.concat([grouped.median(), low, high], axis=1).reset_index()


def measured_runs(rows: pd.DataFrame) -> pd.DataFrame:
    """One line per engine, load and seed: the run's rates and gaps, and medians over its requests."""
    return (
        measured(rows)
        .groupby(["engine", "load", "seed"], as_index=False)
        .agg(
            rate=("rate", "first"),
            served_rate=("run_served_rate", "first"),
            ttft_s=("ttft_s", "median"),
            queue_wait_s=("queue_wait_s", "median"),
            gap_p50_s=("run_gap_p50_s", "first"),
            worst_gap_s=("run_worst_gap_s", "first"),
            tpot_s=("tpot_s", "median"),
        )
    )


def simulated_runs(rows: pd.DataFrame) -> pd.DataFrame:
    """What the simulator says of every engine, load and seed, in the columns of `measured_runs`."""
    runs = rows[rows["kind"] == "simulated"].rename(columns=lambda name: name.removeprefix("run_"))
    return runs[["engine", "load", "seed", "rate", *QUANTITIES]].reset_index(drop=True)


def agreement_table(rows: pd.DataFrame) -> pd.DataFrame:
    """How far the simulator is from each engine's measured runs on the same traces: medians of the size of
    the relative error, in per cent."""
    both = measured_runs(rows).merge(
        simulated_runs(rows), on=["engine", "load", "seed"], suffixes=("", "_simulated")
    )
    shown = {
        "served_rate": "served rate",
        "ttft_s": "TTFT",
        "gap_p50_s": "median gap",
        "worst_gap_s": "worst gap",
    }
    errors = pd.DataFrame(
        {
            f"{name} [%]": 100 * (both[f"{quantity}_simulated"] / both[quantity] - 1).abs()
            for quantity, name in shown.items()
        }
    )
    table = errors.groupby(both["engine"], sort=False).median().reset_index()
    runs = both.groupby("engine", sort=False).size()
    table.insert(1, "runs", table["engine"].map(runs))
    return table


def seed_counts(rows: pd.DataFrame) -> str:
    """How many traces each load was measured on, in words."""
    counts = measured(rows).groupby("load")["seed"].nunique()
    if counts.nunique() == 1:
        return f"{counts.iloc[0]} at every load"
    return ", ".join(f"{count} at {load:g} x" for load, count in counts.items())


def arrival_figure(table: pd.DataFrame, between: pd.DataFrame) -> Figure:
    """Four panels over load: served rate, median TTFT, worst gap of an already decoding request, median TPOT.

    table: `curves`, drawn as markers with the range over seeds as a bar. between: `simulated_runs`, drawn
    as lines of medians over seeds, for the quantities that it holds.
    """
    figure, axes = panels(4, 1, height_in=2.6)
    _panel(axes[0], table, between, "served_rate", "served rate (requests/s)", log=False)
    _panel(axes[1], table, between, "ttft_s", "median TTFT (s)", log=True)
    _panel(axes[2], table, between, "worst_gap_s", "worst gap (s)", log=True)
    _panel(axes[3], table, between, "tpot_s", "median TPOT (s)", log=True)
    axes[0].set_title("Served rate")
    axes[1].set_title("Time to first token, from the due time")
    axes[2].set_title("Longest wait between two tokens of a decoding request")
    axes[3].set_title("Time per output token of the median request, measured only")
    axes[3].set_xlabel("arrival rate (multiples of the reference capacity)")
    return figure


def _panel(
    axis: Axes, table: pd.DataFrame, between: pd.DataFrame, quantity: str, label: str, log: bool
) -> None:
    ends = []
    for engine, points in table.groupby("engine", sort=False):
        look = LOOKS[str(engine)]
        points = points.sort_values("load")
        middle = points[quantity]
        reach = [middle - points[f"{quantity}_low"], points[f"{quantity}_high"] - middle]
        axis.errorbar(
            points["load"],
            middle,
            yerr=reach,
            color=look.color,
            marker=look.marker,
            linestyle="none",
            capsize=3,
        )
        if quantity in between:
            line = between[between["engine"] == engine].groupby("load")[quantity].median()
            axis.plot(line.index, line, color=look.color, linestyle=look.line, lw=1.3)
        ends.append((str(engine), float(points["load"].iloc[-1]), float(middle.iloc[-1])))
    if log:
        plain_log(axis)
    else:
        axis.set_ylim(bottom=0)
    axis.set_ylabel(label)
    label_ends(axis, ends, min_gap=0.09)


def class_table(rows: pd.DataFrame, load: float) -> pd.DataFrame:
    """Median TTFT in seconds by prompt length (rows) and engine (columns) at one load."""
    chosen = measured(rows)[lambda own: own["load"] == load]
    table = chosen.pivot_table("ttft_s", index="prompt_tokens", columns="engine", aggfunc="median", sort=True)
    return table[[engine for engine in LOOKS if engine in table.columns]]


def class_figure(table: pd.DataFrame) -> Figure:
    """Median TTFT over prompt length, one line per engine: who waits for whom."""
    figure, (axis,) = panels(height_in=3.0)
    ends = []
    for engine in table.columns:
        look = LOOKS[engine]
        values = table[engine].dropna()
        axis.plot(values.index, values, color=look.color, marker=look.marker, linestyle=look.line)
        ends.append((engine, float(values.index[-1]), float(values.iloc[-1])))
    axis.set_xscale("log", base=2)
    plain_log(axis)
    axis.set_xticks(table.index, [f"{length:.0f}" for length in table.index])
    axis.set_xlabel("prompt length (tokens)")
    axis.set_ylabel("median TTFT (s)")
    axis.set_title("Time to first token by prompt length")
    label_ends(axis, ends)
    return figure


def group_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Admission groups and padding per engine and load: what admitting together costs."""
    loaded = measured(rows).drop_duplicates(["engine", "load", "seed"])
    requests = measured(rows).groupby(["engine", "load"])["request"].size()
    runs = loaded.groupby(["engine", "load"]).agg(
        groups=("run_groups", "sum"),
        largest=("run_largest_group", "max"),
        padded=("run_padded_tokens", "sum"),
        prefill=("run_prefill_tokens", "sum"),
    )
    return pd.DataFrame(
        {
            "requests per group": requests / runs["groups"],
            "largest group": runs["largest"],
            "padded per prompt position": runs["padded"] / runs["prefill"],
        }
    ).reset_index()


def reached_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Per cent of the possible while a step ran, an engine a line and a load a column, median over seeds."""
    runs = measured(rows).drop_duplicates(["engine", "load", "seed"])
    runs = runs.assign(reached=reached(runs["floor_s"], runs["run_busy_s"]))
    table = runs.pivot_table("reached", index="engine", columns="load", aggfunc="median", sort=False)
    table.columns = [f"{load:g} x [%]" for load in table.columns]
    return table.reset_index()


def at(table: pd.DataFrame, engine: str, load: float, quantity: str) -> float:
    """One number of the curves."""
    (value,) = table[(table["engine"] == engine) & (table["load"] == load)][quantity]
    return float(value)


def band(table: pd.DataFrame, engine: str, load: float, quantity: str) -> tuple[float, float]:
    """Least and most of a quantity over the seeds."""
    return at(table, engine, load, f"{quantity}_low"), at(table, engine, load, f"{quantity}_high")


def verdicts(
    table: pd.DataFrame, classes: pd.DataFrame, capacity: float, agreement: pd.DataFrame
) -> pd.DataFrame:
    """Each recorded prediction with what was measured and whether it held.

    The predictions speak of loads below 2/3, of 0.85 and of loads above 1; one for which this run has
    no such load, or not the engines, is left open.
    """
    loads = sorted(table["load"].unique())
    engines = set(table["engine"])
    low, high = loads[0], loads[-1]
    near = min(loads, key=lambda load: abs(load - 0.85))
    there = abs(near - 0.85) < 0.03
    rows: list[tuple[str, str, str, bool | None]] = []
    slow = table[table["load"] == low]
    # Between engines, not against the arriving rate: the span of a short trace is longer than its
    # arrivals by the time that the last request takes, whoever serves it.
    spread = float(slow["served_rate"].max() / slow["served_rate"].min())
    held = spread <= 1.1 if low <= 2 / 3 else None
    rows.append(("1", f"every engine serves the same rate at {low:g} x, within 10%", f"{spread:.2f} x", held))
    for letter, engine in zip("abc", ("chunked", "mixed", "paged"), strict=True):
        if engine not in engines:
            continue
        share = at(table, engine, high, "served_rate") / capacity
        held = share <= 0.9 if engine == "paged" else abs(share - 1.0) <= 0.05
        claim = "at most 0.90" if engine == "paged" else "within 5%"
        text = f"{engine} {claim} of capacity at {high:g} x"
        rows.append((f"2{letter}", text, f"{share:.2f} of capacity", held if high > 1.0 else None))
    for letter, engine in zip("ab", ("paged", "whole"), strict=True):
        if not {engine, "chunked"} <= engines:
            continue
        ratio = at(table, engine, near, "worst_gap_s") / at(table, "chunked", near, "worst_gap_s")
        rows.append(
            (
                f"3{letter}",
                f"worst gap of {engine} at {near:g} x at least twice chunked's",
                f"{ratio:.1f} x",
                ratio >= 2 if there else None,
            )
        )
    if {"whole", "chunked"} <= engines:
        longest = classes.index.max()
        ratio = float(classes.loc[longest, "chunked"] / classes.loc[longest, "whole"])
        text = f"TTFT of {longest:.0f}-token prompts at {near:g} x no better chunked than whole"
        rows.append(("4", text, f"{ratio:.2f} x", ratio >= 1.0 if there else None))
    for line in sorted(agreement.to_dict("records"), key=lambda line: SIMULATED_LETTERS[line["engine"]]):
        latency = max(line["TTFT [%]"], line["worst gap [%]"])
        rate = line["served rate [%]"]
        rows.append(
            (
                f"5{SIMULATED_LETTERS[line['engine']]}",
                f"simulator beside {line['engine']}: served rate within 5%, TTFT and worst gap within 25%",
                f"{rate:.1f}%, {line['TTFT [%]']:.0f}% and {line['worst gap [%]']:.0f}%",
                bool(rate <= 5 and latency <= 25),
            )
        )
    words = {True: "held", False: "missed", None: "open"}
    return pd.DataFrame(
        [(number, claim, found, words[held]) for number, claim, found, held in rows],
        columns=["no.", "predicted", "measured", "verdict"],
    )


def graded(rows: pd.DataFrame, _params: BaseModel) -> pd.DataFrame:
    """The verdicts, from the experiment's rows, in the columns of the other chapters."""
    table = curves(rows)
    loads = sorted(table["load"].unique())
    near = min(loads, key=lambda load: abs(load - 0.85))
    found = verdicts(table, class_table(rows, near), reference_capacity(rows), agreement_table(rows))
    return pd.DataFrame(
        {
            "no.": found["no."],
            "quantity": found["predicted"],
            "predicted": None,
            "measured": found["measured"],
            "verdict": found["verdict"].replace("open", "not run"),
        }
    )
