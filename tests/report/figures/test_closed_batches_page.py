"""The closed-batches page from tiny weights: the shipped notebook, run for real, and its tables."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from toys.outputs import shown_on

from interleave.report.figures import closed_batches as draw
from interleave.report.layout import find_notebook
from interleave.report.runner import run_notebook


def test_the_notebook_becomes_a_page_with_any_choice_of_engines(out: Path) -> None:
    chosen = {
        "model": "tiny",
        "rows": [3],
        "engines": ["paged", "chunked"],
        "recorded_runs": 2,
        "warmup_runs": 0,
    }
    result = run_notebook(find_notebook("closed_batches"), overrides=chosen, say=lambda _: None)
    shown = shown_on(result.path)
    assert "All engines returned the same tokens" in shown
    assert "not run" in shown  # predictions about engines that were left out stay open
    numbers = result.provenance["numbers"]
    assert {numbers["fastest_engine"]["value"], numbers["slowest_engine"]["value"]} == {"paged", "chunked"}
    found = numbers["paged_over_chunked"]
    assert 0 < found["low"] <= found["value"] <= found["high"]
    assert numbers["repeat_spread"]["unit"] == "%"
    assert "The runs of one engine on one batch lie up to" in shown
    assert "chunked after paged" in shown
    assert "copy_share" in numbers


def test_the_notebook_becomes_a_page_of_one_engine_that_ran_once(out: Path) -> None:
    """Nothing to compare, no copies and no repeats: numbers of these are left out, and the page says so."""
    chosen = {
        "model": "tiny",
        "rows": [2, 3],
        "batches": ["uniform"],
        "engines": ["mixed"],
        "recorded_runs": 1,
        "warmup_runs": 0,
    }
    result = run_notebook(find_notebook("closed_batches"), overrides=chosen, say=lambda _: None)
    shown = shown_on(result.path)
    assert "Nothing was served twice" in shown
    assert not {"repeat_spread", "copy_share"} & set(result.provenance["numbers"])


def rows(**seconds: list[float]) -> pd.DataFrame:
    """Runs of engines on mixed8, each with the given wall times, all else alike."""
    return pd.DataFrame(
        {
            "batch": "mixed",
            "rows": 8,
            "engine": engine,
            "run": run,
            "wall_s": wall,
            "copied_tokens": 100 if engine == "paged" else 0,
            "kv_bytes_per_token": 2**20,
            "copy_bytes_per_s": 200.0 * 2**20,
            "copy_s": 2.0,
            "worst_gap_s": 1.0,
            "peak_transient_bytes": 2.0**20,
            **{f"{part}_s": wall / 10 for part in draw.PARTS if part != "copy"},
        }
        for engine, walls in seconds.items()
        for run, wall in enumerate(walls)
    )


def test_medians_keep_the_range_and_the_order() -> None:
    table = draw.medians(rows(paged=[10.0, 12.0, 50.0], chunked=[6.0]))
    assert list(table["engine"]) == ["paged", "chunked"]
    assert list(table["batch"]) == ["mixed8", "mixed8"]
    assert list(table.iloc[0][["wall_s", "wall_low", "wall_high", "num_runs"]]) == [12.0, 10.0, 50.0, 3]
    assert draw.ratio(table, "mixed8", "paged", "chunked") == 2.0
    assert draw.ratio(table, "mixed8", "static", "chunked") is None
    assert draw.wall_band(table, "mixed8", "paged") == (10.0, 50.0)


def test_the_range_of_a_ratio_is_what_single_runs_could_give() -> None:
    table = draw.medians(rows(paged=[10.0, 12.0], chunked=[4.0, 5.0]))
    assert draw.ratio_band(table, "mixed8", "paged", "chunked") == (2.0, 3.0)


def test_a_peak_that_no_system_told_stays_a_column() -> None:
    unknown = rows(paged=[10.0], chunked=[6.0]).assign(peak_transient_bytes=None)
    assert draw.medians(unknown)["peak_transient_bytes"].isna().all()


def test_the_copy_is_set_against_its_bytes() -> None:
    (line,) = draw.copy_table(draw.medians(rows(paged=[10.0], chunked=[6.0]))).to_dict("records")
    assert line["copied [MiB]"] == 100
    assert line["at copy bandwidth [ms]"] == pytest.approx(500)
    assert line["measured [ms]"] == 2000
    assert line["share of wall [%]"] == 20


def test_verdicts_say_held_missed_or_not_run() -> None:
    found = draw.verdicts(draw.medians(rows(paged=[10.0], whole=[5.0], chunked=[6.0]))).set_index("no.")
    assert found.loc["1", "verdict"] == "held"  # 0.5 is at most two thirds
    assert found.loc["2", "verdict"] == "held"  # 1.2
    assert found.loc["4a", "verdict"] == "missed"  # 20% is not below 1%
    assert found.loc["7", "verdict"] == "not run"
    assert found.loc["3", "verdict"] == "not run"
    assert found.loc["8a", "verdict"] == "not run"


def test_a_prediction_about_a_cpu_is_left_open_elsewhere() -> None:
    table = draw.medians(rows(whole=[5.0], chunked=[6.0], recorded=[6.4]))
    here, elsewhere = (draw.verdicts(table, device).set_index("no.") for device in ("cpu", "cuda"))
    assert here.loc["8a", "verdict"] == "missed"  # 6.7% longer
    assert here.loc["8b", "verdict"] == "not run"  # no uniform batch
    assert here.loc["2", "verdict"] == "held"
    assert list(elsewhere.loc[["2", "8a", "8b"], "verdict"]) == ["not run"] * 3


def test_the_range_of_the_copies_share_is_that_of_single_runs() -> None:
    assert draw.copy_band(rows(paged=[10.0, 20.0], chunked=[4.0]), "mixed8") == (10.0, 20.0)


def test_the_fraction_of_the_possible_is_shown_where_it_is_known() -> None:
    """A table of at most six columns either way; an engine measured without a floor has a dash."""
    known = rows(paged=[10.0], chunked=[6.0]).assign(decode_rate=1.0, ttft_p50_s=1.0, floor_s=3.0)
    known.loc[known["engine"] == "paged", "floor_s"] = None
    table = draw.engine_table(draw.medians(known), "mixed8").set_index("engine")
    assert table.loc["chunked", "of the possible [%]"] == 50
    assert pd.isna(table.loc["paged", "of the possible [%]"])
    assert len(table.columns) + 1 <= 6
    for unknown in (known.assign(floor_s=None), known.drop(columns="floor_s")):
        assert "of the possible [%]" not in draw.engine_table(draw.medians(unknown), "mixed8")
    assert list(draw.memory_table(draw.medians(known), "mixed8")["peak transient [MiB]"]) == [1.0, 1.0]
