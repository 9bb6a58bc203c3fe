"""Tables of whole runs on the simulator page: the verdicts on the judged measures, and their errors by load.

Takes the experiment's rows as one frame, as `simulator` does; measures nothing.
"""

from __future__ import annotations

import pandas as pd

from interleave.lab.validation import JUDGED
from interleave.report.figures.simulator import MEASURES, of_kind

AWAITS = "awaits a run"


def judged_table(points: pd.DataFrame) -> pd.DataFrame:
    """A line for each judged measure; one that is not stored, or that no run supported, awaits a run."""
    rows = of_kind(points, "judged")
    known = rows.set_index("what") if len(rows) else pd.DataFrame(columns=["error", "spread", "bound", "met"])

    def share(name: str, column: str) -> float | None:
        return 100 * float(known.loc[name, column]) if name in known.index else None

    def said(name: str) -> str:
        return ("met" if known.loc[name, "met"] else "missed") if name in known.index else AWAITS

    return pd.DataFrame(
        {
            "measure": [MEASURES[name] for name in JUDGED],
            "median error [%]": [share(name, "error") for name in JUDGED],
            "the engine's own spread [%]": [share(name, "spread") for name in JUDGED],
            "bound [%]": [share(name, "bound") for name in JUDGED],
            "verdict": [said(name) for name in JUDGED],
        }
    )


def loads_table(points: pd.DataFrame) -> pd.DataFrame:
    """A line for each load: the signed error of each judged measure; None where no run supported it."""
    runs = of_kind(points, "run")
    errors = runs[runs["what"].isin(JUDGED)].pivot(index="load", columns="what", values="error")
    known = [name for name in JUDGED if name in errors]
    table = 100 * errors[known].rename(columns={name: f"{MEASURES[name]} [%]" for name in known})
    return table.rename_axis(columns=None).reset_index().rename(columns={"load": "load [x capacity]"})


def capacity(points: pd.DataFrame) -> float | None:
    """Requests/s that the engine served with everybody waiting; None where that is not stored."""
    rows = of_kind(points, "capacity")
    return float(rows["measured"].iloc[0]) if len(rows) else None
