"""Figures and tables of the closed batches: medians over the recorded runs of each engine.

Takes the experiment's rows as one frame; measures nothing. A batch is named like `mixed8`.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from pydantic import BaseModel

from interleave.lab.experiments.closed_batches import PARTS
from interleave.report.figures.engine_rows import PART_LOOKS, engine_rows, fitting_scale, marked
from interleave.report.figures.floors import REACHED, known, reached
from interleave.report.figures.graded import verdict
from interleave.report.figures.style import LOOKS, panels
from interleave.report.printed import spoken


def medians(rows: pd.DataFrame) -> pd.DataFrame:
    """One line per batch and engine: the median over runs of every quantity, and wall time's range."""
    named = rows.assign(batch=rows["batch"] + rows["rows"].astype(str))
    grouped = named.groupby(["batch", "engine"], sort=False)
    table = grouped.median(numeric_only=True).drop(columns=["run", "rows"])
    for name in named.columns[named.isna().all()]:  # nothing of it was measurable: still a column
        table[name] = float("nan")
    walls = grouped["wall_s"].agg(wall_low="min", wall_high="max", num_runs="count")
    return table.join(walls).reset_index()


def at(table: pd.DataFrame, batch: str, engine: str, quantity: str) -> float:
    """One number of the medians. KeyError where that engine did not run on that batch."""
    found = table[(table["batch"] == batch) & (table["engine"] == engine)][quantity]
    if found.empty:
        raise KeyError(f"{engine} on {batch}")
    return float(found.iloc[0])


def ladder_figure(rows: pd.DataFrame, table: pd.DataFrame) -> Figure:
    """Wall time of every engine, a panel a batch: each run a small dot, the median a marker with its number;
    a bar where the machine's ceilings put the floor."""
    batches = list(table["batch"].unique())
    figure, axes = panels(len(batches), 1, height_in=2.7)
    named = rows["batch"] + rows["rows"].astype(str)
    for axis, batch in zip(axes, batches, strict=True):
        lines = table[table["batch"] == batch]
        for place, (engine, wall) in enumerate(zip(lines["engine"], lines["wall_s"], strict=True)):
            runs = rows[(named == batch) & (rows["engine"] == engine)]["wall_s"]
            axis.plot(runs, [place] * len(runs), ".", color=LOOKS[engine].color, alpha=0.5)
            marked(axis, engine, wall, place, f"{spoken(wall, 3)} s", beyond=runs.max())
        if known(lines):
            axis.plot(lines["floor_s"], range(len(lines)), "|", color="black", markersize=14)
        engine_rows(axis, list(lines["engine"]))
        fitting_scale(axis, "wall time", "s")
        axis.set_title(f"{batch}: all requests there from the start")
    return figure


def time_figure(table: pd.DataFrame, batch: str) -> Figure:
    """Where the wall time of each batched engine went, as stacked bars."""
    lines = table[(table["batch"] == batch) & ~table["engine"].isin(("nocache", "cached"))]
    figure, (axis,) = panels(height_in=3.4)
    left = pd.Series(0.0, index=lines.index)
    for part in PARTS:
        seconds = lines[f"{part}_s"]
        if seconds.max() <= 0:
            continue
        color, hatch = PART_LOOKS[part]
        label = "decode and prefill in one forward" if part == "mixed" else part
        axis.barh(
            range(len(lines)), seconds, left=left, color=color, hatch=hatch, edgecolor="white", label=label
        )
        left = left + seconds
    engine_rows(axis, list(lines["engine"]))
    axis.grid(axis="y", visible=False)
    axis.set_xlabel("time (s)")
    axis.set_title(f"Where the time goes, {batch}", pad=44)
    axis.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, borderaxespad=0.2)
    return figure


def latency_figure(table: pd.DataFrame, batch: str) -> Figure:
    """Median time to first token and worst gap of each engine on one batch."""
    lines = table[(table["batch"] == batch) & ~table["engine"].isin(("nocache", "cached"))]
    figure, axes = panels(1, 2, height_in=3.2)
    quantities = (("ttft_p50_s", "median TTFT (s)"), ("worst_gap_s", "worst gap of a decoding request (s)"))
    for axis, (quantity, label) in zip(axes, quantities, strict=True):
        for place, (engine, value) in enumerate(zip(lines["engine"], lines[quantity], strict=True)):
            if pd.notna(value):
                marked(axis, engine, value, place, spoken(value, 2))
        engine_rows(axis, list(lines["engine"]))
        axis.set_xlim(0, lines[quantity].max() * 1.25)
        axis.xaxis.set_major_locator(MaxNLocator(5))
        axis.set_xlabel(label)
    axes[1].set_yticklabels([])
    axes[0].set_title("First tokens")
    axes[1].set_title("Worst gap")
    return figure


