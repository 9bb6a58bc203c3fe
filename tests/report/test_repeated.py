"""Chapters that were measured twice: what the page of runs shows of both."""

from __future__ import annotations

from typing import Any

from interleave.report.repeated import repeated_tables, repeated_values


def number(value: float | str, low: float | None = None) -> dict[str, Any]:
    told: dict[str, Any] = {"value": value, "unit": "s", "text": str(value)}
    return told if low is None else told | {"low": low, "high": value, "digits": 2}


def document(second: str = "held") -> dict[str, Any]:
    return {
        "experiment": "step_trace",
        "title": "Step trace",
        "tier": "cpu",
        "mark": "measured-cpu",
        "first": {"started": "2026-12-01T09:00:00Z"},
        "second": {"started": "2026-12-01T11:30:00Z"},
        "numbers": [
            {"name": "gap", "first": number(2.0, 1.5), "second": number(1.8, 1.2), "outcome": "within"},
            {"name": "rate", "first": number(2.0, 1.9), "second": number(1.0, 0.9), "outcome": "beyond"},
            {"name": "best", "first": number("mixed"), "second": number("mixed"), "outcome": "equal"},
            {"name": "share", "first": number(1.0), "second": number(1.1), "outcome": "no range"},
        ],
        "predictions": [
            {
                "no.": "1",
                "quantity": "the gap",
                "first": {"measured": 2.0, "verdict": "held"},
                "second": {"measured": 1.8, "verdict": "held"},
            },
            {
                "no.": "2",
                "quantity": "the rate",
                "first": {"measured": 2.0, "verdict": "held"},
                "second": {"measured": None, "verdict": second},
            },
        ],
    }


def test_nothing_is_said_where_nothing_was_run_twice() -> None:
    assert repeated_tables([]) == {}
    assert repeated_values([]) == {}


def test_when_and_how_much_came_out_again() -> None:
    tables = repeated_tables([document(), document("missed")])
    when = ["2026-12-01 09:00", "2026-12-01 11:30"]
    assert tables["repeated-runs"]["rows"] == [
        ["Step trace", *when, "2 of 3", "2 of 2"],
        ["Step trace", *when, "2 of 3", "1 of 2"],
    ]
    gap, rate, best, share = tables["repeated-numbers"]["rows"][:4]
    assert gap[2] == {"text": "2.0 [1.5 to 2.0] s", "mark": "measured-cpu"}
    assert [line[4] for line in (gap, rate, best, share)] == ["within", "beyond", "equal", "no range"]
    assert best[2] == "mixed"
    assert tables["repeated-verdicts"]["rows"][2:] == [
        ["Step trace", "1", "the gap", "2.00, held", "1.80, held"],
        ["Step trace", "2", "the rate", "2.00, held", "–, missed"],
    ]


def test_what_somebody_else_published_or_what_could_not_run_is_no_result() -> None:
    one = document()
    one["numbers"] = [
        {**one["numbers"][2], "first": {**number(6.5), "mark": "published-elsewhere"}},
        one["numbers"][3],
    ]
    one["predictions"][1]["first"]["verdict"] = "not run"
    tables = repeated_tables([one])
    assert [row[1] for row in tables["repeated-numbers"]["rows"]] == ["share"]
    assert [row[1] for row in tables["repeated-verdicts"]["rows"]] == ["1"]
    assert tables["repeated-runs"]["rows"][0][3:] == ["no range given", "1 of 1"]


def test_a_verdict_that_changed_is_counted() -> None:
    assert "repeated.changed" not in repeated_values([document()])
    values = repeated_values([document(), document("missed")])
    assert (values["repeated.count"].text, values["repeated.changed"].text) == ("2 chapters", "1")
