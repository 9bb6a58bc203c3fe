"""The parity page from tiny weights: the shipped notebook, run for real, and its tables."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from toys.outputs import shown_on

from interleave.report.figures import parity as draw
from interleave.report.layout import find_notebook
from interleave.report.runner import run_notebook


@pytest.mark.usefixtures("one_thread")
def test_the_notebook_becomes_a_page(out: Path) -> None:
    chosen = {"model": "tiny-gqa3", "backends": ["cpu", "reference"]}
    result = run_notebook(find_notebook("parity"), overrides=chosen, say=lambda _: None)
    numbers = {name: number["value"] for name, number in result.provenance["numbers"].items()}
    assert numbers["failed"] == 0
    assert numbers["checked"] == numbers["exact"] + numbers["near_ties"] > 100
    shown = shown_on(result.path)
    assert f"{numbers['checked']:,} requests compared" in shown


def points() -> pd.DataFrame:
    trial = {"kind": "trial", "workload": "mixed", "backend": "cpu"}
    tie = {"position": 5.0, "expected": 1.0, "got": 2.0, "gap_steps": 3.5}
    return pd.DataFrame(
        [
            {
                **trial,
                "engine": "cached",
                "backend": None,
                "requests": 3,
                "exact": 3,
                "near_ties": 0,
                "failed": 0,
            },
            {**trial, "engine": "mixed", "requests": 7, "exact": 5, "near_ties": 1, "failed": 1},
            {"kind": "tie", "engine": "mixed", "workload": "mixed", **tie},
        ]
    )


def test_counts_add_up() -> None:
    assert list(draw.totals(points())) == [10, 8, 1, 1]
    assert draw.by(points(), "backend").values.tolist() == [["none", 3, 3, 0, 0], ["cpu", 7, 5, 1, 1]]
    assert draw.ties(points()).values.tolist() == [["mixed", "mixed", 5, 1, 2, 3.5]]


def test_a_failure_is_a_missed_prediction() -> None:
    assert list(draw.verdicts(points())["verdict"]) == ["missed", "missed"]
