"""Figures of recorded decode: steps launched and replayed, and their parts.

Takes the experiment's rows as one frame, in which `kind` tells steps, runs, counts, loads, changes and parts of
the A10's step apart; measures nothing. Tables and verdicts are in `recorded_decode_tables`, the A10's in
`published_decode`.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from interleave.report.figures.floors import known
from interleave.report.figures.style import LOOKS, Look, over_rows, panels, plain_log

ENGINES = ("chunked", "recorded")
NARROW_LOOK = Look("#999999", "s", "--")
# name -> (column of the eager engine, of the recorded one); `forward` is what packing leaves of decode_s.
PART_COLORS: dict[str, tuple[str, str]] = {
    "scheduler": ("#999999", ""),
    "build the batch": ("#D55E00", ""),
    "forward, or its replay": ("#E69F00", "//"),
    "head, choice, reading tokens": ("#CC79A7", ".."),
}


def of(points: pd.DataFrame, kind: str) -> pd.DataFrame:
    """The rows of one kind, without the columns that it has no values in."""
    return points[points["kind"] == kind].dropna(axis="columns", how="all").reset_index(drop=True)


def steps(points: pd.DataFrame) -> pd.DataFrame:
    """A line for each kind of weights and number of rows: median steps of both engines, the median ratio of
    neighbouring steps with what the middle 80% of them say (ratio_low, ratio_high), the median parts, and the floor."""
    timed = points[points["kind"] == "step"]
    keys = ["weights", "rows"]
    wide = timed.set_index([*keys, "repeat", "engine"])["step_s"].unstack("engine").reset_index()
    wide["ratio"] = wide["recorded"] / wide["chunked"]
    found = wide.groupby(keys)[[*ENGINES, "ratio"]].median()
    ends = wide.groupby(keys)["ratio"].quantile([0.1, 0.9]).unstack()
    found = found.join(ends.rename(columns={0.1: "ratio_low", 0.9: "ratio_high"}))
    for engine in ENGINES:
        own = timed[timed["engine"] == engine].groupby(keys)
        parts = own[["decode_s", "sample_s", "host_s", "pack_s"]].median()
        found = found.join(parts.add_suffix(f"_{engine}"))
    facts = ["context", "weight_bytes", "kv_bytes", "kernels", "weights_s", "kv_s", "floor_s"]
    return found.join(timed.groupby(keys)[facts].first()).reset_index()


def steps_figure(table: pd.DataFrame) -> Figure:
    """Left: the step of both engines and its floor over rows, and the narrow model's. Right: recorded / eager."""
    figure, axes = panels(1, 2, height_in=3.2)
    real, thin = (table[table["weights"] == weights] for weights in ("model", "narrow"))
    for engine in ENGINES:
        look = LOOKS[engine]
        for own, line in ((real, look.line), (thin, ":")):
            label = engine if own is real else f"{engine}, narrow"
            axes[0].plot(
                own["rows"], own[engine] * 1e3, line, color=look.color, marker=look.marker, label=label
            )
    if known(real):
        axes[0].plot(real["rows"], real["floor_s"] * 1e3, color="black", linestyle="-.", label="floor")
    axes[0].set_ylabel("decode step (ms)")
    plain_log(axes[0])
    axes[0].set_ylim(top=axes[0].get_ylim()[1] * 3)
    for own, look, label in (
        (real, LOOKS["recorded"], "with the weights"),
        (thin, NARROW_LOOK, "narrow"),
    ):
        axes[1].plot(own["rows"], own["ratio"], look.line, color=look.color, marker=look.marker, label=label)
    axes[1].axhline(1.0, color="black", linestyle=":", lw=1.2)
    axes[1].set_ylim(0, max(1.25, float(table["ratio"].max()) * 1.25))
    axes[1].set_ylabel("recorded / eager")
    for axis in axes:
        over_rows(axis, sorted(table["rows"].unique()))
    return figure


def part_seconds(line: pd.Series, engine: str) -> dict[str, float]:
    """The parts of a median step, by `PART_COLORS`: the narrow one's too."""
    packing = float(line["pack_s_chunked"]) if engine == "chunked" else 0.0
    return {
        "scheduler": float(line[f"host_s_{engine}"]),
        "build the batch": packing,
        "forward, or its replay": max(0.0, float(line[f"decode_s_{engine}"]) - packing),
        "head, choice, reading tokens": float(line[f"sample_s_{engine}"]),
    }


def parts_figure(table: pd.DataFrame) -> Figure:
    """The parts of a step, a bar for each engine and number of rows; marks at the weights' read and at the floor."""
    real = table[table["weights"] == "model"].sort_values("rows")
    bars = [(line, engine) for _, line in real.iterrows() for engine in ENGINES]
    figure, (axis,) = panels(height_in=0.36 * len(bars) + 1.2)
    for place, (line, engine) in enumerate(bars):
        left = 0.0
        for name, seconds in part_seconds(line, engine).items():
            color, hatch = PART_COLORS[name]
            axis.barh(
                place,
                seconds * 1e3,
                left=left * 1e3,
                color=color,
                hatch=hatch,
                edgecolor="white",
                label=name if place == 0 else None,
            )
            left += seconds
        if pd.notna(line["floor_s"]):
            for column, marker in (("weights_s", "o"), ("floor_s", "|")):
                axis.plot(
                    line[column] * 1e3,
                    place,
                    marker,
                    color="black",
                    markersize=5 if marker == "o" else 15,
                    markeredgewidth=2,
                )
    axis.set_yticks(range(len(bars)), [f"{line['rows']:.0f} rows, {engine}" for line, engine in bars])
    axis.set_ylim(len(bars) - 0.4, -0.6)
    axis.set_xlabel("median step (ms)")
    axis.grid(axis="y", visible=False)
    figure.legend(loc="outside upper right", ncols=2)
    return figure
