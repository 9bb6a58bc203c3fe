"""Metrics on a run small enough to work out by hand, and the rules for what is missing."""

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interleave.engine.records import RequestRecord, RunLog, StepRecord
from interleave.lab import metrics
from interleave.lab.metrics import Limits, RecordError
from interleave.lab.summary import summary


def record(request_id="a", due=0.0, admit=0.5, chunk=0.75, times=(1.0, 2.0, 5.0), reason="length", step=1):
    return RequestRecord(
        request_id=request_id,
        prompt_tokens=8,
        max_new_tokens=max(1, len(times)),
        due_s=due,
        admit_s=admit,
        admit_step=step,
        first_chunk_s=chunk,
        finish_s=times[-1] if times else None,
        finish_reason=reason,
        tokens=[7] * len(times),
        token_times_s=list(times),
    )


def step(number, start, end, **counts):
    names = ("forwards", "prefill_tokens", "decode_rows", "padded_tokens", "copied_tokens")
    values = dict.fromkeys((*names, "admitted", "running", "waiting"), 0) | counts
    return StepRecord(step=number, start_s=start, end_s=end, parts_s={"decode": end - start}, **values)


def waiting(request_id="w", due=0.0):
    return RequestRecord(request_id=request_id, prompt_tokens=8, max_new_tokens=4, due_s=due)


@pytest.fixture
def log():
    """a decodes at 1, 2 and 5; b arrives at 2 and its prefill makes a wait from 2 to 5."""
    return RunLog(
        requests=[
            record("a"),
            record("b", due=2.0, admit=2.0, chunk=2.0, times=(5.0, 6.0, 7.0, 8.0), step=3),
            record("c", due=2.5, admit=5.0, chunk=6.0, times=(8.0,), step=4),
        ],
        steps=[
            step(1, 0.5, 1.0, prefill_tokens=8, forwards=1),
            step(2, 1.0, 2.0, decode_rows=1, forwards=1),
            step(3, 2.0, 5.0, prefill_tokens=8, decode_rows=1, forwards=2, padded_tokens=3, copied_tokens=8),
            step(4, 5.0, 6.0, decode_rows=1, forwards=1),
            step(5, 6.0, 7.0, decode_rows=1, forwards=1),
            step(6, 7.0, 8.0, decode_rows=1, prefill_tokens=8, forwards=2),
        ],
        wall_s=8.0,
    )


def test_one_request():
    a = record(due=0.25)
    assert metrics.queue_wait_s(a) == 0.25
    assert metrics.admit_to_first_chunk_s(a) == 0.25
    assert metrics.prefill_s(a) == 0.25
    assert metrics.ttft_s(a) == 0.75
    assert metrics.gaps_s(a) == [1.0, 3.0]
    assert metrics.max_gap_s(a) == 3.0
    assert metrics.tpot_s(a) == 2.0


def test_one_token_has_no_tpot_and_no_gap():
    c = record(times=(1.0,))
    assert metrics.tpot_s(c) is None
    assert metrics.gaps_s(c) == []
    assert metrics.max_gap_s(c) is None


def test_what_did_not_happen_is_none():
    measures = (
        metrics.queue_wait_s,
        metrics.admit_to_first_chunk_s,
        metrics.prefill_s,
        metrics.ttft_s,
        metrics.tpot_s,
    )
    assert [measure(waiting()) for measure in measures] == [None] * 5


def test_incumbent_gaps_and_spikes(log):
    gaps = metrics.incumbent_gaps(log)
    assert [(gap.step, gap.request_id, gap.gap_s) for gap in gaps] == [
        (2, "a", 1.0),
        (3, "a", 3.0),
        (4, "b", 1.0),
        (5, "b", 1.0),
        (6, "b", 1.0),
    ]
    assert metrics.spikes(gaps) == []  # exactly three times the baseline is not above it
    stalled = [*gaps[:1], gaps[1]._replace(gap_s=3.1), *gaps[2:]]
    assert metrics.spikes(stalled) == [stalled[1]]
    assert metrics.spikes([]) == []


def test_tokens_within_one_step_leave_no_incumbent_gap(log):
    whole = RunLog(requests=[record("a")], steps=[step(1, 0.5, 5.0)], wall_s=5.0)
    assert metrics.incumbent_gaps(whole) == []
    assert metrics.incumbent_gaps(replace(log, steps=[])) == []


def test_rates(log):
    assert metrics.span_s(log) == 8.0
    assert metrics.served_rate(log) == 3 / 8
    assert metrics.goodput(log, Limits(ttft_s=3.0)) == 2 / 8
    assert metrics.goodput(log, Limits(ttft_s=3.0, max_gap_s=2.0)) == 1 / 8
    assert metrics.goodput(log, Limits(tpot_s=0.5)) == 1 / 8  # only c, whose single token has no TPOT
    assert metrics.goodput(log, Limits(ttft_s=0.1)) == 0.0


def test_span_starts_at_the_first_due_time():
    late = RunLog(requests=[record(due=3.0, admit=3.0, chunk=3.0, times=(4.0, 5.0))])
    assert metrics.served_rate(late) == 0.5


def test_an_abort_is_no_completion(log):
    log.requests[1].finish_reason = "abort"
    assert metrics.served_rate(log) == 2 / 8
    assert summary(log)["finish_reasons"] == {"length": 2, "abort": 1}


def test_admission_groups(log):
    log.requests[1].admit_step = 1
    assert metrics.admission_groups(log) == [2, 1]


