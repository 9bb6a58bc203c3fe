"""What the page of the layouts makes of its rows."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from interleave.report.figures import kernel_layout as draw

# Seconds of a call of 64 positions a row: (separate, union, segmented) by rows.
TIMES = {1: (1.0, 1.5, 1.0), 8: (2.0, 4.0, 2.0), 32: (4.0, 40.0, 3.0)}


def lines(
    rows: int, mean: float | None, spread: float | None, chunk: int, factor: float = 1.0
) -> list[dict[str, Any]]:
    found = []
    for repeat, noise in enumerate((1.0, 1.1, 5.0)):
        for layout, seconds in zip(("separate", "union", "segmented"), TIMES[rows], strict=True):
            found.append(
                {
                    "layout": layout,
                    "rows": rows,
                    "mean": mean,
                    "spread": spread,
                    "cached": 64 * rows,
                    "longest": 64,
                    "chunk": chunk,
                    "step_layers": 30,
                    "floor_s": 0.5,
                    "repeat": repeat,
                    "call_s": seconds * noise * factor,
                }
            )
    return found


@pytest.fixture
def points() -> pd.DataFrame:
    rows = lines(32, None, None, 0) + lines(32, None, None, 16)
    for count in TIMES:
        rows += lines(count, 64, 0.0, 0) + lines(count, 64, 0.0, 16)
    return pd.DataFrame(rows + lines(8, 64, 0.9, 0, factor=1.4))


def test_ratios_are_medians_of_neighbouring_calls(points: pd.DataFrame) -> None:
    table = draw.calls(points)
    assert len(table) == 2 + 6 + 1
    mix = table[table["mean"].isna() & (table["chunk"] == 0)].iloc[0]
    assert mix["union"] == pytest.approx(44.0)  # of 40, 44 and 200
    assert mix["union_ratio"] == pytest.approx(10.0)
    assert mix["floor_s"] == 0.5
    low, high = draw.union_band(mix)
    assert low <= mix["union_ratio"] <= high


def test_the_mix_is_set_against_separate_rows_and_the_limit(points: pd.DataFrame) -> None:
    table = draw.mix_table(draw.calls(points), 30)
    assert list(table["layout"]) == ["separate", "union", "segmented"] * 2
    line = table.iloc[2]
    assert line["against separate"] == pytest.approx(0.75)
    assert table["against separate"].iloc[0] == 1.0
    assert line["30 layers [ms]"] == pytest.approx(30 * 3300.0)
    assert line["of the machine's limit"] == pytest.approx(0.5 / 3.3)


def test_the_mix_has_the_ratio_that_other_pages_quote(points: pd.DataFrame) -> None:
    """The median of neighbouring ratios, not the quotient of the two medians of the line."""
    slow = (
        (points["layout"] == "union")
        & (points["repeat"] == 1)
        & points["mean"].isna()
        & (points["chunk"] == 0)
    )
    points.loc[slow, "call_s"] *= 4
    calls = draw.calls(points)
    mix = calls[calls["mean"].isna() & (calls["chunk"] == 0)].iloc[0]
    assert mix["union"] / mix["separate"] == pytest.approx(176 / 4.4)
    shown = draw.mix_table(calls, 30).iloc[1]["against separate"]
    assert shown == mix["union_ratio"] == pytest.approx(10.0)


def test_verdicts_say_held_missed_or_not_run(points: pd.DataFrame) -> None:
    found = draw.verdicts(draw.calls(points)).set_index("no.")
    assert dict(found["verdict"]) == {
        "1": "held",
        "2": "held",
        "3": "held",
        "4": "missed",
        "5a": "held",
        "5b": "held",
        "6": "held",
    }
    fewer = draw.verdicts(draw.calls(points[(points["rows"] == 1) & (points["spread"] == 0.0)])).set_index(
        "no."
    )
    assert list(fewer.loc[["1", "2", "4", "5a"], "verdict"]) == ["not run"] * 4
    assert fewer.loc["6", "verdict"] == "missed"  # one row alone lies below the published ratio only


def test_the_published_ratio_is_read() -> None:
    assert draw.published_ratio() == pytest.approx(5.04, abs=0.005)


def test_figures_draw_every_layout(points: pd.DataFrame) -> None:
    table = draw.calls(points)
    times, ratio = draw.layout_figure(table).axes
    assert [line.get_label() for line in times.lines] == ["separate", "union", "segmented"]
    assert list(ratio.lines[0].get_ydata()) == pytest.approx([1.5, 2.0, 10.0])
    assert [line.get_linestyle() for line in ratio.lines].count(
        ":"
    ) == 1  # the published ratio, as the title says
    assert ":" not in draw.MEAN_LINES
    (axis,) = draw.beside_figure(table).axes
    assert list(axis.lines[1].get_ydata()) == pytest.approx([1.0, 1.0, 0.75])
