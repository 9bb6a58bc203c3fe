"""The published experiment: what the fit may see, how rows are scored, what is met."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from interleave.lab.plan_features import FEATURES, Features
from interleave.lab.published import compare_rows, error_of, published_document, published_lines
from interleave.lab.published_calibration import calibrate, observations, seen
from interleave.lab.published_runs import SMALL_POOL_BLOCKS, SPEAKS, WORDS, PublishedRuns
from interleave.lab.published_unmeasured import unmeasured
from interleave.lab.reference import Published, load_published
from interleave.lab.request_table import COLUMNS
from interleave.lab.simulator import Served, simulate_table
from interleave.lab.step_fit import Fit, Observed, best_fit
from interleave.lab.workload import workload


@cache
def fits() -> dict[str, Fit]:
    return calibrate(load_published())


def test_the_fit_reads_nothing_but_calibration_rows_and_constants() -> None:
    """Every other value is spoiled; the parameters stay bit for bit the same."""
    spoiled = [
        row
        if row.use in ("calibrate", "constant")
        else replace(row, value=1e3 * (1 + number), low=None, high=None, printed="1000")
        for number, row in enumerate(load_published())
    ]
    assert calibrate(spoiled) == fits()


def test_each_calibration_row_matters() -> None:
    """The other way round: a change of any used row moves the fit, so the test above can fail."""
    rows = [row for row in load_published() if row.use == "calibrate"]
    used = {one.label for one in observations(rows)}
    assert used == {row.id for row in rows} - {"c13"}  # a kernel that no engine here uses
    changed = [replace(row, value=row.value * 1.5) if row.id == "c05" else row for row in load_published()]  # type: ignore[operator]
    assert calibrate(changed) != fits()


def test_other_rows_are_refused() -> None:
    with pytest.raises(ValueError, match=r"rows .*c01.* are not for calibration"):
        observations(load_published())


def test_one_sync_a_step_fits_best() -> None:
    assert best_fit(fits()).model.overlap == "step_floor"
    assert best_fit(fits()).rms < 0.015


def test_a_fit_says_what_it_has_seen() -> None:
    """Whole steps: the padded group of the mixed batch is the widest, and no step has more than 32 rows."""
    (ranges,) = {tuple((fit.model.fitted or {}).items()) for fit in fits().values()}
    assert [name for name, _ in ranges] == list(FEATURES)
    found = dict(ranges)
    assert found["positions"][1] == found["copied_rows"][1] * 4096 == 131072
    assert found["decode_rows"] == (0, 32)
    assert found["forwards"] == (1, 2)  # a chunk and the decodes beside it


def test_work_that_is_no_step_widens_no_range() -> None:
    step, kernel = Features(1, 10, 55), Features(decode_attended=10**9)
    observed = [
        Observed("steps", [[step], [step, Features(1, 4, decode_rows=4)]], 1.0),
        Observed("kernel", [[kernel]], 1.0, bare=True),
    ]
    ranges = seen(observed)
    assert ranges["positions"] == (10, 14)
    assert ranges["forwards"] == (1, 2)
    assert ranges["decode_attended"] == (0, 0)


def test_what_a_fit_has_seen_changes_no_time() -> None:
    """The closed runs that it was fitted to stay within it; a prompt in one piece and more rows do not."""
    model = best_fit(fits()).model
    free = replace(model, fitted=None)
    for served, batch, beyond in (
        (Served(engine="chunked"), "uniform32", set[str]()),
        (Served(engine="paged"), "mixed32", set[str]()),
        (Served(engine="whole"), "disturbance64", {"prefill_attended"}),
        (Served(engine="chunked", max_rows=64), "disturbance64", {"decode_rows"}),
    ):
        rows = workload(batch).rows
        table, executor = simulate_table(served, rows, len(rows), model)
        unmarked, without = simulate_table(served, rows, len(rows), free)
        assert beyond <= executor.worst_outside.keys()
        assert (executor.num_outside > 0) == bool(beyond)
        assert without.num_outside == 0
        for name in COLUMNS:
            np.testing.assert_array_equal(table.column(name), unmarked.column(name))
        assert table.num_events == unmarked.num_events


def test_the_small_pool() -> None:
    assert SMALL_POOL_BLOCKS == 292  # 0.5 GiB of 64 x 28 layers x 2 x 2 heads x 128 x 2 bytes


def row(**change: Any) -> Published:
    (first,) = (one for one in load_published() if one.id == "c01")
    return replace(first, **change)


@pytest.mark.parametrize(
    ("change", "simulated", "error"),
    [
        ({}, 10.84, 0.0),  # rounds to 10.8
        ({}, 10.86, 0.06 / 10.8),
        ({"printed": "10.80"}, 10.84, 0.04 / 10.8),
        ({"unit": "ratio", "value": 1.42, "printed": "1.42"}, 1.405, 0.0),
        ({"unit": "ratio", "value": 1.42, "printed": "1.42"}, 1.36, 0.06 / 0.42),
        ({"unit": "ratio", "value": 0.98, "printed": "0.98"}, 0.95, 1.5),
    ],
)
def test_scoring(change: dict[str, Any], simulated: float, error: float) -> None:
    assert error_of(row(**change), simulated) == pytest.approx(error)


def test_holdout_rows() -> None:
    """The target is a median of 3%; these are the rows that the model meets or comes close to."""
    runs = PublishedRuns(best_fit(fits()).model)
    errors = {one["id"]: abs(one["error"]) for one in compare_rows(load_published(), runs, ("holdout",))}
    assert set(errors) == {one.id for one in load_published() if one.use == "holdout"}
    assert sorted(errors.values())[len(errors) // 2] < 0.03
    assert all(errors[name] == 0.0 for name in ("c15", "o03", "o06"))
    assert all(errors[name] < 0.1 for name in errors if name not in ("c10", "c14"))


def test_every_scored_row_is_spoken_to() -> None:
    scored = {one.id for one in load_published() if one.use in ("calibrate", "holdout")}
    assert scored - SPEAKS.keys() == {"c13"}


def test_rows_in_words_are_told_as_what_was_simulated() -> None:
    """Claims that name no number, or one that the published runs are too few for."""
    runs, ids = PublishedRuns(best_fit(fits()).model), ("p06", "p07", "k09", "k10")
    rows = [one for one in load_published() if one.id in ids]
    told = {one["id"]: one for one in compare_rows(rows, runs)}
    assert sorted(told) == sorted(ids)
    assert all((one["quantity"], one["unit"]) == WORDS[name] for name, one in told.items())
    assert all(one["error"] is None for one in told.values())
    assert 0.9 < told["p06"]["simulated"] <= 1.0
    assert told["p07"]["simulated"] == runs.wall_s("chunked", "uniform32") / runs.wall_s("paged", "uniform32")
    assert told["k09"]["simulated"] * told["k10"]["simulated"] == pytest.approx(
        1e3 * runs.tpot_p95_s("whole", 3.0)
    )


def test_slots_in_the_memory_of_the_small_pool() -> None:
    """Listed last, so that the ids of the other figures keep their meaning; four slots are slower than eight."""
    runs = PublishedRuns(best_fit(fits()).model)
    *others, last = unmeasured(runs)
    assert (last.engine, last.workload) == ("continuous", "closed 64 requests, 0.5 GiB in 4 slots")
    (eight,) = (
        one.simulated
        for one in others
        if (one.engine, one.workload) == ("continuous", "closed 64 requests through 8 rows")
    )
    assert last.simulated is not None
    assert eight is not None
    assert last.simulated > eight


@pytest.mark.slow
def test_the_document() -> None:
    document = published_document()
    assert {"id", "engine", "workload", "quantity", "unit", "use", "published", "simulated", "error"} == set(
        document["rows"][0]
    )
    unpublished = [one for one in document["rows"] if one["use"] == "unpublished"]
    assert {one["engine"] for one in unpublished} == {"continuous", "paged", "chunked"}
    assert all(one["published"] is None for one in unpublished)
    assert [one["overlap"] for one in document["hypotheses"]] == ["additive", "forward_floor", "step_floor"]
    assert len(published_lines(document)) > len(document["rows"])
