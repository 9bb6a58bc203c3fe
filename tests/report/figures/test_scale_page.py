"""The page on scale: the shipped notebook, run for real with few requests, and its tables on made-up rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from toys.outputs import shown_on

from interleave.lab.experiments.scale import AGENT_WAYS
from interleave.lab.ways_to_serve import WAYS
from interleave.report.figures import scale as draw
from interleave.report.figures import scale_splits as apart
from interleave.report.figures import scale_tables as tables
from interleave.report.layout import find_notebook
from interleave.report.runner import run_notebook


@pytest.mark.slow  # simulates five bisections, in a kernel of its own
def test_the_notebook_becomes_a_page(out: Path) -> None:
    chosen: dict[str, Any] = {
        "cost_requests": [100, 300],
        "replicas": [1, 2],
        "routings": ["round_robin", "least_loaded"],
        "machines": 2,
        "apart_loads": [0.6],
        "rows": [16],
        "num_requests": 200,
        "budgets": [256],
        "targets_s": [0.06],
        "agent_tokens": [8192],
    }
    result = run_notebook(find_notebook("scale"), overrides=chosen, say=lambda _: None)
    shown = shown_on(result.path)
    assert "not run" in shown  # predictions about four machines stay open
    numbers = result.provenance["numbers"]
    assert {name for name, one in numbers.items() if one.get("mark") == "measured-cpu"} == {
        "cost_requests",
        "cost_seconds",
        "requests_per_s",
    }


def points() -> pd.DataFrame:
    """Made-up runs of each kind: four machines, splits at two loads, budgets, capacities."""
    rows: list[dict[str, Any]] = [
        {"kind": "cost", "requests": number, "requests_per_s": speed, "peak_mib": 50.0}
        for number, speed in ((1000, 10_000.0), (100_000, 8_000.0))
    ]
    for machines, routing, first in ((1, "round_robin", 0.6), (4, "round_robin", 0.5), (4, "shortest_queue", 0.45), (4, "least_loaded", 0.3)):  # fmt: skip
        served = {"served_rate": 3.0 * machines, "ttft_p50_s": 0.1, "ttft_p90_s": first, "worst_gap_s": 0.08}
        rows.append({"kind": "fleet", "machines": machines, "routing": routing} | served)
    for load in (0.5, 0.85):
        for prefill, saturated, gap in ((0, 16.0, 0.07), (1, 12.0, 0.03), (2, 13.0, 0.04)):
            for gbps in (100.0, 10.0) if prefill else (100.0,):
                found = {"saturated_rate": saturated, "served_rate": 8.0, "ttft_p90_s": 0.5, "gap_p50_s": 0.03, "gap_p99_s": gap, "longest_gap_p50_s": 0.05 * (3 if gbps == 10.0 else 1), "worst_gap_s": 1.0, "busy_least": 0.3, "busy_most": 0.9}  # fmt: skip
                rows.append({"kind": "apart", "machines": 4, "prefill_machines": prefill, "rows": 32, "gbps": gbps, "load": load, "rate": 25.0 * load} | found)  # fmt: skip
        rows.append({**rows[-1], "prefill_machines": 0, "rows": 64, "gbps": 100.0, "saturated_rate": 20.0})
    for budget, target, gap, first, rate in ((256, None, 0.05, 0.8, 3.0), (512, None, 0.08, 0.6, 3.0), (512, 0.05, 0.052, 0.7, 3.0)):  # fmt: skip
        rows.append({"kind": "budget", "budget": budget, "target_s": target, "worst_gap_s": gap, "ttft_p90_s": first, "served_rate": rate})  # fmt: skip
    for engine, machines, prefill, rate in (("whole", 1, 0, None), ("chunked", 1, 0, 3.0), ("chunked", 4, 0, 13.0), ("chunked", 4, 2, 9.0)):  # fmt: skip
        rows.append({"kind": "capacity", "engine": engine, "machines": machines, "prefill_machines": prefill, "rate": rate, "saturated_rate": 4.0 * machines})  # fmt: skip
    for number, way in enumerate(WAYS):
        rows.append({"kind": "way", "way": way, "saturated_rate": 4.0 + number, "served_rate": 4.0, "ttft_p90_s": 1.0, "gap_p99_s": 0.1, "worst_gap_s": 1.0 - 0.1 * number})  # fmt: skip
        for tokens in (16_384, 32_768) if way in AGENT_WAYS else ():
            rows.append({"kind": "agent", "way": way, "agent_tokens": tokens, "agent_ttft_p50_s": 2.0 + number, "other_ttft_p90_s": 1.0, "gap_p99_s": 0.1, "worst_gap_s": 12.0 if way == "whole" else 1.0, "outside_share": 0.1})  # fmt: skip
    return pd.DataFrame(rows)


def test_chunking_everywhere_stands_beside_the_splits() -> None:
    assert apart.split_names(apart.splits(points())) == ["4 chunking", "1+3", "2+2"]
    table = apart.apart_table(points(), 0.85)
    assert list(table["saturated [requests/s]"]) == [16.0, 12.0, 13.0, 20.0]
    assert list(table["machines, rows of each"]) == ["4 chunking, 32", "1+3, 32", "2+2, 32", "4 chunking, 64"]
    assert list(apart.links_table(points(), 0.5)["link [Gb/s]"]) == [10, 100, 10, 100]


def test_the_gap_that_holds_a_transfer_shows_beside_the_percentile() -> None:
    """The split that is calmest over all gaps need not be the one whose requests wait least for a transfer."""
    rows = points()
    one, chunking = rows["prefill_machines"] == 1, rows["prefill_machines"] == 0
    rows.loc[one, "longest_gap_p50_s"] = 0.3
    rows.loc[chunking, ["longest_gap_p50_s", "worst_gap_s"]] = 0.1
    found = apart.calm(rows)
    assert dict(found["machines"]) == {"gap_p99_s": "1+3", "longest_gap_p50_s": "2+2", "worst_gap_s": "1+3"}
    assert list(found["ratio"]) == pytest.approx([0.03 / 0.07, 0.5, 10.0])
    shown = apart.apart_table(rows, 0.85)["longest gap, median request [ms]"]
    assert list(shown) == pytest.approx([100, 300, 50, 100])


def test_a_split_that_cannot_serve_what_arrives_is_named() -> None:
    assert apart.past_capacity(points(), 0.5) == ["1+3"]  # 12.5 arrive, 12 are served
    assert apart.past_capacity(points(), 0.85) == ["4 chunking", "1+3", "2+2"]


def test_a_target_that_wins_twice_is_named() -> None:
    assert tables.better_targets(points()) == []  # 256: a shorter gap; 512: earlier first tokens
    rows = points()
    rows.loc[rows["target_s"].notna(), "ttft_p90_s"] = 0.55
    ((target, fixed),) = tables.better_targets(rows)
    assert (target["target_s"], fixed["budget"]) == (0.05, 512)


def test_a_target_is_compared_with_the_budget_of_the_same_gap() -> None:
    ((target, fixed),) = tables.same_gap(points())
    assert (target["target_s"], fixed["budget"]) == (0.05, 256)
    nobody = points()
    nobody.loc[nobody["target_s"].notna(), "worst_gap_s"] = 0.065
    assert tables.same_gap(nobody) == []


def test_ways_and_agents_have_a_line_each() -> None:
    assert list(tables.ways_table(points())["way"]) == list(WAYS)
    assert list(tables.agents_table(points())["agent's prompt [tokens]"]) == [16_384, 32_768] * len(
        AGENT_WAYS
    )


def test_a_rate_that_nothing_keeps_is_missing() -> None:
    table = tables.capacities(points()).set_index("name")
    assert list(table.index) == ["1 x whole", "1 x chunked", "4 x chunked", "2+2 apart"]
    assert pd.isna(table.loc["1 x whole", "rate"])
    assert table.loc["2+2 apart", "per_machine"] == 2.25


def test_verdicts() -> None:
    found = tables.verdicts(points()).set_index("no.")
    assert found.loc["4", "measured"] == pytest.approx(0.03 / 0.07)
    assert found.loc["5b", "measured"] == pytest.approx(3.0)
    assert found.loc["8a", "measured"] == pytest.approx(0.7 / 0.6)
    assert dict(found["verdict"]) == {
        "1": "held",
        "2a": "held",
        "2b": "held",
        "3": "held",
        "4": "held",
        "5a": "held",
        "5b": "missed",
        "6a": "not run",
        "6b": "held",
        "7a": "held",
        "7b": "held",
        "8a": "missed",
        "8b": "held",
        "8c": "held",
        "9a": "held",
        "9b": "held",
    }


def test_each_length_of_agents_prompts_is_written_once() -> None:
    (axis,) = draw.agents_figure(points()).axes
    assert sorted(text.get_text() for text in axis.texts) == ["16,384 tokens", "32,768 tokens"]


def test_gaps_over_the_splits_are_drawn_by_both_measures() -> None:
    titles = [axis.get_title(loc="left") for axis in draw.apart_figure(points()).axes]
    assert titles[2:] == [
        "Time between two tokens, 99th percentile",
        "Longest time between two tokens of the median request",
    ]


@pytest.mark.parametrize(
    "figure",
    [draw.cost_figure, draw.fleet_figure, draw.apart_figure, draw.budget_figure, draw.agents_figure],
)
def test_figures_draw_every_panel(figure: Any) -> None:
    drawn = figure(points())
    drawn.canvas.draw()
    assert all(axis.has_data() for axis in drawn.axes)
