"""Figures and tables of the simulator page: errors on published figures, curves over them, this machine.

Takes the experiment's rows as one frame, in which `kind` tells published rows, hypotheses, curves, steps,
whole runs and verdicts on them apart; measures nothing. Tables of whole runs are in `simulator_runs`.
"""

from __future__ import annotations

import re

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import BaseModel

from interleave.report.figures.graded import verdict
from interleave.report.figures.style import LOOKS, label_ends, panels, plain_log
from interleave.report.marks import measured_on
from interleave.report.printed import marked

USES = {"calibrate": ("calibrated on", "none", "s"), "holdout": ("held out", "#0072B2", "o")}
SHOWN = 0.25
"""Errors beyond this share stand at the edge of the figure, with their number."""
MEASURES = {
    "served_rate": "served rate",
    "wall_s": "wall time",
    "ttft_p50_s": "TTFT, median",
    "ttft_p90_s": "TTFT, 90th percentile",
    "tpot_p50_s": "TPOT, median",
    "gap_p50_s": "gap, median",
    "gap_p90_s": "gap, 90th percentile",
    "max_gap_p50_s": "longest gap, median",
}


def of_kind(points: pd.DataFrame, kind: str) -> pd.DataFrame:
    """The rows of one kind, with the columns that they have."""
    return points[points["kind"] == kind].dropna(axis="columns", how="all").reset_index(drop=True)


def scored(points: pd.DataFrame) -> pd.DataFrame:
    """Published rows that were calibrated on or held out, in the reference's order."""
    rows = of_kind(points, "row")
    return rows[rows["use"].isin(USES)].reset_index(drop=True)


def errors_figure(points: pd.DataFrame) -> Figure:
    """Every scored row with its error; bands at the two targets."""
    rows = scored(points)
    figure, (axis,) = panels(height_in=0.24 * len(rows) + 0.9)
    axis.axvspan(-10, 10, color="#0072B2", alpha=0.07, lw=0)
    axis.axvspan(-3, 3, color="#0072B2", alpha=0.12, lw=0)
    axis.axvline(0, color="black", lw=0.8)
    for use, (label, fill, marker) in USES.items():
        own = rows[rows["use"] == use]
        at = own["error"].clip(-SHOWN, SHOWN) * 100
        axis.scatter(
            at, own.index, marker=marker, facecolor=fill, edgecolor="#0072B2", s=34, label=label, zorder=3
        )
    for place, row in rows.iterrows():
        shown = 100 * max(-SHOWN, min(SHOWN, row["error"]))
        right = row["error"] < SHOWN
        axis.annotate(
            f"{row['error']:+.1%}", (shown, place), (8 if right else -8, 0), textcoords="offset points",
            va="center", ha="left" if right else "right", fontsize=9,
        )  # fmt: skip
    axis.set_yticks(
        range(len(rows)), [f"{row.id}  {row.engine}: {row.quantity}" for row in rows.itertuples()]
    )
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.set_xlim(-100 * SHOWN - 2, 100 * SHOWN + 2)
    axis.set_xlabel("simulated against published (%)")
    axis.grid(axis="y", visible=False)
    axis.legend(loc="lower left")
    return figure


def curves_figure(points: pd.DataFrame) -> Figure:
    """Served rate and median queue wait over the arrival rate: simulated lines, published points."""
    curves, rows = of_kind(points, "curve"), of_kind(points, "row")
    figure, axes = panels(2, 1, height_in=2.9)
    panel = (
        ("served_rate", "served rate", "served rate (requests/s)"),
        ("queue_wait_p50_s", "queue wait p50", "median queue wait (s)"),
    )
    for axis, (column, quantity, label) in zip(axes, panel, strict=True):
        ends = []
        for engine, own in curves.groupby("engine", sort=False):
            look = LOOKS[str(engine)]
            axis.plot(own["rate"], own[column], color=look.color, linestyle=look.line)
            ends.append((str(engine), float(own["rate"].iloc[-1]), float(own[column].iloc[-1])))
            for rate, value in published_at(rows, str(engine), quantity):
                axis.plot(
                    rate,
                    value,
                    look.marker,
                    markersize=9,
                    markerfacecolor="white",
                    markeredgecolor=look.color,
                    markeredgewidth=2,
                    zorder=4,
                )
        axis.set_ylabel(label)
        if column == "served_rate":
            top = float(curves["rate"].max())
            axis.plot([0, top], [0, top], color="#999999", lw=1, linestyle=":")
            axis.set_ylim(0, float(curves["served_rate"].max()) * 1.25)
            axis.set_title("Lines: simulated. Open markers: published. Dotted: all that arrives")
        else:
            plain_log(axis)
            axis.set_title("Queue wait")
        label_ends(axis, ends, min_gap=0.09)
    axes[-1].set_xlabel("arrival rate (requests/s)")
    return figure


