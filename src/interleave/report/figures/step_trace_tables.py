"""Tables of the step traces, and the predictions graded: parts of the time, steps by what they carried, gaps.

Takes the experiment's rows as one frame, as `step_trace` does; measures nothing.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from interleave.lab.experiments.step_trace import PARTS
from interleave.report.figures.floors import REACHED, known, reached
from interleave.report.figures.graded import verdict
from interleave.report.figures.step_trace import ABOVE, of, spikes

WITH_PREFILL = "with prefill [%]"
SPIKES = f"spikes ({ABOVE})"


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
                WITH_PREFILL: 100 * len(with_prefill) / len(own),
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


def beside_prefill(points: pd.DataFrame) -> pd.DataFrame:
    """The gaps, and in `prefill` whether a step that computed some of a prompt ran between their two tokens."""
    found = []
    steps, gaps = of(points, "step"), of(points, "gap")
    for run, own in gaps.groupby(["engine", "rows"], sort=False):
        ran = steps[(steps["engine"] == run[0]) & (steps["rows"] == run[1])].set_index("step")
        middle = (ran["start_s"] + ran["end_s"]) / 2
        carrying = np.sort(middle[ran["prefill_tokens"] > 0])
        last = middle.loc[own["step"]].to_numpy()  # the step that closes a gap is in it
        first = np.minimum(ran["end_s"].loc[own["step"]].to_numpy() - own["gap_s"].to_numpy(), last)
        inside = np.searchsorted(carrying, last, "right") - np.searchsorted(carrying, first)
        found.append(own.assign(prefill=inside > 0))
    return pd.concat(found) if found else gaps.assign(prefill=False)


def gap_table(points: pd.DataFrame, rows: int) -> pd.DataFrame:
    """Gaps of requests already decoding: the median one, the worst, which hold prefill, and which are spikes."""
    gaps, high = beside_prefill(points), spikes(points)
    lines = []
    for engine, own in gaps[gaps["rows"] == rows].groupby("engine", sort=False):
        mine = high[(high["engine"] == engine) & (high["rows"] == rows)]["gap_s"]
        lines.append(
            {
                "engine": engine,
                "median [ms]": own["gap_s"].median() * 1e3,
                "worst [ms]": own["gap_s"].max() * 1e3,
                WITH_PREFILL: 100 * float(own["prefill"].mean()),
                SPIKES: len(mine),
                "time in spikes [%]": 100 * float(mine.sum() / own["gap_s"].sum()),
            }
        )
    return pd.DataFrame(lines)


def gap_caption(points: pd.DataFrame, rows: int) -> str:
    """What the table of gaps holds, what a spike is, and under which engines that hides the gaps with prefill."""
    gaps, table = of(points, "gap"), gap_table(points, rows)
    counts = gaps[gaps["rows"] == rows].groupby("engine").size()
    if counts.empty:
        return f"{rows} rows: no request was decoding when a step began."
    number = f"{counts.min():,}" if counts.nunique() == 1 else f"{counts.min():,} to {counts.max():,}"
    hidden = [f"`{line['engine']}`" for line in table.to_dict("records") if line[WITH_PREFILL] > 50]
    said = (
        f"{rows} rows: the {number} gaps of requests already decoding, under each engine. With prefill: some of a "
        f"prompt was computed between the two tokens. A spike is a gap {ABOVE} of its run."
    )
    if hidden:
        said += (
            f" Under {', '.join(hidden)} most gaps hold prefill, so the median is one of those: a gap that is long "
            "for that reason alone does not count as a spike there."
        )
    return said


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
