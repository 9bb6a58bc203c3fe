"""Verdicts on published claims and predictions: one function each, and what it takes for them to hold."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from interleave.lab.experiments import policies
from interleave.lab.reference import load_published
from interleave.report.claims import AWAITS, FAILS, HOLDS, JUDGES, PARTLY, judge
from interleave.report.evidence import Evidence, Stored

ROWS = {row.id: row for row in load_published()}
# What the calibrated simulator says, roughly.
SIMULATED = {"k02": 24.7, "k06": 800.0, "k10": 70.0, "p01": 5.0, "p02": 4.4, "p03": 0.02, "p04": 77.5, "p05": 11.7, "p08": 3.5, "p09": 700.0, "p10": 0.02}  # fmt: skip


def findings(stored: dict[str, Stored] | None = None, **changed: float) -> dict[str, Any]:
    return judge(Evidence(ROWS, SIMULATED | changed, stored or {}))


def test_every_claim_and_prediction_has_a_verdict_of_its_own() -> None:
    assert JUDGES.keys() == {row.id for row in ROWS.values() if row.use in ("claim", "prediction")}
    assert all(found.why for found in findings().values())


@pytest.mark.parametrize(
    ("row", "good", "bad"),
    [
        ("k02", 26.0, 30.0),
        ("k06", 600.0, 1600.0),
        ("k10", 39.0, 41.0),
        ("p01", 7.0, 6.0),
        ("p02", 4.4, 4.6),
        ("p03", 0.5, 1.0),
        ("p04", 80.0, 120.0),
        ("p05", 11.0, 14.0),
        ("p08", 3.5, 4.0),
        ("p09", 1300.0, 700.0),
        ("p10", 0.5, 1.5),
    ],
)
def test_a_simulated_figure_is_held_to_what_was_published(row: str, good: float, bad: float) -> None:
    for number, verdict in ((good, HOLDS), (bad, FAILS)):
        found = findings(**{row: number})[row]
        assert found.verdict == verdict
        assert found.found.mark == "simulated"


def shorter_step(floor_rate: float, here: float) -> Stored:
    """Recorded decode: the A10's peak without its floor, and the served rate here, with steps that stay."""
    rows: list[dict[str, Any]] = [
        {"kind": "change", "cheaper": cheaper, "step_s": 0.031, "peak_rate": peak}
        for cheaper, peak in (("nothing", 4.0), ("floor", 4.0 * floor_rate))
    ]
    rows += [
        {"kind": "served", "engine": engine, "run": 0, "step_s": 0.02, "served_rate": rate}
        for engine, rate in (("chunked", 2.0), ("recorded", 2.0 * here))
    ]
    return Stored(pd.DataFrame(rows), policies.Params(), "measured-cpu", ())


@pytest.mark.parametrize(
    ("stored", "simulated", "verdict"),
    [
        (None, {"p01": 7.0, "o02": 4.08}, HOLDS),
        (None, {"p01": 6.78, "o02": 4.36}, PARTLY),  # 6.34 when scaled to the published peak
        (None, {"p01": 6.0, "o02": 4.36}, FAILS),
        (shorter_step(1.0, 1.0), {"p01": 7.0, "o02": 4.08}, HOLDS),
        (shorter_step(1.06, 1.0), {"p01": 7.0, "o02": 4.08}, PARTLY),  # the second half
        (shorter_step(1.06, 1.1), {"p01": 6.0, "o02": 4.36}, FAILS),
    ],
)
def test_both_halves_of_a_shorter_step_count(
    stored: Stored | None, simulated: dict[str, float], verdict: str
) -> None:
    found = findings({} if stored is None else {"recorded_decode": stored}, **simulated)["p01"]
    assert found.verdict == verdict
    assert found.found.text == f"{simulated['p01']:.2f} requests/s"
    assert f"peak of today is {simulated['o02']:.2f}, the published one 4.08" in found.why
    assert ("the second half, that the rate stays where the step does: 1." in found.why) == (
        stored is not None
    )


