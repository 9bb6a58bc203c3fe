"""Tables of the parity gate: what was compared, and how it ended. Takes the experiment's rows as one frame."""

from __future__ import annotations

import pandas as pd

from interleave.report.figures.graded import verdict

COUNTS = ["requests", "exact", "near_ties", "failed"]


def trials(points: pd.DataFrame) -> pd.DataFrame:
    """The trials, with counts as integers and `none` for an engine that has its own attention."""
    found = points[points["kind"] == "trial"].astype(dict.fromkeys(COUNTS, int))
    return found.assign(backend=found["backend"].fillna("none"), workload=found["workload"].fillna("-"))


def totals(points: pd.DataFrame) -> pd.Series:
    return trials(points)[COUNTS].sum()


def by(points: pd.DataFrame, column: str) -> pd.DataFrame:
    """Counts by engine, by workload or by attention backend, in the order of the gate."""
    table = trials(points).groupby(column, sort=False)[COUNTS].sum().reset_index()
    return table.rename(columns={"requests": "compared", "near_ties": "near ties"})


def ties(points: pd.DataFrame) -> pd.DataFrame:
    """Each near tie: who, where, which tokens, and how far apart the reference saw them."""
    found = points[points["kind"] == "tie"]
    return pd.DataFrame(
        {
            "engine": found["engine"],
            "workload": found["workload"],
            "position": found["position"].astype(int),
            "expected": found["expected"].astype(int),
            "got": found["got"].astype(int),
            "gap [steps]": found["gap_steps"],
        }
    )


def verdicts(points: pd.DataFrame) -> pd.DataFrame:
    """Each recorded prediction with what was found."""
    counts = totals(points)
    near = 100 * float(counts["near_ties"] / counts["requests"])
    return pd.DataFrame(
        [
            verdict("1", "requests that failed", float(counts["failed"]), 0, 0),
            verdict("2", "near ties [%]", near, 0, 1),
        ]
    )
