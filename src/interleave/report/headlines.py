"""The numbers that the front page quotes: a few comparisons over the stored points behind a page.

Reads exactly the points that the page was made from, so that a page and the front page cannot differ.
Leaves out what a run with other engines or loads cannot say. Draws nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from interleave.lab.results import PointStore
from interleave.report.figures import arrival_curves as arrivals
from interleave.report.figures import closed_batches as batches
from interleave.report.layout import results_root
from interleave.report.marks import Value
from interleave.report.phrases import compared, duration
from interleave.report.printed import spoken
from interleave.report.runs import Page

SUBJECT = "chunked"  # what the front page compares with everything else


@dataclass(frozen=True)
class Headlines:
    """What a run says: `settings` follow from its parameters, `measured` from its clock."""

    settings: dict[str, str]
    measured: dict[str, str]


def headlines(page: Page, root: Path) -> dict[str, Value]:
    """Every headline by name that the page's experiment has and its points support.

    root: below which the points of the page's tier are stored. Empty where one of them is missing.
    """
    experiment = page.run.experiment
    if experiment not in HEADLINES or (points := page_points(page, root)) is None:
        return {}
    said = HEADLINES[experiment](points)
    source = str(store_of(page, root).folder.relative_to(root))
    exact = {name: Value(text, None, source) for name, text in said.settings.items()}
    return exact | {name: Value(text, page.mark, source) for name, text in said.measured.items()}


def store_of(page: Page, root: Path) -> PointStore:
    return PointStore(results_root(page.tier, root), page.tier, page.run.experiment.rpartition(".")[2])


def page_points(page: Page, root: Path) -> pd.DataFrame | None:
    """The rows of the points that a page was made from; None where one of them is missing."""
    store = store_of(page, root)
    points = [store.load(key) for key in page.origin.get("point_keys", [])]
    if not points or any(rows is None for rows in points):
        return None
    return pd.DataFrame([row for rows in points for row in rows or []])


def arrival_headlines(rows: pd.DataFrame) -> Headlines:
    """Stalls, first tokens of long prompts and the median request below capacity, rates at the curves' ends."""
    table = arrivals.curves(rows)
    loads = sorted(table["load"].unique())
    low, high = loads[0], loads[-1]
    near = max((load for load in loads if load < 1), default=low)
    classes = arrivals.class_table(rows, near)
    longest = classes.index.max()
    settings = {"near_load": f"{near:.0%}", "high_load": f"{high:.0%}", "low_load": f"{low:.0%}"}
    settings["longest"] = f"{longest:,.0f} tokens"  # a column that simulated rows leave empty holds floats
    texts: dict[str, str] = {}
    engines = list(table["engine"].unique())
    stalls = {engine: arrivals.at(table, engine, near, "worst_gap_s") for engine in engines}
    firsts = {engine: float(classes.loc[longest, engine]) for engine in classes.columns}
    texts |= told("stall", stalls, duration, "shorter", "longer")
    for name, load in (("low", low), ("high", high)):
        rates = {engine: arrivals.at(table, engine, load, "served_rate") for engine in engines}
        texts |= told(f"served_{name}", rates, lambda rate: f"{spoken(rate, 3)} requests/s", "less", "more")
    for name in ("tpot", "ttft"):
        usual = {engine: arrivals.at(table, engine, near, f"{name}_s") for engine in engines}
        texts |= told(f"usual_{name}", usual, duration, "shorter", "longer")
    return Headlines(settings, texts | told("ttft_long", firsts, duration, "shorter", "longer"))


def batch_headlines(rows: pd.DataFrame) -> Headlines:
    """Wall time of the largest mixed and uniform batch, peak transient memory of the mixed one."""
    table = batches.medians(rows)
    settings: dict[str, str] = {}
    texts: dict[str, str] = {}
    for kind in ("mixed", "uniform"):
        named = sorted((name for name in table["batch"].unique() if name.startswith(kind)), key=len)
        if not named:
            continue
        settings[f"{kind}_requests"] = named[-1].removeprefix(kind)
        lines = table[table["batch"] == named[-1]].set_index("engine")
        texts |= told(f"wall_{kind}", lines["wall_s"].to_dict(), duration, "less", "more")
        if kind == "mixed" and "peak_transient_bytes" in lines:  # not every system tells its peak
            peaks = (lines["peak_transient_bytes"].dropna() / 2**20).to_dict()
            texts |= told("memory", peaks, lambda mib: f"{spoken(mib, 2)} MiB", "less", "more")
    return Headlines(settings, texts)


def told(
    name: str, values: dict[str, float], say: Callable[[float], str], less: str, more: str
) -> dict[str, str]:
    """Each engine's value, and how `chunked` stands to it."""
    known = {str(engine): value for engine, value in values.items() if value > 0}
    texts = {f"{name}_{engine}": say(value) for engine, value in known.items()}
    if SUBJECT in known:
        texts |= {
            f"{name}_change_{engine}": compared(known[SUBJECT], value, less, more)
            for engine, value in known.items()
            if engine != SUBJECT
        }
    return texts


HEADLINES: dict[str, Callable[[pd.DataFrame], Headlines]] = {
    "arrival_curves": arrival_headlines,
    "closed_batches": batch_headlines,
}