def published_at(rows: pd.DataFrame, engine: str, quantity: str) -> list[tuple[float, float]]:
    """(arrival rate, published value) of the rows that state both."""
    found = []
    for row in rows.itertuples():
        stated = re.fullmatch(r"400 Poisson arrivals rate ([\d.]+)", str(row.workload))
        if stated and row.engine == engine and row.quantity == quantity and pd.notna(row.published):
            found.append((float(stated[1]), float(row.published)))
    return found


def here_figure(points: pd.DataFrame) -> Figure:
    """Whole runs on this machine: the simulated value against the engine's median, beside the engine's own range."""
    runs = of_kind(points, "run")
    known = {
        name: label for name, label in MEASURES.items() if name in set(runs["what"])
    }  # few requests, no tail
    figure, (axis,) = panels(height_in=0.62 * len(known) + 1.0)
    loads = sorted(runs["load"].unique())
    axis.axvline(0, color="black", lw=0.8)
    for number, load in enumerate(loads):
        shift = (number - (len(loads) - 1) / 2) * 0.6 / max(1, len(loads))
        own = runs[runs["load"] == load].set_index("what")
        for place, name in enumerate(known):
            if name in own.index:
                _beside_its_range(
                    axis,
                    own.loc[name],
                    place + shift,
                    number,
                    f"at {load:g} of capacity" if place == 0 else None,
                )
    axis.set_yticks(range(len(known)), list(known.values()))
    axis.set_ylim(len(known) - 0.4, -0.6)
    axis.set_xlabel("against the engine's median (%); bars: from its lowest to its highest run")
    axis.legend(loc="best")
    return figure


def _beside_its_range(axis: Axes, row: pd.Series, place: float, number: int, label: str | None) -> None:
    color = list(LOOKS.values())[-1 - number % 4].color
    low, high = (100 * (row[end] / row["measured"] - 1) for end in ("low", "high"))
    axis.plot([low, high], [place, place], color=color, lw=5, alpha=0.3, solid_capstyle="butt")
    axis.plot(100 * row["error"], place, "oDs^"[number % 4], color=color, label=label)


def hypotheses_table(points: pd.DataFrame) -> pd.DataFrame:
    rows = of_kind(points, "hypothesis")
    return pd.DataFrame(
        {
            "host and device": rows["overlap"].str.replace("_", " "),
            "calibration, rms [%]": 100 * rows["calibration_rms"],
            "held out, median [%]": 100 * rows["holdout_median"],
            "held out, largest [%]": 100 * rows["holdout_largest"],
            "used": ["yes" if chosen else "no" for chosen in rows["chosen"]],
        }
    )


PARAMETERS = {
    "floor_s": ("floor of a step", 1e3, "ms"),
    "weights_s": ("read of the weights, hidden behind more work", 1e3, "ms"),
    "positions_s": ("a position", 1e6, "µs"),
    "prefill_attended_s": ("a query-key pair of a chunk", 1e9, "ns"),
    "dense_attended_s": ("a query-key pair of a padded group", 1e9, "ns"),
    "decode_rows_s": ("a decoding row", 1e6, "µs"),
    "decode_attended_s": ("a position that it sees", 1e9, "ns"),
    "slot_attended_s": ("a position walked in slots", 1e9, "ns"),
    "copied_rows_s": ("a row copied into the pool", 1e3, "ms"),
}


