"""The small-pool page from tiny weights: the shipped notebook, run for real, and its tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from toys.outputs import shown_on

from interleave.report.figures import small_pool as draw
from interleave.report.layout import find_notebook
from interleave.report.runner import run_notebook


def test_the_notebook_becomes_a_page_with_any_choice(out: Path) -> None:
    chosen: dict[str, Any] = {
        "model": "tiny",
        "batches": ["mixed"],
        "allocations": ["progressive"],
        "shares": [0.5, 0.6],
        "rows": 12,
        "ample": False,
    }
    result = run_notebook(find_notebook("small_pool"), overrides=chosen, say=lambda _: None)
    shown = shown_on(result.path)
    assert "not run" in shown  # predictions about reserve and the uniform batch stay open
    assert {"computed_of_owned"} == set(result.provenance["numbers"])


def points() -> pd.DataFrame:
    """Made-up runs of two steps: pools of 10 blocks of 4, ten times as large where it is for everybody."""
    rows: list[dict[str, Any]] = []
    for batch in ("mixed", "uniform"):
        for share, rule, num_rows, rate, gap in (
            (1.0, "reserve", 12.0, 4.0, 0.1),
            (0.3, "reserve", 4.0, 2.0, 0.1),
            (0.3, "progressive", 6.0, 2.2, 0.4),
        ):
            common = {"batch": batch, "share": share, "allocation": rule, "num_blocks": 10 if share < 1 else 100, "block_tokens": 4}  # fmt: skip
            again = 30 if rule == "progressive" else 0
            rows.append(
                {
                    "kind": "run",
                    **common,
                    "mean_rows": num_rows,
                    "served_rate": rate,
                    "worst_gap_s": gap,
                    "mean_owned_blocks": 8.0,
                    "mean_used_blocks": 7.0,
                    "mean_cached_tokens": 24.0,
                    "preemptions": again // 10,
                    "recomputed_tokens": again,
                    "prefill_tokens": 70 + again,
                }
            )
            for start, cached in ((0.0, 10), (1.0, 20)):
                rows.append({"kind": "step", **common, "start_s": start, "end_s": start + 1, "rows": 2, "preempted": 0,
                             "owned_blocks": 8, "used_blocks": 6, "cached_tokens": cached})  # fmt: skip
    return pd.DataFrame(rows)


def test_shares_of_the_pool() -> None:
    table = draw.runs(points()).set_index(["batch", "share", "allocation"])
    own = table.loc[("mixed", 0.3, "progressive")]
    assert own["owned_share"] == pytest.approx(0.8)
    assert own["computed_share"] == pytest.approx(0.6)
    assert own["rounding_share"] == pytest.approx(0.1)  # 28 positions in 7 blocks, 24 of them computed
    assert own["computed_of_owned"] == pytest.approx(0.75)
    assert own["recomputed_share"] == pytest.approx(0.3)


def test_layers_of_a_step_are_what_rows_own() -> None:
    own = draw.steps(points(), "uniform", 0.3, "reserve")
    assert list(own["computed"] + own["rounding"] + own["aside"]) == pytest.approx([0.8, 0.8])
    assert list(own["rounding"]) == pytest.approx([0.35, 0.1])


def test_the_share_shown_is_a_small_one() -> None:
    assert draw.nearest_share(points()) == 0.3


def test_the_caption_says_what_the_rule_does_to_the_rows() -> None:
    told = draw.rows_told(points(), 0.3)
    one = "`progressive` runs 50% more rows than `reserve` on the {} batch (6.0 against 4.0 on average), with 3 preemptions"
    assert told == f"{one.format('mixed')}; {one.format('uniform')}"
    alone = points()[lambda rows: rows["allocation"] != "reserve"]
    assert draw.rows_told(alone, 0.3).startswith("`progressive` runs 6.0 rows on the mixed batch; ")
    equal = points()
    equal.loc[equal["allocation"] == "progressive", "mean_rows"] = 4.0
    assert "about as many rows as `reserve`" in draw.rows_told(equal, 0.3)


def test_verdicts_say_held_missed_or_not_run() -> None:
    found = draw.verdicts(points()).set_index("no.")
    assert dict(found["verdict"]) == {
        "1a": "missed",
        "1b": "held",
        "2": "missed",
        "3a": "held",
        "3b": "missed",
        "4a": "held",
        "4b": "missed",
        "5a": "held",
        "5b": "held",
        "6": "held",
    }
    alone = draw.verdicts(points()[lambda rows: rows["allocation"] != "reserve"]).set_index("no.")
    assert list(alone.loc[["1a", "3a", "5b", "6"], "verdict"]) == ["not run"] * 4
    assert alone.loc["4a", "verdict"] == "held"
