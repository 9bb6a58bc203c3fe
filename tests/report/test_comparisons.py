"""Published ratios beside ours, from made-up results: what is computed, which way it points, what is left open."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from interleave.lab.experiments import chunk_budget, closed_batches
from interleave.lab.published_runs import SPEAKS
from interleave.lab.reference import load_published
from interleave.report.comparisons import COMPARISONS, Compared, compare, direction
from interleave.report.evidence import Evidence, Stored

ROWS = {row.id: row for row in load_published()}


def batches(**walls: float) -> Stored:
    """Closed batches of 8 and 32, all alike except for the wall times of the larger ones."""
    rows: list[dict[str, Any]] = [
        {"batch": batch, "rows": size, "engine": engine, "run": 0, "wall_s": wall if size == 32 else 1.0, "ttft_max_s": 0.5, "decode_rate": 10.0}
        for batch in ("mixed", "uniform")
        for size in (8, 32)
        for engine, wall in walls.items()
    ]  # fmt: skip
    return Stored(pd.DataFrame(rows), closed_batches.Params(), "measured-cpu", ())


def found(stored: dict[str, Stored], simulated: dict[str, float] | None = None) -> dict[str, Compared]:
    return {one.comparison.what: one for one in compare(Evidence(ROWS, simulated or {}, stored))}


def test_every_published_figure_is_simulated_compared_or_judged() -> None:
    covered = {*SPEAKS, *(row for one in COMPARISONS for row in one.rows)}
    missing = {
        row.id for row in ROWS.values() if row.use not in ("claim", "prediction", "constant")
    } - covered
    assert missing == set()


def test_every_row_that_a_comparison_names_is_published() -> None:
    assert {row for one in COMPARISONS for row in one.rows} <= ROWS.keys()
    assert len({one.what for one in COMPARISONS}) == len(COMPARISONS)


def test_ratios_are_of_published_values_simulated_ones_and_the_largest_batch_here() -> None:
    line = found({"closed_batches": batches(chunked=2.0, paged=4.0)}, {"c01": 12.0, "c02": 20.0})[
        "wall time, mixed batch: chunked / paged"
    ]
    assert line.published == pytest.approx(10.8 / 18.02)
    assert line.simulated == pytest.approx(0.6)
    assert line.measured == pytest.approx(0.5)
    assert line.same_direction is True


def test_a_ratio_that_turns_round_is_seen() -> None:
    lines = found({"closed_batches": batches(chunked=4.1, paged=4.0)})
    assert lines["wall time, uniform batch: chunked / paged"].same_direction is False
    assert lines["wall time, mixed batch: paged / continuous"].measured is None  # continuous did not run


def test_what_has_not_run_is_open() -> None:
    assert {one.measured for one in found({}).values()} == {None}
    assert {one.same_direction for one in found({}).values()} == {None}


@pytest.mark.parametrize(
    ("value", "said"), [(0.9, "below 1"), (0.99, "about 1"), (1.015, "about 1"), (1.1, "above 1")]
)
def test_two_percent_have_no_direction(value: float, said: str) -> None:
    assert direction(value) == said


def test_budgets_are_divided_by_scale_and_pieces_found_by_number() -> None:
    rows = [
        {"kind": "serve", "engine": "chunked", "budget": budget, "wall_s": wall}
        for budget, wall in ((32, 3.0), (128, 2.0))
    ]
    rows += [{"kind": "passes", "tokens": 384, "chunk": 384 // steps, "steps": steps, "prefill_s": seconds} for steps, seconds in ((1, 1.0), (2, 1.1), (6, 1.2), (24, 1.8))]  # fmt: skip
    lines = found(
        {"chunk_budget": Stored(pd.DataFrame(rows), chunk_budget.Params(scale=4), "measured-cpu", ())}
    )
    assert lines["wall time, chunk budget 128 / 512"].measured == pytest.approx(1.5)
    assert lines["wall time, chunk budget 1024 / 512"].measured is None
    assert lines["long prompt alone: 6 pieces / 1"].measured == pytest.approx(1.2)
    assert lines["long prompt alone: 24 pieces / 1"].measured == pytest.approx(1.8)
