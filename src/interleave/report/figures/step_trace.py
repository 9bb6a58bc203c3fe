"""Figures and tables of the step traces: who ran when, where the time went, who was kept waiting.

Takes the experiment's rows as one frame, in which `kind` tells runs, steps, pieces and gaps apart;
measures nothing.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from interleave.lab.experiments.step_trace import PARTS
from interleave.lab.metrics import SPIKE_FACTOR
from interleave.report.figures.engine_rows import PART_LOOKS, engine_rows, fitting_scale
from interleave.report.figures.floors import REACHED, known, reached
from interleave.report.figures.graded import verdict
from interleave.report.figures.style import LOOKS, panels
from interleave.report.printed import spoken

PHASE_LOOKS: dict[str, tuple[str, float]] = {  # colour and height
    "prefill": ("#0072B2", 0.86),
    "decode": ("#E69F00", 0.42),
    "held": ("#999999", 0.42),
}
PHASE_WORDS = {"held": "ended, still computed"}
STALL_COLOR = "#D55E00"


def of(points: pd.DataFrame, kind: str) -> pd.DataFrame:
    """The rows of one kind, without the columns that it has no values in."""
    return points[points["kind"] == kind].dropna(axis="columns", how="all")


def timeline_figure(points: pd.DataFrame, rows: int, engines: list[str], requests: int) -> Figure:
    """Requests down, time across, a panel per engine: chunks, decodes, and the gaps that are stalls.

    The first `requests` requests, until they have ended under every engine but the slowest, whose title says
    until when it goes on.
    """
    ends_s = {
        engine: _last_end_s(points[(points["engine"] == engine) & (points["rows"] == rows)], requests)
        for engine in engines
    }
    end_s = 1.02 * sorted(ends_s.values())[max(0, len(ends_s) - 2)]
    figure, axes = panels(len(engines), 1, height_in=0.6 + 0.13 * requests)
    for axis, engine in zip(axes, engines, strict=True):
        _timeline(axis, points[(points["engine"] == engine) & (points["rows"] == rows)], requests)
        axis.set_xlim(0, end_s)
        beyond = f", goes on until {spoken(ends_s[engine])} s" if ends_s[engine] > end_s else ""
        axis.set_title(f"{engine}, {rows} rows{beyond}")
    axes[-1].set_xlabel("time (s)")
    pieces = of(points, "piece")
    drawn = set(pieces[(pieces["rows"] == rows) & pieces["engine"].isin(engines)]["phase"])
    keys = [
        Patch(color=color, label=PHASE_WORDS.get(phase, phase))
        for phase, (color, _) in PHASE_LOOKS.items()
        if phase in drawn
    ]
    keys.append(Patch(color=STALL_COLOR, label="stall: no token for three usual gaps"))
    figure.legend(handles=keys, loc="outside upper right", ncols=len(keys))
    return figure


def _timed_pieces(points: pd.DataFrame, requests: int) -> pd.DataFrame:
    """The pieces of the first requests of one run, with the time of their steps."""
    steps = of(points, "step").set_index("step")
    pieces = of(points, "piece").join(steps[["start_s", "end_s"]], on="step")
    return pieces[pieces["request"].isin(sorted(pieces["request"].unique())[:requests])]


def _last_end_s(points: pd.DataFrame, requests: int) -> float:
    return float(_timed_pieces(points, requests)["end_s"].max())


def _timeline(axis: Axes, points: pd.DataFrame, requests: int) -> None:
    steps = of(points, "step").set_index("step")
    pieces = _timed_pieces(points, requests)
    places = {name: place for place, name in enumerate(sorted(pieces["request"].unique()))}
    for phase, (color, height) in PHASE_LOOKS.items():
        shown = pieces[pieces["phase"] == phase]
        axis.barh(
            shown["request"].map(places),
            shown["end_s"] - shown["start_s"],
            left=shown["start_s"],
            height=height,
            color=color,
            linewidth=0,
        )
    stalls = spikes(points).join(steps["end_s"], on="step")
    for stall in stalls[stalls["request"].isin(places)].itertuples():
        place = places[stall.request]
        axis.plot(
            [stall.end_s - stall.gap_s, stall.end_s], [place, place], color=STALL_COLOR, lw=1.2, zorder=0.8
        )
    axis.set_ylim(requests - 0.4, -0.6)
    axis.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axis.set_ylabel("request")
    axis.grid(axis="y", visible=False)


def spikes(points: pd.DataFrame) -> pd.DataFrame:
    """The gaps above three times the median one of their run."""
    gaps = of(points, "gap")
    usual = gaps.groupby(["engine", "rows"])["gap_s"].transform("median")
    return gaps[gaps["gap_s"] > SPIKE_FACTOR * usual]


def attribution_figure(table: pd.DataFrame) -> Figure:
    """Where the wall time of each run went, as stacked bars, a panel for each number of rows; a bar across
    where the machine's ceilings put the floor."""
    sizes = list(table["rows"].unique())
    figure, axes = panels(len(sizes), 1, height_in=max(2.4, 0.8 + 0.4 * table["engine"].nunique()))
    for axis, rows in zip(axes, sizes, strict=True):
        lines = table[table["rows"] == rows]
        left = pd.Series(0.0, index=lines.index)
        for part in PARTS:
            seconds = lines[f"{part}_s"]
            color, hatch = PART_LOOKS[part]
            axis.barh(range(len(lines)), seconds, left=left, color=color, hatch=hatch, edgecolor="white")
            left = left + seconds
        for place, wall in enumerate(lines["wall_s"]):
            axis.annotate(
                f"{spoken(wall, 3)} s",
                (wall, place),
                (5, 0),
                textcoords="offset points",
                va="center",
                fontsize=9,
            )
        if known(lines):
            axis.plot(
                lines["floor_s"], range(len(lines)), "|", color="black", markersize=22, markeredgewidth=2
            )
        engine_rows(axis, list(lines["engine"]))
        axis.set_xlim(0, table["wall_s"].max() * 1.14)
        axis.grid(axis="y", visible=False)
        axis.set_title(f"{rows} rows")
    axes[-1].set_xlabel("wall time (s)")
    keys = [
        Patch(
            facecolor=color,
            hatch=hatch,
            edgecolor="white",
            label="both in one forward" if part == "mixed" else part,
        )
        for part, (color, hatch) in PART_LOOKS.items()
    ]
    figure.legend(handles=keys, loc="outside upper right", ncols=len(keys))
    return figure


