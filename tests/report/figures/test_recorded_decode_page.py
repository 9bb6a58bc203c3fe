"""The page on recorded decode: the shipped notebook run for real on tiny weights, its tables on made-up rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from toys.outputs import shown_on

from interleave.report.figures import published_decode as a10
from interleave.report.figures import published_halves as halves
from interleave.report.figures import recorded_decode as draw
from interleave.report.figures import recorded_decode_tables as tables
from interleave.report.layout import find_notebook
from interleave.report.runner import run_notebook

STEP_S = {"model": {1: (0.010, 0.010), 8: (0.020, 0.019), 32: (0.050, 0.049)},
          "narrow": {1: (0.001, 0.001), 8: (0.001, 0.0009), 32: (0.002, 0.0019)}}  # fmt: skip


@pytest.mark.slow  # a kernel of its own, and some twenty simulations
def test_the_notebook_becomes_a_page(out: Path) -> None:
    chosen: dict[str, Any] = {
        "model": "tiny",
        "rows": [1, 3],
        "context": 20,
        "repeats": 3,
        "served_rows": 3,
        "num_requests": 6,
        "runs": 1,
        "counted_rows": [3],
        "counted_requests": 6,
        "counted_scale": 16,
        "rates": [2.0, 5.0],
        "steps_ms": [20.0],
    }
    result = run_notebook(find_notebook("recorded_decode"), overrides=chosen, say=lambda _: None)
    shown = shown_on(result.path)
    assert "not run" in shown  # predictions about 8 and 32 rows stay open
    marks = {name: one.get("mark") for name, one in result.provenance["numbers"].items()}
    assert marks["peak_shortest_step"] == "simulated"
    assert marks["predicted_low"] == "published-elsewhere"


def points() -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    for weights, by_rows in STEP_S.items():
        for count, pair in by_rows.items():
            for repeat, noise in enumerate((1.0, 1.1, 3.0)):
                for engine, step_s in zip(draw.ENGINES, pair, strict=True):
                    took = step_s * noise
                    parts = {"decode_s": 0.7 * took, "sample_s": 0.2 * took, "host_s": 0.1 * took}
                    parts |= {"pack_s": 0.05 * took if engine == "chunked" else None, "step_s": took}
                    facts = {"context": 130.0, "weight_bytes": 9e7, "kv_bytes": 1e6 * count, "kernels": None}
                    facts |= {"weights_s": 0.005, "kv_s": 1e-4 * count, "floor_s": 0.008 + 2e-4 * count}
                    rows.append({"kind": "step", "weights": weights, "rows": count, "engine": engine, "repeat": repeat} | parts | facts)  # fmt: skip
    for run, speed in enumerate((1.0, 0.9, 1.2)):
        for engine, rate in (("chunked", 2.0), ("recorded", 2.02)):
            rows.append({"kind": "served", "engine": engine, "run": run, "wall_s": 6.0, "served_rate": rate * speed, "step_s": 0.02, "chunk_steps": 0.3, "chunk_time": 0.5})  # fmt: skip
    for count, updates in ((8, 50), (32, 90)):
        rows.append({"kind": "counted", "rows": count, "decode_steps": 300, "updates": updates, "padded_rows": 10, "decoded_rows": 990, "recorded_before": 6, "re_recorded": 18, "buckets": 6})  # fmt: skip
    rows += [{"kind": "part", "part": part, "part_s": seconds} for part, seconds in (("weights", 0.005), ("rows", 0.016), ("wait", 0.0))]  # fmt: skip
    for rate, share in ((1.0, 0.1), (5.0, 0.4)):
        rows.append({"kind": "load", "rate": rate, "served_rate": rate, "chunk_steps": share, "chunk_time": 1.5 * share, "rows": 5 * rate, "padded": 0.1})  # fmt: skip
    for cheaper, step_s, peak in (("nothing", 0.031, 4.0), ("floor", 0.028, 4.0), ("host", 0.015, 5.5), ("host", 0.02, 5.0), ("every part", 0.015, 7.0)):  # fmt: skip
        rows.append({"kind": "change", "cheaper": cheaper, "step_s": step_s, "peak_rate": peak, "rate_at_7": peak - 0.1})  # fmt: skip
    return pd.DataFrame(rows)


def test_ratios_are_medians_of_neighbouring_steps() -> None:
    table = draw.steps(points()).set_index(["weights", "rows"])
    assert len(table) == 6
    assert table.loc[("model", 8), "ratio"] == pytest.approx(0.95)
    assert table.loc[("model", 8), "chunked"] == pytest.approx(0.022)
    assert table.loc[("model", 32), "floor_s"] == pytest.approx(0.0144)
    for line in table.itertuples():
        assert line.ratio_low <= line.ratio <= line.ratio_high
    low, high = tables.served_band(points())
    assert low <= tables.served_ratio(points()) <= high


def test_parts_fill_the_step() -> None:
    table = draw.steps(points())
    line = table[(table["weights"] == "model") & (table["rows"] == 8)].iloc[0]
    for engine in draw.ENGINES:
        assert sum(draw.part_seconds(line, engine).values()) == pytest.approx(line[engine])
    assert draw.part_seconds(line, "recorded")["build the batch"] == 0.0
    assert list(tables.parts_table(table, 8).columns)[1:] == [
        "eager [ms]", "recorded [ms]", "eager, narrow [ms]", "recorded, narrow [ms]",
    ]  # fmt: skip


def test_verdicts_on_a_cpu_leave_the_gpu_open() -> None:
    found = tables.verdicts(points(), on_gpu=False).set_index("no.")["verdict"]
    assert dict(found) == {
        "1a": "held", "1b": "held", "2a": "held", "2b": "held", "3a": "not run", "3b": "not run",
        "4a": "held", "4b": "held", "5a": "held", "5b": "held", "5c": "held", "6": "missed",
        "7a": "held", "7b": "held", "8": "held", "9a": "held", "9b": "held", "9c": "held",
    }  # fmt: skip
    there = tables.verdicts(points(), on_gpu=True).set_index("no.")["verdict"]
    assert {name for name, verdict in there.items() if verdict == "not run"} == {"1a", "1b", "2a", "2b", "4a", "4b", "8"}  # fmt: skip
    assert there["3b"] == "missed"


def test_what_did_not_run_stays_open() -> None:
    fewer = points()
    fewer = fewer[~((fewer["kind"] == "step") & (fewer["rows"] != 1))]
    fewer = fewer[~((fewer["kind"] == "counted") & (fewer["rows"] == 32))]
    fewer = fewer[fewer["cheaper"] != "host"]
    found = tables.verdicts(fewer, on_gpu=False).set_index("no.")["verdict"]
    assert {name for name, verdict in found.items() if verdict == "not run"} == {"2a", "3a", "3b", "4b", "5a", "5b", "5c", "7a"}  # fmt: skip


def test_both_halves_of_the_published_prediction() -> None:
    found = halves.published_verdicts(points(), "cpu")
    assert list(found["verdict"]) == ["missed", "held", "not run", "held"]  # without its floor the step moves
    assert [value and value.mark for value in found["found"]] == [
        "simulated",
        "simulated",
        None,
        "measured-cpu",
    ]
    moved = points()
    moved.loc[(moved["kind"] == "served") & (moved["engine"] == "recorded"), "step_s"] = 0.01
    assert list(halves.published_verdicts(moved, "cuda")["verdict"])[3] == "not run"
    held = points()
    held.loc[held["cheaper"] == "floor", ["step_s", "peak_rate"]] = 0.0309, 4.5
    assert list(halves.published_verdicts(held, "cpu")["verdict"])[2] == "missed"


def test_tables_mark_what_is_simulated() -> None:
    for table in (a10.a10_parts_table, a10.loads_table, a10.changes_table):
        cells = table(points()).iloc[:, 1:].to_numpy().ravel()
        assert {cell.mark for cell in cells} == {"simulated"}
    assert len(a10.a10_parts_table(points())) == 2  # a part of nothing is not listed
    assert tables.counts_table(points())["with lines copied over [%]"].iloc[1] == pytest.approx(30.0)
    assert list(tables.served_table(points())["engine"]) == ["chunked", "recorded"]


def test_figures_draw_what_they_are_given() -> None:
    everything = points()
    table = draw.steps(everything)
    times, ratios = draw.steps_figure(table).axes
    assert [line.get_label() for line in times.lines] == [
        "chunked", "chunked, narrow", "recorded", "recorded, narrow", "floor",
    ]  # fmt: skip
    assert list(ratios.lines[0].get_ydata()) == pytest.approx([1.0, 0.95, 0.98])
    (axis,) = draw.parts_figure(table).axes
    assert [text.get_text() for text in axis.get_yticklabels()][:2] == ["1 rows, chunked", "1 rows, recorded"]
    (axis,) = a10.loads_figure(everything).axes
    assert list(axis.lines[1].get_ydata()) == pytest.approx([15.0, 60.0])
    (axis,) = a10.changes_figure(everything).axes
    assert list(axis.lines[0].get_ydata()) == pytest.approx([5.5, 5.0, 4.0])
    today = {line.get_label(): (*line.get_xdata(), *line.get_ydata()) for line in axis.lines[2:]}
    assert today == {"nothing, simulated": pytest.approx((31.0, 4.0)), "nothing, published": (31.0, 4.08)}
