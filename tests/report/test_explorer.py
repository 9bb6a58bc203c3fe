"""The explorer's data: the grid as it is stored, where the page begins, and the numbers of its prose."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from toys.booklet import ROOT, say_it_was_made_by

from interleave.lab.sweep import read_sweep
from interleave.report.drawings import drawings
from interleave.report.explorer import at, explorer_values, listed, picture, start
from interleave.report.figures.explorer import explorer_alt, shown_loads
from interleave.report.simulated import EXPLORER, SIMULATED, TIMELINE, simulation_states

GRID = read_sweep(ROOT / "data/results/simulated/explorer.json")


def test_the_page_gets_every_point_and_no_provenance() -> None:
    drawn = picture(GRID)
    assert drawn["rows"] == GRID["rows"]
    assert set(drawn) == {"limits", "axes", "start", "columns", "rows"}


def test_it_begins_on_the_grid_whatever_the_grid() -> None:
    assert start(GRID) == {"policy": "chunked", "chunk_budget": 512, "long_share": 0.4, "load": 0.85}
    axes: dict[str, Any] = {
        "policies": ["whole"],
        "chunk_budgets": [64],
        "loads": [0.5, 1.0],
        "long_shares": [0.0],
    }
    assert start({"axes": axes}) == {"policy": "whole", "chunk_budget": 64, "long_share": 0.0, "load": 1.0}


def test_prose_quotes_the_grid() -> None:
    values = explorer_values(GRID, "the grid")
    whole = at(GRID, "whole", load=0.85, long_share=0.4).iloc[0]
    assert values["explorer.gap_whole"].text == f"{whole['gap_max_s']:.1f} s"
    assert values["explorer.gap_whole"].mark == "simulated"
    assert values["explorer.points"].text == str(len(GRID["rows"]))
    assert values["explorer.points"].mark is None


def test_what_the_page_says_in_words_is_so() -> None:
    """Small budgets keep gaps short and stop keeping up; large ones let the gaps grow."""
    here = at(GRID, "chunked", load=0.85, long_share=0.4).sort_values("chunk_budget")
    assert here["gap_max_s"].is_monotonic_increasing
    assert here["ttft_p90_s"].iloc[0] > 10 * here["ttft_p90_s"].median()
    assert here["served_rate"].iloc[0] < 0.9 * here["rate"].iloc[0]
    assert "0.5 and 0.85 and 1" in explorer_alt(GRID)
    assert shown_loads(GRID) == [0.5, 0.85, 1.0]


@pytest.mark.parametrize(
    ("numbers", "text"), [([16], "16"), ([16, 1024], "16 or 1,024"), ([1, 2, 3], "1, 2 or 3")]
)
def test_lists_are_read_aloud(numbers: list[int], text: str) -> None:
    assert listed(numbers) == text


def test_a_checkout_without_results_has_no_drawing(tmp_path: Any) -> None:
    assert drawings(tmp_path, [], tmp_path) == []
    assert [drawing.name for drawing in drawings(ROOT, [], ROOT)] == ["explorer", "timeline"]


def test_a_simulation_is_stale_once_other_code_made_it(tmp_path: Path) -> None:
    """Its drawing knows what makes it anew; one that is no such document is at fault."""
    assert simulation_states(tmp_path) == []
    shutil.copytree(ROOT / SIMULATED, tmp_path / SIMULATED)
    for simulation in (EXPLORER, TIMELINE):
        say_it_was_made_by(tmp_path, simulation, simulation.code())
    assert [state.state for state in simulation_states(tmp_path)] == ["fresh", "fresh"]
    assert [drawing.stale for drawing in drawings(tmp_path, [], tmp_path)] == [None, None]
    for simulation in (EXPLORER, TIMELINE):
        say_it_was_made_by(tmp_path, simulation, "0" * 64)
        stale = {state.name: str(state) for state in simulation_states(tmp_path) if state.state == "stale"}
        assert simulation.command in stale[simulation.name]
        assert all(state.acceptable for state in simulation_states(tmp_path))
    assert [drawing.stale for drawing in drawings(tmp_path, [], tmp_path)] == [
        "interleave simulate sweep --json data/results/simulated/explorer.json",
        "interleave simulate timeline --json data/results/simulated/timeline.json",
    ]
    (tmp_path / EXPLORER.path).write_text("{}")
    broken = simulation_states(tmp_path)[0]
    assert (broken.state, broken.acceptable) == ("broken", False)
    assert "explorer.json: not a sweep" in str(broken)
