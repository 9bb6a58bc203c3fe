"""Rows of several kinds in one table."""

from __future__ import annotations

import pytest

from interleave.lab.point_table import one_table


def test_rows_of_several_kinds_share_their_columns() -> None:
    found = one_table({"engine": "mixed"}, [{"kind": "step", "s": 1.0}, {"kind": "gap", "gap_s": 2.0}])
    assert found == [
        {"engine": "mixed", "kind": "step", "s": 1.0, "gap_s": None},
        {"engine": "mixed", "kind": "gap", "s": None, "gap_s": 2.0},
    ]


def test_a_fact_is_never_blanked_by_a_column_of_that_name() -> None:
    with pytest.raises(ValueError, match="steps: a column of some rows and a fact of all"):
        one_table({"steps": 3}, [{"kind": "run"}, {"kind": "forward", "steps": 1}])