def parameters_table(points: pd.DataFrame) -> pd.DataFrame:
    """The chosen model in units that a person can weigh."""
    hypotheses = of_kind(points, "hypothesis")
    chosen = hypotheses[hypotheses["chosen"].astype(bool)].iloc[0]
    return pd.DataFrame(
        [
            {"what": what, "time": float(chosen[name]) * factor, "unit": unit}
            for name, (what, factor, unit) in PARAMETERS.items()
            if name in chosen and chosen[name] > 0
        ]
    )


def misses_table(points: pd.DataFrame, least: float = 0.05) -> pd.DataFrame:
    """Held-out rows that are off by more than `least`, the farthest first."""
    rows = scored(points)
    far = rows[(rows["use"] == "holdout") & (rows["error"].abs() > least)]
    far = far.iloc[far["error"].abs().argsort()[::-1]]
    return pd.DataFrame(
        {
            "row": far["id"],
            "quantity": [f"{row.engine}: {row.quantity}, {row.workload}" for row in far.itertuples()],
            "published": marked(far["published"], "published-elsewhere", "published.csv"),
            "simulated": far["simulated"],
            "error [%]": 100 * far["error"],
        }
    )


def steps_table(points: pd.DataFrame) -> pd.DataFrame:
    """Errors of single steps by kind, and how many have a count beyond what the fit has seen, where that is stored."""
    rows = of_kind(points, "step")
    return pd.DataFrame(
        {
            "steps": [
                f"{row.part.removesuffix('_steps').replace('_', ' ')}: {row.what}"
                for row in rows.itertuples()
            ],
            "number": rows["n"].astype(int),
            "median error [%]": 100 * rows["error"],
            "90th percentile [%]": 100 * rows["p90_error"],
            "bias [%]": 100 * rows["bias"],
            **({"outside the fit": rows["outside"].astype(int)} if "outside" in rows else {}),
        }
    )


def holdout(points: pd.DataFrame) -> pd.Series:
    """Absolute errors of the held-out rows, by row id."""
    rows = scored(points)
    own = rows[rows["use"] == "holdout"]
    return own.set_index("id")["error"].abs()


def verdicts(points: pd.DataFrame) -> pd.DataFrame:
    """Each recorded prediction with what came of it; left open where the run was too short for it."""
    errors = holdout(points)
    rms = of_kind(points, "hypothesis").set_index("overlap")["calibration_rms"]
    steps = of_kind(points, "step")
    often = steps[(steps["part"] == "held_out_steps") & (steps["n"] >= 20)]
    runs = of_kind(points, "run")

    def worst(name: str) -> float | None:
        own = runs[runs["what"] == name]["error"].abs()
        return None if own.empty else 100 * float(own.max())

    ordered = float(min(rms["forward_floor"] - rms["step_floor"], rms["additive"] - rms["forward_floor"]))
    beyond = float("inf")
    lines: list[tuple[str, str, float | None, float, float]] = [
        ("1", "held-out rows, median error [%]", 100 * float(errors.median()), 0, 3),
        ("2", "held-out rows off by more than 10%", float((errors > 0.1).sum()), 0, 0),
        ("3", "smallest gain in calibration error from one floor to the next [%]", 100 * ordered, 0, beyond),
        ("4", "held-out steps, largest median error of a kind [%]",
         None if often.empty else 100 * float(often["error"].max()), 0, 5),
        ("5", "held-out steps, largest bias of a kind [%]",
         None if often.empty else 100 * float(often["bias"].abs().max()), 0, 3),
        ("6a", "served rate, largest error [%]", worst("served_rate"), 0, 3),
        ("6b", "median TTFT, largest error [%]", worst("ttft_p50_s"), 0, 15),
    ]  # fmt: skip
    return pd.DataFrame([verdict(*line) for line in lines])


def marks(params: BaseModel) -> dict[str, str]:
    """Errors against this machine's own runs are measured here, unlike those against published figures."""
    return dict.fromkeys(("4", "5", "6a", "6b"), measured_on(getattr(params, "device", "cpu")))