def test_what_needs_another_chapter_says_so() -> None:
    open_rows = {row: found.why for row, found in findings().items() if found.verdict == AWAITS}
    assert open_rows == {
        "k01": "needs the chapter on closed batches",
        "k05": "needs the chapter on policies",
        "k09": "needs the chapter on arrival curves",
        "p06": "needs the chapter on arrival curves",
        "p07": "needs the chapter on closed batches",
    }


def test_what_arithmetic_settles_carries_no_mark() -> None:
    found = findings()
    assert {row for row, one in found.items() if one.found and one.found.mark is None} == {
        "k03",
        "k04",
        "k07",
        "k08",
    }
    assert found["k04"].verdict == FAILS  # a fifth of the requests waste 48 tokens, the others none
    assert found["k08"].verdict == PARTLY
    assert found["k08"].found.text == "1.0 FLOP/byte"


def uniform(chunked_s: float, copy_s: float) -> Stored:
    rows = [
        {"batch": "uniform", "rows": 8, "engine": engine, "run": 0, "wall_s": wall, "copy_s": copy_s,
         "copied_tokens": 100, "kv_bytes_per_token": 1000, "copy_bytes_per_s": 1e9}
        for engine, wall in (("paged", 10.0), ("chunked", chunked_s))
    ]  # fmt: skip
    return Stored(pd.DataFrame(rows), policies.Params(), "measured-cpu", ())


@pytest.mark.parametrize(("chunked_s", "verdicts"), [(9.65, (HOLDS, FAILS)), (10.5, (FAILS, HOLDS))])
def test_the_uniform_batch_decides_a_claim_and_its_opposite(
    chunked_s: float, verdicts: tuple[str, str]
) -> None:
    """k01 says a few percent faster; p07 had predicted slower."""
    found = findings({"closed_batches": uniform(chunked_s, copy_s=0.1)})
    assert (found["k01"].verdict, found["p07"].verdict) == verdicts
    assert "1.0% of paged's wall time" in found["k01"].why
    assert found["k01"].found.mark == "measured-cpu"
    assert found["k01"].found.text == ("3.5% less" if chunked_s < 10 else "5.0% more")


@pytest.mark.parametrize(("one_s", "verdict"), [(0.12, HOLDS), (0.5, FAILS)])
def test_a_chunk_is_nearly_free_if_the_step_hardly_grows(one_s: float, verdict: str) -> None:
    seconds = {"decode": 0.1, "chunk": 0.4, "two": 0.5, "one": one_s}
    rows = [
        {"kind": "step", "rows": 32, "chunk": 512, "repeat": 1, "form": form, "step_s": s}
        for form, s in seconds.items()
    ]
    found = findings({"policies": Stored(pd.DataFrame(rows), policies.Params(), "measured-cpu", ())})
    assert found["k05"].verdict == verdict


@pytest.mark.parametrize(("whole_s", "verdict"), [(1.5, HOLDS), (0.2, FAILS)])
def test_tails_of_tpot_are_compared_below_capacity(whole_s: float, verdict: str) -> None:
    rows = [
        {"kind": "measured", "engine": engine, "load": load, "seed": 0, "rate": load, "run_served_rate": 1.0, "ttft_s": 1.0,
         "queue_wait_s": 0.0, "run_gap_p50_s": 0.1, "run_worst_gap_s": 0.1, "tpot_s": tpot}
        for load, factor in ((0.85, 1.0), (1.2, 100.0))
        for engine, slow in (("whole", whole_s), ("chunked", 0.1))
        for tpot in (0.01 * factor, slow * factor)
    ]  # fmt: skip
    found = findings({"arrival_curves": Stored(pd.DataFrame(rows), policies.Params(), "measured-cpu", ())})
    assert found["k09"].verdict == verdict
    assert found["p06"].verdict == HOLDS
