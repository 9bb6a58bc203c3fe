"""The step-trace page from tiny weights: the shipped notebook, run for real, and its tables."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pandas as pd
import pytest
from toys.outputs import shown_on

from interleave.report.figures import step_trace as draw
from interleave.report.figures import step_trace_tables as tables
from interleave.report.layout import find_notebook
from interleave.report.runner import run_notebook


def test_the_notebook_becomes_a_page_with_any_choice_of_engines(out: Path) -> None:
    chosen = {"model": "tiny", "rows": [3, 4], "num_requests": 6, "engines": ["continuous", "mixed"]}
    result = run_notebook(find_notebook("step_trace"), overrides=chosen, say=lambda _: None)
    shown = shown_on(result.path)
    assert "not run" in shown  # predictions about engines that were left out stay open
    assert {"worst_gap_ratio", "unaccounted"} == set(result.provenance["numbers"])
    assert "No ceilings were measured" in shown or "both measured on this machine" in shown
    assert "under 2 of the 2 engines" in shown


BATCHED = ("static", "continuous", "paged", "whole", "chunked", "mixed", "recorded")


@pytest.mark.parametrize("engines", [BATCHED, ("recorded",), ("static",)], ids=len)
def test_the_page_says_what_holds_for_the_engines_that_ran(out: Path, engines: tuple[str, ...]) -> None:
    chosen = {"model": "tiny", "rows": [3], "num_requests": 6, "engines": list(engines)}
    result = run_notebook(find_notebook("step_trace"), overrides=chosen, say=lambda _: None)
    notebook = nbformat.read(result.path, as_version=4)
    captions = {
        name: str(cell.outputs)
        for cell in notebook.cells
        for name in ("timeline", "gaps")
        if cell.cell_type == "code" and cell.id == name
    }
    assert f"under {min(4, len(engines))} of the {len(engines)} engines" in captions["timeline"]
    assert ("stands beside" in captions["gaps"]) == (len(engines) > 1)  # of those it is set against
    ratio = result.provenance["numbers"]["worst_gap_ratio"]["value"]
    assert ratio > 1 if len(engines) > 1 else ratio == 1


def points(**gaps_s: list[float]) -> pd.DataFrame:
    """A run of 10 s and two steps per engine, 8 rows, with the given gaps."""
    rows: list[dict[str, object]] = []
    for engine, values in gaps_s.items():
        facts = {"engine": engine, "rows": 8}
        rows.append({**facts, "kind": "run", "wall_s": 10.0})
        for step, (start_s, tokens) in enumerate([(0.0, 16), (6.0, 0)]):
            parts = {f"{part}_s": 0.0 for part in draw.PARTS} | {"prefill_s": 3.0, "host_s": 1.5}
            counts = {"forwards": 2, "prefill_tokens": tokens}
            times = {"step": step, "start_s": start_s, "end_s": start_s + 4.0 - step}
            rows.append({**facts, "kind": "step", **times, **counts, **parts})
        rows += [{**facts, "kind": "gap", "step": 0, "request": "r", "gap_s": gap} for gap in values]
    return pd.DataFrame(rows)


def test_attribution_says_what_no_part_accounts_for() -> None:
    (line,) = tables.attribution(points(chunked=[1.0])).to_dict("records")
    assert (line["wall_s"], line["prefill_s"], line["steps"], line["forwards"]) == (10.0, 6.0, 2, 4)
    assert line["unaccounted"] == pytest.approx(0.1)


def test_a_spike_is_more_than_three_median_gaps_of_its_own_run() -> None:
    both = points(chunked=[1.0, 1.0, 1.0, 3.0, 3.1], whole=[2.0, 2.0, 3.1])
    assert list(draw.spikes(both)["gap_s"]) == [3.1]
    lines = tables.gap_table(both, 8).set_index("engine")
    assert list(lines.columns[-2:]) == ["spikes (above 3 median gaps)", "time in spikes [%]"]
    assert list(lines.loc["chunked"]) == [1000, 3100, 100, 1, pytest.approx(100 * 3.1 / 9.1)]
    assert list(lines[tables.SPIKES]) == [1, 0]


def test_gaps_with_prefill_are_told_from_the_others() -> None:
    """A step of 4 s with prefill from 0 s, one of 3 s without from 6 s."""
    rows = points(chunked=[1.0, 2.5, 8.0], whole=[2.5, 2.5])
    rows.loc[rows["kind"] == "gap", "step"] = [0, 1, 1, 1, 1]  # the gap of 8 s begins before the first step
    found = tables.beside_prefill(rows)
    assert list(found["prefill"]) == [True, False, True, False, False]
    shares = tables.gap_table(rows, 8).set_index("engine")[tables.WITH_PREFILL]
    assert dict(shares) == {"chunked": pytest.approx(200 / 3), "whole": 0}


def test_the_caption_says_where_the_median_gap_itself_holds_prefill() -> None:
    rows = points(chunked=[1.0, 1.0], whole=[2.5, 2.5, 2.5])
    rows.loc[rows["kind"] == "gap", "step"] = [0, 0, 1, 1, 1]
    said = tables.gap_caption(rows, 8)
    assert said.startswith("8 rows: the 2 to 3 gaps of")
    assert "A spike is a gap above 3 median gaps of its run." in said
    assert "Under `chunked` most gaps hold prefill" in said
    rows.loc[rows["kind"] == "gap", "step"] = 1
    assert "most gaps hold prefill" not in tables.gap_caption(rows, 8)


def test_spikes_are_drawn_over_the_bars() -> None:
    """A gap of 8 s that ends with the second step, beside a bar in each step."""
    rows = points(chunked=[1.0, 1.0, 8.0])
    rows.loc[rows["kind"] == "gap", "step"] = [0, 0, 1]
    pieces = [
        {"kind": "piece", "engine": "chunked", "rows": 8, "step": step, "request": "r", "tokens": 1, "phase": "decode"}
        for step in (0, 1)
    ]  # fmt: skip
    figure = draw.timeline_figure(
        pd.concat([rows, pd.DataFrame(pieces)], ignore_index=True), 8, ["chunked"], 1
    )
    (axis,) = figure.axes
    (spike,) = axis.get_lines()
    assert list(spike.get_xdata()) == [1.0, 9.0]
    assert spike.get_zorder() > max(bar.get_zorder() for bar in axis.patches)
    assert figure.legends[0].get_texts()[-1].get_text() == "spike: a gap above 3 median gaps"


def test_rows_that_ended_are_drawn_where_there_are_any() -> None:
    rows = points(static=[1.0], chunked=[1.0])
    pieces = [
        {"kind": "piece", "engine": engine, "rows": 8, "step": 0, "request": "r", "tokens": 1, "phase": phase}
        for engine, phase in (("static", "decode"), ("static", "held"), ("chunked", "decode"))
    ]
    both = pd.concat([rows, pd.DataFrame(pieces)], ignore_index=True)

    def legend(engines: list[str]) -> list[str]:
        return [text.get_text() for text in draw.timeline_figure(both, 8, engines, 1).legends[0].get_texts()]

    assert legend(["static", "chunked"])[:-1] == ["decode", "ended, still computed"]
    assert legend(["chunked"])[:-1] == ["decode"]


def test_the_slowest_engine_goes_on_beyond_the_picture() -> None:
    """Steps end after 4 s and 9 s; the first request of `paged` needs both."""
    rows = points(paged=[1.0], chunked=[1.0])
    common = {"kind": "piece", "rows": 8, "request": "r", "tokens": 1, "phase": "decode"}
    pieces = [{**common, "engine": engine, "step": step} for engine, step in (("paged", 1), ("chunked", 0))]
    both = pd.concat([rows, pd.DataFrame(pieces)], ignore_index=True)
    paged, chunked = draw.timeline_figure(both, 8, ["paged", "chunked"], 1).axes
    assert paged.get_xlim()[1] == chunked.get_xlim()[1] == pytest.approx(4.0 * 1.02)
    assert (paged.get_title(loc="left"), chunked.get_title(loc="left")) == (
        "paged, 8 rows, goes on until 9.0 s",
        "chunked, 8 rows",
    )
    (alone,) = draw.timeline_figure(both, 8, ["paged"], 1).axes
    assert alone.get_xlim()[1] == pytest.approx(9.0 * 1.02)


def test_strips_and_bars_keep_their_distance_however_many_engines_ran() -> None:
    few = points(chunked=[1.0], whole=[1.0])
    many = points(**{engine: [1.0, 2.0] for engine in BATCHED})
    for height in (
        lambda rows: draw.gap_figure(rows).get_figheight(),
        lambda rows: draw.attribution_figure(tables.attribution(rows)).get_figheight(),
    ):
        assert height(many) / len(BATCHED) > 0.4
        assert height(few) > 2


def test_the_worst_gaps_are_those_of_engines_that_left_any() -> None:
    assert draw.worst_gaps_s(points(whole=[1.0, 3.0], chunked=[2.0], mixed=[]), 8) == {
        "whole": 3.0,
        "chunked": 2.0,
    }
    assert draw.worst_gaps_s(points(whole=[1.0]), 32) == {}


def test_steps_with_and_without_prefill_are_told_apart() -> None:
    (line,) = tables.step_table(points(chunked=[1.0]), 8).to_dict("records")
    assert (line["steps"], line[tables.WITH_PREFILL]) == (2, 50)
    assert (line["median with [ms]"], line["median without [ms]"], line["longest [ms]"]) == (4000, 3000, 4000)


def test_the_possible_is_told_apart_by_what_a_step_carries() -> None:
    rows = points(chunked=[1.0], whole=[1.0])
    floors = rows["kind"].map({"run": 5.0}).astype(float)
    floors[rows["kind"] == "step"] = rows["prefill_tokens"].map({16.0: 3.0, 0.0: 1.5})
    known = rows.assign(floor_s=floors)
    first, _ = tables.reached_table(known, 8).to_dict("records")
    assert list(first.values()) == ["chunked", 10.0, 5.0, 50.0, 50.0, 75.0]
    draw.attribution_figure(tables.attribution(known))  # with a bar for the floor
    draw.attribution_figure(tables.attribution(rows))


def test_verdicts_say_held_missed_or_not_run() -> None:
    found = tables.verdicts(points(chunked=[1.0, 2.0], whole=[0.5, 5.0])).set_index("no.")["verdict"]
    assert dict(found) == {
        "1": "missed",  # a tenth of the wall time belongs to no part
        "2": "missed",  # the host takes 30%
        "3a": "held",
        "3b": "not run",
        "4": "missed",
        "5a": "not run",
        "5b": "not run",
        "6": "not run",
    }
