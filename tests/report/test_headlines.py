"""The front page's numbers, from made-up points: what they say, and that the front page asks for nothing else."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from nbformat.v4 import new_notebook
from toys.booklet import ROOT
from toys.peers import document
from toys.records import FOUND

from interleave.lab.results import PointStore
from interleave.report.drawings import drawings, stored_timelines, timeline_drawing
from interleave.report.headlines import arrival_headlines, batch_headlines, headlines
from interleave.report.marks import Value
from interleave.report.peer_values import StoredComparison, peer_values
from interleave.report.runs import Page, Run
from interleave.report.tested_tables import record_values
from interleave.report.values import reported_values, trace_values

LADDER = ("static", "continuous", "paged", "whole", "chunked", "mixed", "recorded")
ENGINES = {"paged": 4.0, "whole": 2.0, "chunked": 1.0, "mixed": 1.0}


def arrivals(engines: dict[str, float] = ENGINES) -> list[dict[str, Any]]:
    """Two requests per engine and load; stalls in the given proportions, rates the other way round."""
    return [
        {
            "kind": "measured",
            "engine": engine,
            "load": load,
            "seed": 0,
            "rate": load,
            "run_served_rate": min(load, 1.0) * 2 / share,
            "run_gap_p50_s": 0.02,
            "run_worst_gap_s": 0.05 * share,
            "ttft_s": prompt / 100 / share,
            "tpot_s": 0.03 / share,
            "queue_wait_s": 0.0,
            "prompt_tokens": prompt,
        }
        for engine, share in engines.items()
        for load in (0.5, 0.85, 1.2)
        for prompt in (16, 512)
    ]


def batches(engines: dict[str, float] = ENGINES) -> list[dict[str, Any]]:
    """Three runs of each engine on two batches; memory in the given proportions, equal wall times."""
    return [
        {
            "batch": batch,
            "rows": 8,
            "engine": engine,
            "run": run,
            "wall_s": 2.0 + run,
            "peak_transient_bytes": share * 2**20,
        }
        for engine, share in engines.items()
        for batch in ("mixed", "uniform")
        for run in range(3)
    ]


def test_arrivals_are_told_as_times_and_comparisons() -> None:
    said = arrival_headlines(pd.DataFrame(arrivals()))
    assert said.settings == {
        "near_load": "85%",
        "high_load": "120%",
        "low_load": "50%",
        "longest": "512 tokens",
    }
    told = said.measured
    assert (told["stall_chunked"], told["stall_paged"]) == ("50 ms", "200 ms")
    assert told["stall_change_paged"] == "4.0 times shorter"
    assert told["stall_change_whole"] == "2.0 times shorter"
    assert told["stall_change_mixed"] == "about the same"
    assert told["ttft_long_change_whole"] == "2.0 times longer"
    assert told["served_high_chunked"] == "2.00 requests/s"
    assert (told["usual_tpot_chunked"], told["usual_tpot_whole"]) == ("30 ms", "15 ms")
    assert told["usual_tpot_change_whole"] == "2.0 times longer"
    assert told["usual_ttft_chunked"] == "2.6 s"  # the median of 0.16 and 5.12


def test_batches_are_told_as_times_and_comparisons() -> None:
    said = batch_headlines(pd.DataFrame(batches()))
    assert said.settings == {"mixed_requests": "8", "uniform_requests": "8"}
    told = said.measured
    assert told["wall_mixed_chunked"] == "3.0 s"
    assert told["wall_uniform_change_paged"] == "about the same"
    assert told["memory_paged"] == "4.0 MiB"
    assert told["memory_change_paged"] == "4.0 times less"


def test_what_a_run_lacks_is_left_out() -> None:
    others = {"paged": 4.0, "whole": 2.0}
    assert not any(
        "chunked" in name or "change" in name
        for name in arrival_headlines(pd.DataFrame(arrivals(others))).measured
    )
    lone = batch_headlines(pd.DataFrame([row for row in batches(others) if row["batch"] == "mixed"]))
    assert not any("uniform" in name for name in {**lone.settings, **lone.measured})
    no_memory = [{**row, "peak_transient_bytes": None} for row in batches()]
    assert not any("memory" in name for name in batch_headlines(pd.DataFrame(no_memory)).measured)


def test_the_front_page_asks_only_for_what_there_can_be() -> None:
    """A misspelt condition would hide its sentence for good."""
    known = {*trace_values(), *reported_values()}
    for experiment, said in (
        ("arrival_curves", arrival_headlines(pd.DataFrame(arrivals()))),
        ("closed_batches", batch_headlines(pd.DataFrame(batches(dict.fromkeys(LADDER, 1.0))))),
    ):
        known |= {f"{experiment}.{name}" for name in {**said.settings, **said.measured}}
    known |= {"arrival_curves", "closed_batches", "status.pages"}
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        glued = re.findall(r'run\.glue\(\\"(\w+)\\"', notebook.read_text("utf8"))
        known |= {f"{notebook.stem.partition('_')[2]}.{name}" for name in glued}
    known |= {name for drawing in drawings(ROOT, [], ROOT) for name in drawing.values}
    (line,) = stored_timelines(ROOT, [], ROOT)
    measured = timeline_drawing(replace(line, mark="measured-cpu"))
    known |= measured.values.keys() if measured else set()
    target = {"tpot_target_s": 0.12, "decode_step_s": 0.03, "num_steps": 1200, "rms_error": 0.031}
    checks = {"ours": [[1]], "openvino": [[1]], "vllm": [[2]]}
    for changes in ({"checks": checks}, {"machine": None}, {"target": target}):
        known |= peer_values(StoredComparison(document(code="another", **changes), "data")).keys()
    records = {name: {"date": "2026-12-01T02:27:04Z", **found} for name, found in FOUND.items()}
    known |= {*record_values(records, ROOT), "tested.gpu", "repeated.count", "repeated.changed"}
    for page in sorted((ROOT / "book").glob("*.md")):
        text = page.read_text()
        asked = {name for names in re.findall(r"measured\} (.*)", text) for name in names.split()}
        asked |= set(re.findall(r"\{value\}`(.*?)`", text))
        assert asked <= known, f"{page.name}: {sorted(asked - known)}"


@pytest.mark.parametrize("missing", [False, True])
def test_exactly_the_points_of_the_page_are_read(tmp_path: Path, missing: bool) -> None:
    store = PointStore(tmp_path / "_build" / "results", "quick", "closed_batches")
    for key, factor in (("a" * 16, 1.0), ("b" * 16, 100.0)):
        rows = [{**row, "wall_s": row["wall_s"] * factor} for row in batches()]
        store.save(key, rows, {"device": "a CPU"})
    keys = ["a" * 16, *(["c" * 16] if missing else [])]
    notebook = new_notebook(metadata={"interleave": {"point_keys": keys}})
    page = Page(
        Run("05_closed_batches", "closed_batches", "Closed batches"), "quick", tmp_path / "x", notebook
    )
    told = headlines(page, tmp_path)
    if missing:
        assert told == {}
    else:
        source = "_build/results/quick/closed_batches"
        assert told["wall_mixed_chunked"] == Value("3.0 s", "measured-cpu", source)
        assert told["mixed_requests"] == Value("8", None, source)
