"""The published figures load, and a spoiled row is refused with file, line and column."""

import csv
from collections import Counter

import pytest

from interleave.lab.reference import COLUMNS, USES, Report, load_published, load_reports
from interleave.lab.tables import TableError

GOOD = {
    "id": "x1",
    "report": "part6",
    "engine": "chunked",
    "workload": "closed",
    "quantity": "wall",
    "value": "10.80",
    "unit": "s",
    "use": "holdout",
}


def write(path, *rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="")
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_the_shipped_figures():
    rows = {row.id: row for row in load_published()}
    assert set(Counter(row.use for row in rows.values())) == set(USES)
    assert rows["c01"].value == 10.8
    assert (rows["c01"].low, rows["c01"].high, rows["c01"].unit) == (10.61, 11.0, "s")
    assert rows["p07"].value is None
    assert rows["p07"].grade.startswith("wrong")
    assert {row.report for row in rows.values()} <= set(load_reports())


def test_printed_precision_is_kept(tmp_path):
    (row,) = load_published(write(tmp_path / "p.csv", GOOD))
    assert (row.value, row.printed, row.low, row.note) == (10.8, "10.80", None, "")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"use": "holdoutt"}, "column use: unknown use 'holdoutt'; did you mean 'holdout'"),
        ({"report": "part7"}, "column report: unknown report 'part7'; did you mean 'part"),
        ({"value": "fast"}, "column value: expected a finite number, got 'fast'"),
        ({"value": "nan"}, "column value"),
        ({"high": "inf", "low": "1"}, "column high"),
        ({"low": "1"}, "a range needs both ends"),
        ({"low": "11", "high": "12"}, "10.8 is not within 11.0 to 12.0"),
        ({"value": "", "low": "3", "high": "2"}, "is not within 3.0 to 2.0"),
        ({"value": ""}, "column value: a figure needs a value or a range"),
        ({"grade": "held"}, "column grade: only a prediction has one"),
        ({"engine": ""}, "column engine: empty"),
        ({}, "column id: 'x1' is used before"),
    ],
)
def test_spoiled_rows(tmp_path, change, says):
    path = write(tmp_path / "p.csv", GOOD, GOOD | change)
    with pytest.raises(TableError, match=f"p.csv:3: .*{says}"):
        load_published(path)


def test_reports_are_checked(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("report,title,what it measures\na,b,c\na,b,c\n")
    with pytest.raises(TableError, match=r"r.csv:3: column report"):
        load_reports(path)
    with pytest.raises(TableError, match="choose from: other"):
        load_published(write(tmp_path / "p.csv", GOOD), {"other": Report("other", "t", "m")})
