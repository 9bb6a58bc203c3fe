"""Tables of the ladder from made-up medians: the order of the rungs, what each gained, how much repeats differ."""

from __future__ import annotations

import pandas as pd
import pytest

from interleave.report.figures import ladder
from interleave.report.printed import MAX_COLUMNS, table_html


def line(batch: str, engine: str, wall_s: float, **parts_s: float) -> dict[str, object]:
    """Medians of an engine that spent its time on the given parts."""
    parts = {f"{part}_s": parts_s.get(part, 0.0) for part in ladder.PARTS}
    runs = {"wall_low": wall_s, "wall_high": wall_s, "num_runs": 1}
    return {"batch": batch, "engine": engine, "wall_s": wall_s, **parts, **runs}


def medians() -> pd.DataFrame:
    return pd.DataFrame(
        [
            line("mixed32", "recorded", 17.5, prefill=9.0, decode=8.0, sample=0.0),
            line("mixed8", "cached", 30.0, prefill=10.0, decode=18.0, sample=2.0),
            line("mixed8", "nocache", 90.0, prefill=10.0, decode=78.0, sample=2.0),
            line("mixed32", "paged", 30.0, prefill=20.0, decode=7.0, copy=1.0, sample=1.0, host=1.0),
            line("mixed32", "chunked", 18.0, prefill=9.0, decode=7.0, sample=1.5, host=0.5),
            line("mixed32", "mixed", 16.0, prefill=2.0, decode=3.0, mixed=9.0, sample=1.5, host=0.5),
        ]
    )


def test_the_ladder_has_a_line_an_engine_in_its_order_and_a_column_a_batch() -> None:
    table = ladder.ladder_table(medians())
    assert list(table.columns) == ["engine", "mixed32 [s]", "mixed8 [s]"]
    assert list(table["engine"]) == ["nocache", "cached", "paged", "chunked", "mixed", "recorded"]
    assert list(table["mixed8 [s]"].dropna()) == [90.0, 30.0]
    assert list(table["mixed32 [s]"].dropna()) == [30.0, 18.0, 16.0, 17.5]


def test_more_batches_than_columns_are_several_tables() -> None:
    many = pd.DataFrame([line(f"mixed{rows}", "paged", float(rows)) for rows in range(2, 13)])
    tables = [ladder.ladder_table(part) for part in ladder.that_fit(many)]
    assert [len(table.columns) for table in tables] == [MAX_COLUMNS, MAX_COLUMNS, 2]
    assert sum(float(table.filter(like="[s]").to_numpy().sum()) for table in tables) == sum(range(2, 13))


def test_batches_are_ordered_by_their_requests() -> None:
    many = pd.DataFrame([line(name, "paged", 1.0) for name in ("mixed32", "uniform8", "mixed8", "mixed16")])
    assert ladder.by_size(many, "mixed") == ["mixed8", "mixed16", "mixed32"]
    assert ladder.by_size(many, "other") == []


def test_a_rung_is_set_against_the_one_before_that_ran_on_the_batch() -> None:
    (only,) = ladder.rung_table(medians(), "mixed8").to_numpy().tolist()
    assert only == ["cached after nocache", 60.0, 0.0, 60.0, 0.0, 0.0]


def test_what_a_rung_gained_is_told_by_part() -> None:
    found = ladder.rung_table(medians(), "mixed32")
    assert list(found.columns) == ["on mixed32", "gained in all [s]", *ladder.GAINED]
    lines = {name: seconds for name, *seconds in found.to_numpy().tolist()}
    assert lines == {
        "chunked after paged": [12.0, 11.0, 0.0, 1.0, 0.0],
        # Decodes ride in forwards with prefill: the sum of the first two parts is what was gained.
        "mixed after chunked": [2.0, -2.0, 4.0, 0.0, 0.0],
        # Not after mixed: it is chunked, with its decode forward replayed and its tokens chosen there.
        "recorded after chunked": [0.5, 0.0, -1.0, 0.0, 2.0],
    }
    without = medians()[lambda table: table["engine"] != "chunked"]
    assert list(ladder.rung_table(without, "mixed32")["on mixed32"]) == [
        "mixed after paged",
        "recorded after mixed",
    ]


def test_less_than_a_millisecond_is_nothing() -> None:
    pair = [line("mixed8", "paged", 1.0, copy=0.0001), line("mixed8", "whole", 1.0, copy=0.0004)]
    found = ladder.rung_table(pd.DataFrame(pair), "mixed8")
    assert "-0" not in table_html(found)
    assert float(found["copy [s]"].iloc[0]) == 0.0


def test_the_spread_of_repeats_is_told_per_batch() -> None:
    table = pd.DataFrame(
        [
            line("mixed8", "nocache", 90.0),  # ran once
            line("mixed8", "paged", 10.0) | {"wall_low": 9.0, "wall_high": 11.0, "num_runs": 5},
            line("mixed8", "whole", 10.0) | {"wall_low": 9.9, "wall_high": 10.0, "num_runs": 5},
            line("mixed8", "mixed", 10.0) | {"wall_low": 9.8, "wall_high": 10.1, "num_runs": 5},
            line("uniform8", "paged", 2.0) | {"wall_low": 2.0, "wall_high": 2.5, "num_runs": 3},
        ]
    )
    mixed, uniform = ladder.noise_table(table).to_numpy().tolist()
    assert mixed == ["mixed8", 3, 5, pytest.approx(3.0), pytest.approx(20.0), "paged"]
    assert uniform == ["uniform8", 1, 3, pytest.approx(25.0), pytest.approx(25.0), "paged"]
    assert ladder.repeat_spread(table) == pytest.approx(25.0)


def test_where_nothing_ran_twice_nothing_is_said_about_repeats() -> None:
    assert ladder.noise_table(medians()).empty
    assert ladder.repeat_spread(medians()) is None
