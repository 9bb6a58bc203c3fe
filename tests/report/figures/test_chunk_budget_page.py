"""The chunk-budget page from tiny weights: the shipped notebook, run for real, and its tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from toys.outputs import shown_on

from interleave.report.figures import chunk_budget as draw
from interleave.report.layout import find_notebook
from interleave.report.runner import run_notebook


def test_the_notebook_becomes_a_page_with_any_choice(out: Path) -> None:
    chosen: dict[str, Any] = {
        "model": "tiny",
        "engines": ["mixed"],
        "budgets": [128, 512],
        "decode_steps": [1.5, 2],
        "rows": 3,
        "num_requests": 6,
        "step_tokens": [2, 8],
        "repeats": 1,
    }
    result = run_notebook(find_notebook("chunk_budget"), overrides=chosen, say=lambda _: None)
    shown = shown_on(result.path)
    assert "not run" in shown  # predictions about chunked stay open
    assert {"knee", "pieces_24"} == set(result.provenance["numbers"])


def points() -> pd.DataFrame:
    """Made-up runs: chunked and mixed at three budgets, a step curve with its knee at 8, four cuts."""
    rows: list[dict[str, Any]] = []
    for engine, gain in (("chunked", 1.0), ("mixed", 1.2)):
        for budget, rate, gap in ((8, 1.0, 0.1), (16, 1.5, 0.2), (32, 1.6, 0.5)):
            measured = {"served_rate": rate * gain, "worst_gap_s": gap, "gap_p50_s": 0.05, "ttft_p50_s": 1.0}
            rows.append(
                {"kind": "serve", "engine": engine, "budget": budget, "prefill_long_s": 1.0, **measured}
            )
    for steps, rate, gap in ((3.0, 1.8, 0.3), (2.0, 1.7, 0.3)):
        kept = {"decode_steps": steps, "target_s": steps / 10, "chunk_p50": 4.0, "late_share": 0.05}
        measured = {"served_rate": rate, "worst_gap_s": gap, "budget": 32, "prefill_long_s": 1.0}
        rows.append({"kind": "target", "engine": "mixed", **kept, **measured})
    for tokens, seconds in ((1, 1.0), (2, 1.0), (4, 1.1), (8, 1.2), (16, 2.0)):
        rows += [
            {"kind": "step", "tokens": tokens, "prefill_s": seconds * noise, "repeat": repeat}
            for repeat, noise in enumerate((1.0, 0.9, 3.0))
        ]
    for steps, seconds in ((1, 1.0), (2, 1.1), (6, 1.2), (24, 3.0)):
        rows += [
            {
                "kind": "passes",
                "tokens": 96,
                "chunk": 96 // steps,
                "steps": steps,
                "prefill_s": seconds * noise,
            }
            for noise in (0.8, 1.0, 1.25)
        ]
    return pd.DataFrame(rows)


def test_the_knee_is_where_positions_stop_being_free() -> None:
    curve = draw.step_curve(points()).set_index("tokens")
    assert curve.loc[16, "median"] == 2.0  # of 2.0, 1.8 and 6.0
    assert draw.knee(draw.step_curve(points())) == 8  # 0.15 s a position against 0.125 at 16


def test_pieces_are_set_against_one() -> None:
    table = draw.pieces_table(points())
    assert list(table["pieces"]) == ["1 x 96", "2 x 48", "6 x 16", "24 x 4"]
    assert list(table["against one piece"]) == pytest.approx([1.0, 1.1, 1.2, 3.0])
    assert list(table["re-read [positions]"]) == [0, 48, 240, 1104]


def test_numbers_carry_what_single_repeats_would_say() -> None:
    ratio, (low, high) = draw.most_pieces(points())
    assert ratio == pytest.approx(3.0)
    assert (low, high) == pytest.approx((3.0 * 0.8 / 1.25, 3.0 * 1.25 / 0.8))
    rows = points()
    assert draw.knee_band(rows) == (8.0, 8.0)  # every repeat has the same shape
    flat = rows["kind"].eq("step") & rows["repeat"].eq(1)
    assert draw.knee_band(rows.assign(prefill_s=rows["prefill_s"].mask(flat, rows["tokens"] * 1.0))) == (
        1.0,
        8.0,
    )


def test_the_possible_stands_beside_every_time() -> None:
    """The floor of a forward on its curve, of a run beside its budget, of a prompt beside its pieces."""
    rows = points().assign(wall_s=10.0)
    floors = rows["kind"].map({"serve": 6.0, "step": 0.5, "passes": 0.9})
    known = rows.assign(floor_s=floors)
    assert set(draw.step_curve(known)["floor_s"]) == {0.5}
    assert set(draw.reached_table(known)["of the possible [%]"]) == {60.0}
    assert list(draw.pieces_table(known)["of the possible [%]"])[::3] == pytest.approx([90, 30])
    draw.step_figure(known)
    assert "floor_s" not in draw.step_curve(rows)
    assert "of the possible [%]" not in draw.pieces_table(rows)


def test_verdicts_say_held_missed_or_not_run() -> None:
    found = draw.verdicts(points(), usual=32).set_index("no.")
    assert found.loc["2", "measured"] == pytest.approx(0.5 - 1 / 15)
    assert dict(found["verdict"]) == {
        "1a": "held",
        "1b": "held",
        "2": "held",
        "3a": "held",
        "3b": "missed",
        "4a": "held",
        "4b": "held",
        "5a": "held",
        "5b": "missed",
        "6a": "held",
        "6b": "missed",
        "6c": "held",
    }
    alone = draw.verdicts(points()[lambda rows: rows["engine"] != "mixed"], usual=32).set_index("no.")
    assert list(alone.loc[["5a", "5b", "6a", "6b", "6c"], "verdict"]) == ["not run"] * 5


def test_a_target_is_held_to_budgets_with_the_same_worst_gap() -> None:
    low, high = draw.against_budgets(points()) or (0.0, 0.0)
    share = np.log(0.3 / 0.2) / np.log(0.5 / 0.2)  # both targets lie between 1.8 and 1.92 requests/s
    between = 1.8 + share * 0.12
    assert (low, high) == pytest.approx((1.7 / between, 1.8 / between))
    far = points()
    far.loc[far["kind"] == "target", "worst_gap_s"] = 9.0
    assert draw.against_budgets(far) is None


def test_targets_stand_beside_budgets_and_in_no_curve_of_them() -> None:
    rows = points()
    assert set(draw.served(rows)["kind"]) == {"serve"}
    table = draw.target_table(rows)
    assert list(table["target [decode steps]"]) == [2.0, 3.0]
    assert list(table["gaps beyond it [%]"]) == [5.0, 5.0]
    shown = [text.get_text() for text in draw.frontier_figure(rows).axes[0].texts]
    assert {"2x", "3x", "8", "16", "32"} == set(shown)
    assert draw.target_table(rows[rows["kind"] != "target"]).empty
