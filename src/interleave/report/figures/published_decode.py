"""Simulated: the published A10's decode step, the steps that carry a chunk, and what a shorter step would be worth.

Takes the rows of the recorded-decode experiment that are simulated; every number in a table carries the mark.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from interleave.lab.reference import load_published
from interleave.report.figures.recorded_decode import of
from interleave.report.figures.style import Look, panels
from interleave.report.marks import Value
from interleave.report.printed import spoken

PUBLISHED_STEP_MS = 15.0
CHANGE_LOOKS = {"host": Look("#0072B2", "o", "-"), "every part": Look("#D55E00", "s", "--")}
CHANGE_LABELS = {"host": "what the host adds", "every part": "every part alike"}


def loads_figure(points: pd.DataFrame) -> Figure:
    """Simulated: the shares of steps, and of time in them, that carry a chunk forward, over the arrival rate."""
    loads = of(points, "load").sort_values("rate")
    figure, (axis,) = panels(height_in=3.0)
    axis.plot(loads["rate"], 100 * loads["chunk_steps"], color="#0072B2", marker="o", label="of the steps")
    axis.plot(
        loads["rate"], 100 * loads["chunk_time"], "--", color="#D55E00", marker="s", label="of their time"
    )
    axis.set_ylim(0, 100)
    axis.set_ylabel("with a chunk forward (%)")
    axis.set_xlabel("arrival rate (requests/s)")
    axis.legend(loc="upper left")
    return figure


def predicted_rates() -> tuple[float, float]:
    """The published range for a step of 15 ms (p01), requests/s."""
    (row,) = (row for row in load_published() if row.id == "p01")
    assert row.low is not None
    assert row.high is not None
    return row.low, row.high


def published_today() -> tuple[float, float]:
    """The published decode step of 32 rows in ms (c11), and the published peak in requests/s (o02)."""
    values = {row.id: row.value for row in load_published() if row.id in ("c11", "o02")}
    step_ms, peak = values["c11"], values["o02"]
    assert step_ms is not None
    assert peak is not None
    return step_ms, peak


def changes_figure(points: pd.DataFrame) -> Figure:
    """Simulated: the peak served rate over the decode step of 32 rows, by what was made shorter; beside the model's
    step as it is, the published step and peak."""
    found = of(points, "change")
    (now,) = (line for line in found.itertuples() if line.cheaper == "nothing")
    figure, (axis,) = panels(height_in=3.2)
    low, high = predicted_rates()
    axis.axhspan(low, high, color="black", alpha=0.08, lw=0)
    axis.annotate(
        "published prediction for 15 ms", (0.98, (low + high) / 2), xycoords=("axes fraction", "data"),
        ha="right", va="center", fontsize=9,
    )  # fmt: skip
    for name, look in CHANGE_LOOKS.items():
        own = found[found["cheaper"] == name].sort_values("step_s")
        axis.plot(
            [*own["step_s"] * 1e3, now.step_s * 1e3], [*own["peak_rate"], now.peak_rate],
            look.line, color=look.color, marker=look.marker, label=CHANGE_LABELS[name],
        )  # fmt: skip
    axis.plot(
        now.step_s * 1e3,
        now.peak_rate,
        "*",
        color="black",
        markersize=13,
        label="nothing, simulated",
        zorder=4,
    )
    axis.plot(
        *published_today(),
        "o",
        color="black",
        markerfacecolor="white",
        markersize=8,
        label="nothing, published",
        zorder=4,
    )
    axis.set_ylim(0, high * 1.1)
    axis.set_xlabel("decode step of 32 rows (ms)")
    axis.set_ylabel("peak served rate (requests/s)")
    axis.legend(loc="lower left", title="made shorter")
    return figure


def simulated(value: float, digits: int = 3) -> Value:
    return Value(spoken(value, digits), "simulated", "the calibrated model of the published A10")


def a10_parts_table(points: pd.DataFrame) -> pd.DataFrame:
    """What the calibrated model charges a step of 32 decoding rows for."""
    meaning = {
        "weights": "reading the weights",
        "keys and values": "reading keys and values",
        "rows": "a price per row: bookkeeping, sampling",
        "forward": "a price per forward",
        "wait": "the rest of the floor",
    }
    parts = of(points, "part")
    parts = parts[parts["part_s"] > 0]
    return pd.DataFrame(
        {
            "of a step of 32 decoding rows": [meaning[name] for name in parts["part"]],
            "takes [ms]": [simulated(seconds * 1e3) for seconds in parts["part_s"]],
        }
    )


def loads_table(points: pd.DataFrame) -> pd.DataFrame:
    loads = of(points, "load").sort_values("rate")
    columns = {
        "served [requests/s]": loads["served_rate"],
        "steps with a chunk [%]": 100 * loads["chunk_steps"],
        "their share of the time [%]": 100 * loads["chunk_time"],
        "decoding rows": loads["rows"],
        "padding [%]": 100 * loads["padded"],
    }
    return pd.DataFrame(
        {
            "arriving [requests/s]": loads["rate"],
            **{name: [simulated(x) for x in values] for name, values in columns.items()},
        }
    )


def changes_table(points: pd.DataFrame) -> pd.DataFrame:
    """Peak and rate past capacity for every change, against nothing changed."""
    found = of(points, "change")
    now = float(found[found["cheaper"] == "nothing"]["peak_rate"].iloc[0])
    return pd.DataFrame(
        {
            "made shorter": found["cheaper"],
            "decode step, 32 rows [ms]": [simulated(x * 1e3) for x in found["step_s"]],
            "peak [requests/s]": [simulated(x) for x in found["peak_rate"]],
            "at 7 requests/s": [simulated(x) for x in found["rate_at_7"]],
            "peak, against now": [simulated(x / now) for x in found["peak_rate"]],
        }
    )


def change(points: pd.DataFrame, cheaper: str, quantity: str, step_ms: float | None = None) -> float | None:
    """A quantity of one change; None where that step was not simulated or cannot be reached."""
    found = of(points, "change")
    found = found[found["cheaper"] == cheaper]
    if step_ms is not None:
        found = found[(found["step_s"] * 1e3 - step_ms).abs() < 0.1]
    return None if found.empty else float(found[quantity].iloc[0])