def memory_figure(table: pd.DataFrame, batch: str) -> Figure:
    """Peak transient memory of each engine beside its wall time."""
    lines = table[(table["batch"] == batch) & table["peak_transient_bytes"].notna()]
    figure, axes = panels(1, 2, height_in=3.4)
    peaks = lines["peak_transient_bytes"] / 2**20
    for axis, values, quantity, unit in (
        (axes[0], lines["wall_s"], "wall time", "s"),
        (axes[1], peaks, "peak memory", "MiB"),
    ):
        for place, (engine, value) in enumerate(zip(lines["engine"], values, strict=True)):
            marked(axis, engine, value, place, spoken(value, 2))
        engine_rows(axis, list(lines["engine"]))
        fitting_scale(axis, quantity, unit)
    axes[1].set_yticklabels([])
    axes[0].set_title(f"Wall time, {batch}")
    axes[1].set_title("Above weights and KV pool")
    return figure


def engine_table(table: pd.DataFrame, batch: str) -> pd.DataFrame:
    """Every engine on one batch; the floor's share of the wall time where the machine was measured."""
    lines = table[table["batch"] == batch]
    columns = {"engine": lines["engine"], "wall [s]": lines["wall_s"]}
    if known(lines):
        columns[REACHED] = reached(lines["floor_s"], lines["wall_s"])
    return pd.DataFrame(
        {
            **columns,
            "decode [tokens/s]": lines["decode_rate"],
            "median TTFT [s]": lines["ttft_p50_s"],
            "worst gap [ms]": lines["worst_gap_s"] * 1e3,
        }
    )


def memory_table(table: pd.DataFrame, batch: str) -> pd.DataFrame:
    """What `memory_figure` draws."""
    lines = table[table["batch"] == batch]
    return pd.DataFrame(
        {
            "engine": lines["engine"],
            "wall [s]": lines["wall_s"],
            "peak transient [MiB]": lines["peak_transient_bytes"] / 2**20,
        }
    )


def padding_table(table: pd.DataFrame, batch: str) -> pd.DataFrame:
    """Positions that were asked for and positions that were only computed."""
    lines = table[(table["batch"] == batch) & ~table["engine"].isin(("nocache", "cached"))]
    useful = lines["prompt_tokens"] + lines["decode_tokens"]
    return pd.DataFrame(
        {
            "engine": lines["engine"],
            "useful [positions]": useful.astype(int),
            "padded [positions]": lines["padded_tokens"].astype(int),
            "padded per useful": lines["padded_tokens"] / useful,
            "forwards": lines["forwards"].astype(int),
        }
    )


def copy_table(table: pd.DataFrame) -> pd.DataFrame:
    """The copies of `paged`: bytes, the time they took, and the time that bandwidth alone asks for."""
    lines = table[table["engine"] == "paged"]
    copied = lines["copied_tokens"] * lines["kv_bytes_per_token"]
    return pd.DataFrame(
        {
            "batch": lines["batch"],
            "copied [MiB]": copied / 2**20,
            "measured [ms]": lines["copy_s"] * 1e3,
            "at copy bandwidth [ms]": copied / lines["copy_bytes_per_s"] * 1e3,
            "share of wall [%]": lines["copy_s"] / lines["wall_s"] * 100,
        }
    )


def copy_band(rows: pd.DataFrame, batch: str) -> tuple[float, float]:
    """Least and most of its wall time, in percent, that a run of `paged` spent on copies."""
    own = rows[(rows["batch"] + rows["rows"].astype(str) == batch) & (rows["engine"] == "paged")]
    shares = 100 * own["copy_s"] / own["wall_s"]
    return float(shares.min()), float(shares.max())