def gap_figure(points: pd.DataFrame) -> Figure:
    """Every gap of a request that was already decoding: dots, the median and the worst with its number."""
    gaps = of(points, "gap")
    sizes = list(gaps["rows"].unique())
    figure, axes = panels(len(sizes), 1, height_in=max(2.2, 0.8 + 0.35 * gaps["engine"].nunique()))
    for axis, rows in zip(axes, sizes, strict=True):
        names = list(gaps[gaps["rows"] == rows]["engine"].unique())
        for place, engine in enumerate(names):
            values = gaps[(gaps["rows"] == rows) & (gaps["engine"] == engine)]["gap_s"] * 1e3
            look = LOOKS[engine]
            offsets = [place + 0.24 * ((7 * n % 11) / 5 - 1) for n in range(len(values))]
            axis.plot(values, offsets, ".", color=look.color, alpha=0.25, markersize=4)
            axis.plot(values.median(), place, "|", color="black", markersize=18, markeredgewidth=2)
            axis.plot(values.max(), place, look.marker, color=look.color, markersize=8)
            axis.annotate(
                f"{spoken(values.max(), 2)} ms",
                (values.max(), place),
                (9, 0),
                textcoords="offset points",
                va="center",
                fontsize=9,
            )
        engine_rows(axis, names)
        fitting_scale(axis, "gap between two tokens", "ms")
        axis.set_title(f"{rows} rows: the bar is the median gap, the marker the worst")
    return figure


def attribution(points: pd.DataFrame) -> pd.DataFrame:
    """One line per run: wall time, seconds by part, steps, forwards, and what no part accounts for."""
    runs = of(points, "run").set_index(["engine", "rows"])
    runs = runs[["wall_s", "floor_s"] if known(runs) else ["wall_s"]]
    parts = [f"{part}_s" for part in PARTS]
    grouped = of(points, "step").groupby(["engine", "rows"], sort=False)
    table = runs.join(grouped[[*parts, "forwards"]].sum()).join(grouped.size().rename("steps"))
    table["unaccounted"] = 1 - table[parts].sum(axis=1) / table["wall_s"]
    return table.reset_index()


def step_table(points: pd.DataFrame, rows: int) -> pd.DataFrame:
    """What the steps of each engine carried and how long they took."""
    steps = of(points, "step")
    steps = steps[steps["rows"] == rows].assign(
        ms=(steps["end_s"] - steps["start_s"]) * 1e3, carries=steps["prefill_tokens"] > 0
    )
    lines = []
    for engine, own in steps.groupby("engine", sort=False):
        with_prefill = own[own["carries"]]["ms"]
        lines.append(
            {
                "engine": engine,
                "steps": len(own),
                "with prefill [%]": 100 * len(with_prefill) / len(own),
                "median without [ms]": own[~own["carries"]]["ms"].median(),
                "median with [ms]": with_prefill.median(),
                "longest [ms]": own["ms"].max(),
            }
        )
    return pd.DataFrame(lines)


