"""Tables and figure of the predictions chapter: published rows, ratios and claims beside what was found.

Takes the chapter's own rows and the stored results of the other chapters; simulates and measures nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from interleave.lab.published import error_of
from interleave.lab.reference import Published, load_published
from interleave.report.claims import AWAITS, Finding, step_weight_bytes
from interleave.report.comparisons import COMPARISONS, Compared
from interleave.report.evidence import Evidence, Stored
from interleave.report.figures.style import panels
from interleave.report.marks import Value
from interleave.report.printed import MISSING, spoken

PUBLISHED, SIMULATED = "published-elsewhere", "simulated"
OWN = "predictions"
WEIGHTS_ROW = "h02"  # weights read per step: arithmetic, not a measurement
SOURCES = {
    "published": ("#000000", "o", "published elsewhere"),
    "simulated": ("#CC79A7", "s", "simulated, published GPU"),
    "measured": ("#0072B2", "D", "measured here"),
}


def evidence_of(points: pd.DataFrame, stored: Mapping[str, Stored]) -> Evidence:
    """The chapter's own simulated rows beside the published table and the other chapters."""
    simulated = dict(zip(points["id"], points["simulated"].astype(float), strict=True))
    return Evidence({row.id: row for row in load_published()}, simulated, stored)


def published_table(evidence: Evidence, uses: Sequence[str]) -> pd.DataFrame:
    """Every published figure of some uses beside this report's own, with the error where it is scored."""
    lines = []
    for row in evidence.published.values():
        if row.use not in uses:
            continue
        number = evidence.simulated.get(row.id)
        scored = number is not None and row.use in ("calibrate", "holdout")
        lines.append(
            {
                "row": row.id,
                "figure": f"{row.engine}, {row.workload}: {row.quantity}",
                "published": Value(printed(row), PUBLISHED, row.report),
                "this report": _ours(row, number),
                "error [%]": 100 * error_of(row, number) if scored and number is not None else None,
                "use": row.use,
            }
        )
    return pd.DataFrame(lines)


def _ours(row: Published, simulated: float | None) -> Value | str | None:
    if row.id == WEIGHTS_ROW:
        return Value(f"{spoken(step_weight_bytes() / 1e9, 3)} {row.unit}", None, "arithmetic")
    if simulated is not None:
        return Value(f"{spoken(simulated, 3)} {unit(row)}".strip(), SIMULATED, OWN)
    return "as a ratio" if any(row.id in one.rows for one in COMPARISONS) else None


def printed(row: Published) -> str:
    """The figure as it was printed: a value, a range, or nothing but words."""
    if row.printed is not None:
        return f"{row.printed} {unit(row)}".strip()
    return f"{row.low:g} to {row.high:g} {unit(row)}".strip() if row.low is not None else MISSING


def unit(row: Published) -> str:
    return "" if row.unit == "ratio" else row.unit


def comparison_table(compared: Sequence[Compared], evidence: Evidence) -> pd.DataFrame:
    """Each published ratio, the simulated one, ours, and whether they point the same way."""
    lines = []
    for one in compared:
        comparison = one.comparison
        ours = (
            None if one.measured is None else evidence.marked(comparison.experiment, spoken(one.measured, 3))
        )
        lines.append(
            {
                "ratio": comparison.what,
                "rows": " ".join(comparison.rows),
                "published": Value(spoken(one.published, 3), PUBLISHED, "published.csv"),
                "simulated": None
                if one.simulated is None
                else Value(spoken(one.simulated, 3), SIMULATED, OWN),
                "measured": ours or _why_not(comparison.experiment, evidence),
                "direction": {True: "the same", False: "another", None: MISSING}[one.same_direction],
            }
        )
    return pd.DataFrame(lines)


def _why_not(experiment: str, evidence: Evidence) -> str:
    return "not at this size" if experiment in evidence.stored else AWAITS


def turned_table(compared: Sequence[Compared], evidence: Evidence) -> pd.DataFrame:
    """The ratios that point elsewhere here, with why."""
    return pd.DataFrame(
        [
            {
                "ratio": one.comparison.what,
                "published": Value(spoken(one.published, 3), PUBLISHED, "published.csv"),
                "measured": evidence.marked(one.comparison.experiment, spoken(one.measured or 0.0, 3)),
                "why": one.comparison.why or "not explained yet",
            }
            for one in compared
            if one.same_direction is False
        ],
        columns=["ratio", "published", "measured", "why"],
    )


def comparison_figure(compared: Sequence[Compared]) -> Figure:
    """A line a ratio, on a logarithmic axis around 1: published, simulated and measured."""
    figure, (axis,) = panels(height_in=1.0 + 0.36 * len(compared))
    for source, (color, marker, label) in SOURCES.items():
        found = [(getattr(one, source), place) for place, one in enumerate(compared) if getattr(one, source)]
        if found:
            hollow = "white" if source == "published" else color
            axis.plot(
                *zip(*found, strict=True),
                marker,
                color=color,
                markerfacecolor=hollow,
                markersize=10 if source == "published" else 6,
                label=label,
            )
    axis.axvline(1.0, color="black", lw=1.2)
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set_yticks(range(len(compared)), [_short(one.comparison.what) for one in compared])
    axis.set_ylim(len(compared) - 0.4, -0.6)
    axis.set_xlabel("ratio (logarithmic); left of 1 the first side is smaller")
    axis.set_title("Who is ahead, and by how much")
    figure.legend(loc="outside upper right", ncols=len(SOURCES))  # the panel is too narrow for it
    return figure


def _short(text: str) -> str:
    """A long name in two lines."""
    head, colon, tail = text.partition(": ")
    return f"{head}:\n{tail}" if colon and len(text) > 34 else text


def claim_table(evidence: Evidence, findings: Mapping[str, Finding], use: str) -> pd.DataFrame:
    """Published claims, or predictions with the grade that their authors gave: what was found, and how it is known."""
    lines = []
    for row in evidence.published.values():
        if row.use != use:
            continue
        found = findings[row.id]
        said = Value(
            f"{row.quantity} {'' if printed(row) == MISSING else printed(row)}".strip(), PUBLISHED, row.report
        )
        line: dict[str, object] = {"row": row.id, "claim" if use == "claim" else "prediction": said}
        if use == "prediction":
            line["their grade"] = row.grade or "not yet graded"
        lines.append(line | {"found here": found.found, "verdict": found.verdict, "evidence": found.why})
    return pd.DataFrame(lines)


def ratio_data(compared: Sequence[Compared]) -> pd.DataFrame:
    """What the figure draws."""
    return pd.DataFrame(
        [{"ratio": one.comparison.what, **{name: getattr(one, name) for name in SOURCES}} for one in compared]
    )