def difference_table(table: pd.DataFrame) -> pd.DataFrame:
    """Seconds that `paged` takes more than `chunked`, by part, a column a batch."""
    columns: dict[str, list[float | str]] = {"part": ["prefill", "decode", "copy", "sample and host", "all"]}
    for batch in table["batch"].unique():
        try:
            parts = {part: _excess(table, batch, part) for part in (*PARTS, "wall")}
        except KeyError:
            continue
        columns[f"{batch} [s]"] = [
            parts["prefill"],
            parts["decode"],
            parts["copy"],
            parts["sample"] + parts["host"],
            parts["wall"],
        ]
    return pd.DataFrame(columns)


def ratio(table: pd.DataFrame, batch: str, over: str, under: str, quantity: str = "wall_s") -> float | None:
    """A quantity of engine `over` divided by that of `under`; None if one is missing or zero."""
    try:
        top, bottom = at(table, batch, over, quantity), at(table, batch, under, quantity)
    except KeyError:
        return None
    return top / bottom if bottom > 0 and pd.notna(top) else None


def wall_band(table: pd.DataFrame, batch: str, engine: str) -> tuple[float, float]:
    """Shortest and longest wall time of an engine's recorded runs."""
    return at(table, batch, engine, "wall_low"), at(table, batch, engine, "wall_high")


def ratio_band(table: pd.DataFrame, batch: str, over: str, under: str) -> tuple[float, float]:
    """Least and most that `ratio` of wall times could be with single runs for medians."""
    top, bottom = wall_band(table, batch, over), wall_band(table, batch, under)
    return top[0] / bottom[1], top[1] / bottom[0]


def verdicts(table: pd.DataFrame, device: str = "cpu") -> pd.DataFrame:
    """Each recorded prediction with what was measured; left open where an engine or batch did not run.

    device: `cpu` or `cuda`. Two of the predictions speak of a CPU and are left open elsewhere.
    """

    def on_a_cpu(value: float | None) -> float | None:
        return value if device == "cpu" else None

    mixed, uniform = (
        next((b for b in table["batch"] if b.startswith(kind)), "") for kind in ("mixed", "uniform")
    )
    copies = copy_table(table)
    copied = copies[copies["batch"] == mixed]
    share = float(copied["share of wall [%]"].iloc[0]) if len(copied) else None
    slower = (
        float((copied["measured [ms]"] / copied["at copy bandwidth [ms]"]).iloc[0]) if len(copied) else None
    )
    found: list[tuple[str, str, float | None, float, float]] = [
        ("1", "prefill time, whole / paged, mixed", ratio(table, mixed, "whole", "paged", "prefill_s"), 0.0, 2 / 3),
        ("2", "wall time, chunked / whole, mixed", on_a_cpu(ratio(table, mixed, "chunked", "whole")), 1.0, 4 / 3),
        ("3", "wall time, chunked / paged, uniform", ratio(table, uniform, "chunked", "paged"), 1.0, 1.15),
        ("4a", "copy, share of paged's wall time, mixed [%]", share, 0.0, 1.0),
        ("4b", "copy, measured over bandwidth alone, mixed", slower, 2.0, float("inf")),
        ("5", "worst gap, chunked / paged, mixed", ratio(table, mixed, "chunked", "paged", "worst_gap_s"), 1.0,
         float("inf")),
        ("6", "peak transient, paged / chunked, mixed",
         ratio(table, mixed, "paged", "chunked", "peak_transient_bytes"), 3.0, float("inf")),
        ("7", "wall time, nocache / cached, mixed", ratio(table, mixed, "nocache", "cached"), 3.0, 8.0),
        ("8a", "wall time, recorded / chunked, mixed", on_a_cpu(ratio(table, mixed, "recorded", "chunked")), 0.95,
         1.05),
        ("8b", "wall time, recorded / chunked, uniform", on_a_cpu(ratio(table, uniform, "recorded", "chunked")), 0.95,
         1.05),
    ]  # fmt: skip
    return pd.DataFrame([verdict(*line) for line in found])


def fastest(table: pd.DataFrame, batch: str) -> str:
    lines = table[table["batch"] == batch]
    return str(lines.loc[lines["wall_s"].idxmin(), "engine"])


def _excess(table: pd.DataFrame, batch: str, part: str) -> float:
    return at(table, batch, "paged", f"{part}_s") - at(table, batch, "chunked", f"{part}_s")


def graded(rows: pd.DataFrame, params: BaseModel) -> pd.DataFrame:
    """The verdicts, from the experiment's rows."""
    return verdicts(medians(rows), getattr(params, "device", "cpu"))