@pytest.mark.parametrize("limits", [{}, {"ttft_s": 0.0}, {"tpot_s": math.nan}, {"max_gap_s": math.inf}])
def test_bad_limits_are_refused(limits):
    with pytest.raises(ValueError, match="limit"):
        Limits(**limits)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"due_s": 0.6}, "admit_s at 0.5 precedes due_s at 0.6"),
        ({"admit_s": 0.8}, "first_chunk_s at 0.75 precedes admit_s at 0.8"),
        ({"first_chunk_s": 1.5}, "first_token_s at 1.0 precedes first_chunk_s"),
        ({"finish_s": 4.0}, "finish_s at 4.0 precedes last_token_s at 5.0"),
        ({"token_times_s": [1.0, 3.0, 2.0]}, "token 3 at 2.0 precedes token 2 at 3.0"),
        ({"token_times_s": [1.0, math.nan, 5.0]}, "token 2 at nan precedes"),
        ({"token_times_s": [1.0, 5.0]}, "3 tokens, 2 times"),
        ({"admit_s": None}, "completed without admit_s"),
        ({"token_times_s": [], "tokens": []}, "completed without first_token_s, last_token_s"),
    ],
)
def test_order_is_checked(change, says):
    metrics.check_order(record())
    with pytest.raises(RecordError, match=f"request 'a'.*{says}"):
        metrics.check_order(replace(record(), **change))
    with pytest.raises(RecordError):
        summary(RunLog(requests=[replace(record(), **change)]))


def test_order_of_unfinished_requests_is_checked_as_far_as_they_came():
    metrics.check_order(waiting())
    metrics.check_order(replace(record(times=(), reason="abort"), finish_s=0.9))
    with pytest.raises(RecordError, match=r"finish_s at 0.1 precedes due_s at 0.2"):
        metrics.check_order(replace(waiting(due=0.2), finish_s=0.1, finish_reason="abort"))


@pytest.mark.parametrize(
    "change", [{"finish_reason": "stop"}, {"finish_reason": None}, {"max_new_tokens": 4}]
)
def test_a_request_without_stop_ids_generates_its_budget(change):
    metrics.check_budget(record())
    with pytest.raises(RecordError, match=r"request 'a' ended by .* after 3 of its [34] tokens"):
        metrics.check_budget(replace(record(), **change))


def test_equal_times_are_in_order():
    """Zero gaps and a clock that stands still divide by nothing."""
    still = RunLog(requests=[record(due=1.0, admit=1.0, chunk=1.0, times=(1.0, 1.0))], wall_s=0.0)
    found = summary(still)
    assert found["served_rate"] is None
    assert found["new_tokens_per_s"] is None
    assert found["gap_s"]["p50"] == 0.0


def test_summary(log):
    found = summary(log, Limits(ttft_s=3.0))
    assert (found["num_requests"], found["num_completed"], found["tpot_excluded"]) == (3, 3, 1)
    assert (found["prompt_tokens"], found["new_tokens"], found["new_tokens_per_s"]) == (24, 8, 1.0)
    assert found["tpot_s"]["n"] == 2
    assert found["gap_s"]["n"] == 5
    assert found["incumbent_gap"] == {"n": 5, "baseline_s": 1.0, "num_spikes": 0, "worst_s": 3.0}
    assert found["goodput"] == {
        "limits": {"ttft_s": 3.0, "tpot_s": None, "max_gap_s": None},
        "rate": 0.25,
    }
    assert found["steps"] == {
        "n": 6,
        "forwards": 8,
        "prefill_tokens": 24,
        "decode_rows": 5,
        "padded_tokens": 3,
        "copied_tokens": 8,
        "preempted": 0,
        "recomputed_tokens": 0,
        "busy_s": 7.5,
        "parts_s": {"decode": 7.5},
    }


@pytest.mark.parametrize("log", [RunLog(), RunLog(requests=[waiting()], wall_s=1.0)])
def test_zero_completions_are_null(log):
    found = summary(log)
    assert found["num_completed"] == 0
    assert {found[name] for name in ("span_s", "served_rate", "new_tokens_per_s", "goodput")} == {None}
    assert found["ttft_s"]["p50"] is None
    assert found["incumbent_gap"] == {"n": 0, "baseline_s": None, "num_spikes": None, "worst_s": None}
    json.dumps(found, allow_nan=False)


durations = st.floats(0, 100, allow_nan=False)
lives = st.tuples(durations, durations, durations, st.lists(durations, min_size=1, max_size=8))


@given(st.lists(lives, min_size=1, max_size=12))
def test_invariants_of_any_run(all_lives):
    requests = []
    for number, (due, wait, to_chunk, gaps) in enumerate(all_lives):
        times, now = [], due + wait + to_chunk
        for gap in gaps:
            now += gap
            times.append(now)
        requests.append(
            record(str(number), due, due + wait, due + wait + to_chunk, tuple(times), step=number)
        )
    log = RunLog(requests=requests, wall_s=max(r.finish_s for r in requests))
    found = summary(log)
    json.dumps(found, allow_nan=False)
    assert found["num_completed"] == len(requests)
    assert found["tpot_s"]["n"] + found["tpot_excluded"] == len(requests)
    assert found["gap_s"]["n"] == found["new_tokens"] - len(requests)
    assert found["max_gap_s"]["max"] == found["gap_s"]["max"]
    for r in requests:
        split = metrics.queue_wait_s(r) + metrics.admit_to_first_chunk_s(r) + metrics.prefill_s(r)
        assert split == pytest.approx(metrics.ttft_s(r), abs=1e-9)
        if (tpot := metrics.tpot_s(r)) is not None:
            assert tpot <= metrics.max_gap_s(r) + 1e-9
    if found["span_s"] is not None:
        assert metrics.goodput(log, Limits(ttft_s=1e9)) == pytest.approx(metrics.served_rate(log))
        assert metrics.goodput(log, Limits(ttft_s=1.0)) <= metrics.served_rate(log)
