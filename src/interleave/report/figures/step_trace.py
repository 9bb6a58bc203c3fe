"""Figures of the step traces: who ran when, where the time went, who was kept waiting.

Takes the experiment's rows as one frame, in which `kind` tells runs, steps, pieces and gaps apart;
measures nothing. The tables are in `step_trace_tables`.
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
from interleave.report.figures.floors import known
from interleave.report.figures.style import LOOKS, panels
from interleave.report.printed import spoken

PHASE_LOOKS: dict[str, tuple[str, float]] = {  # colour and height
    "prefill": ("#0072B2", 0.86),
    "decode": ("#E69F00", 0.42),
    "held": ("#999999", 0.42),
}
PHASE_WORDS = {"held": "ended, still computed"}
SPIKE_COLOR = "#A50F15"  # dark enough to show on the bars
ABOVE = f"above {SPIKE_FACTOR:g} median gaps"
"""What makes a gap a spike."""


def of(points: pd.DataFrame, kind: str) -> pd.DataFrame:
    """The rows of one kind, without the columns that it has no values in."""
    return points[points["kind"] == kind].dropna(axis="columns", how="all")


def timeline_figure(points: pd.DataFrame, rows: int, engines: list[str], requests: int) -> Figure:
    """Requests down, time across, a panel per engine: chunks, decodes, and over them the gaps that are spikes.

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
    keys.append(Patch(color=SPIKE_COLOR, label=f"spike: a gap {ABOVE}"))
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
    high = spikes(points).join(steps["end_s"], on="step")
    for spike in high[high["request"].isin(places)].itertuples():
        place = places[spike.request]
        # Above the bars: under engines that chunk, a spike is one long step, with the token at its end.
        axis.plot(
            [spike.end_s - spike.gap_s, spike.end_s], [place, place], color=SPIKE_COLOR, lw=1.6, zorder=3
        )
    axis.set_ylim(requests - 0.4, -0.6)
    axis.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axis.set_ylabel("request")
    axis.grid(axis="y", visible=False)


def spikes(points: pd.DataFrame) -> pd.DataFrame:
    """The gaps above three times the median one of their run, which is the run's baseline."""
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


def worst_gaps_s(points: pd.DataFrame, rows: int) -> dict[str, float]:
    """The longest gap under each engine that left any, in the order in which they ran."""
    gaps = of(points, "gap")
    worst = gaps[gaps["rows"] == rows].groupby("engine", sort=False)["gap_s"].max()
    return {str(engine): float(gap_s) for engine, gap_s in worst.items()}