def reached_table(points: pd.DataFrame, rows: int) -> pd.DataFrame:
    """The floor of each engine's run, and how much of the possible its steps reached, by what they carried."""
    steps, table = of(points, "step"), attribution(points)
    lines = []
    for run in table[table["rows"] == rows].itertuples():
        own = steps[(steps["rows"] == rows) & (steps["engine"] == run.engine)]
        own = own.assign(seconds=own["end_s"] - own["start_s"], carries=own["prefill_tokens"] > 0)
        sums = own.groupby("carries")[["floor_s", "seconds"]].sum().reindex([False, True])
        without, within = reached(sums["floor_s"], sums["seconds"])
        lines.append(
            {
                "engine": run.engine,
                "wall [s]": run.wall_s,
                "floor [s]": run.floor_s,
                REACHED: 100 * run.floor_s / run.wall_s,
                "steps without prefill [%]": without,
                "steps with prefill [%]": within,
            }
        )
    return pd.DataFrame(lines)


def gap_table(points: pd.DataFrame, rows: int) -> pd.DataFrame:
    """Gaps of requests already decoding: how many, the usual one, the worst, and how many are spikes."""
    gaps, high = of(points, "gap"), spikes(points)
    lines = []
    for engine, own in gaps[gaps["rows"] == rows].groupby("engine", sort=False):
        count = int(((high["engine"] == engine) & (high["rows"] == rows)).sum())
        lines.append(
            {
                "engine": engine,
                "gaps": len(own),
                "median [ms]": own["gap_s"].median() * 1e3,
                "worst [ms]": own["gap_s"].max() * 1e3,
                "spikes": count,
                "time in spikes [%]": 100 * _share_in_spikes(own, high, str(engine), rows),
            }
        )
    return pd.DataFrame(lines)


def _share_in_spikes(own: pd.DataFrame, high: pd.DataFrame, engine: str, rows: int) -> float:
    mine = high[(high["engine"] == engine) & (high["rows"] == rows)]["gap_s"].sum()
    return float(mine / own["gap_s"].sum())


def worst_gaps_s(points: pd.DataFrame, rows: int) -> dict[str, float]:
    """The longest gap under each engine that left any, in the order in which they ran."""
    gaps = of(points, "gap")
    worst = gaps[gaps["rows"] == rows].groupby("engine", sort=False)["gap_s"].max()
    return {str(engine): float(gap_s) for engine, gap_s in worst.items()}


def _gap(points: pd.DataFrame, engine: str, rows: int, which: str) -> float | None:
    gaps = of(points, "gap")
    mine = gaps[(gaps["engine"] == engine) & (gaps["rows"] == rows)]["gap_s"]
    return float(mine.agg(which)) if len(mine) else None


def _ratio(top: float | None, bottom: float | None) -> float | None:
    return None if top is None or not bottom else top / bottom


def verdicts(points: pd.DataFrame) -> pd.DataFrame:
    """Each recorded prediction with what was measured; left open where an engine or size did not run."""
    table = attribution(points).set_index(["engine", "rows"])
    ran = set(table.index)

    def gap_ratio(one: tuple[str, int], other: tuple[str, int], which: str) -> float | None:
        return _ratio(_gap(points, *one, which), _gap(points, *other, which))

    def run_ratio(quantity: str) -> float | None:
        if not {("mixed", 8), ("chunked", 8)} <= ran:
            return None
        return float(table.loc[("mixed", 8), quantity] / table.loc[("chunked", 8), quantity])

    host = float((table["host_s"] / table["wall_s"]).max())
    beyond = float("inf")
    lines: list[tuple[str, str, float | None, float, float]] = [
        ("1", "wall time that no part accounts for, worst run [%]", 100 * float(table["unaccounted"].max()), 0, 2),
        ("2", "host, share of wall time, worst run [%]", 100 * host, 0, 5),
        ("3a", "worst gap, whole / chunked, 8 rows", gap_ratio(("whole", 8), ("chunked", 8), "max"), 2, beyond),
        ("3b", "worst gap, paged / whole, 8 rows", gap_ratio(("paged", 8), ("whole", 8), "max"), 1, beyond),
        ("4", "median gap, chunked / whole, 8 rows", gap_ratio(("chunked", 8), ("whole", 8), "median"), 1, beyond),
        ("5a", "forwards, mixed / chunked, 8 rows", run_ratio("forwards"), 0, 0.8),
        ("5b", "wall time, mixed / chunked, 8 rows", run_ratio("wall_s"), 0, 1),
        ("6", "worst gap of paged, 32 / 8 rows", gap_ratio(("paged", 32), ("paged", 8), "max"), 2, beyond),
    ]  # fmt: skip
    return pd.DataFrame([verdict(*line) for line in lines])
