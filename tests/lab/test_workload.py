"""The reconstructed workload's evidence, scaling, names, and requests of exact length."""

import math
import statistics
import subprocess
import sys

import pytest

from interleave.lab.arrivals import poisson
from interleave.lab.trace import Trace, TraceRow
from interleave.lab.workload import (
    NUM_REQUESTS,
    SCALES,
    published_draw,
    requests_from_trace,
    scaled_block_tokens,
    scaled_chunk_budget,
    workload,
)


def test_evidence_for_the_published_draw():
    draw = published_draw(400)
    first_32 = draw[:32]
    assert sum(prompt for prompt, _ in first_32) == 44_048
    assert sum(new - 1 for _, new in first_32) == 5_408
    assert sum(new - 1 for _, new in first_32) / 700 == pytest.approx(7.7, abs=0.05)
    assert round(statistics.fmean(new for _, new in draw)) == 158
    assert poisson(2.0, 400)[-1] == pytest.approx(209.7, abs=0.05)
    assert published_draw(32) == first_32


def test_evidence_against_the_published_draw():
    draw = published_draw(400)
    assert round(statistics.fmean(prompt for prompt, _ in draw)) == 969
    # Qwen2.5-1.5B in fp16: 28 layers, K and V, 2 heads of 128, 2 bytes; blocks of 64 positions.
    pool_blocks = 2**29 // (64 * 28 * 2 * 2 * 128 * 2)
    reserved_blocks = sum(math.ceil((prompt + new) / 64) for prompt, new in draw[:32])
    assert math.floor(100 * pool_blocks / reserved_blocks) == 37


def test_closed_workloads():
    assert workload("mixed32").num_prompt_tokens == 44_048
    assert workload("mixed8").rows == workload("mixed32").rows[:8]
    assert workload("disturbance64").rows[:32] == workload("mixed32").rows
    assert workload("uniform32").rows == (TraceRow(0.0, 256, 256),) * 32
    for name, count in NUM_REQUESTS.items():
        trace = workload(name)
        assert len(trace) == count
        assert {row.due_s for row in trace.rows} == {0.0}


def test_open_workload_is_the_published_one():
    trace = workload("published", rate=2.0)
    assert len(trace) == 400
    assert [row[1:] for row in trace.rows] == published_draw(400)
    assert tuple(row.due_s for row in trace.rows) == poisson(2.0, 400)
    assert workload("published", rate=2.0, num_requests=100).rows == trace.rows[:100]


def test_seed_changes_lengths_and_arrivals():
    first, second = workload("published", rate=2.0), workload("published", rate=2.0, seed=1)
    assert [row[1:] for row in first.rows] != [row[1:] for row in second.rows]
    assert [row.due_s for row in first.rows] != [row.due_s for row in second.rows]


def test_scale_4_is_the_miniature():
    trace = workload("published", scale=4)
    assert {row.prompt_tokens for row in trace.rows} == {4, 16, 64, 256, 1024}
    assert {row.new_tokens for row in trace.rows} == {16, 32, 48, 64}
    assert (scaled_block_tokens(4), scaled_chunk_budget(4)) == (16, 128)


@pytest.mark.parametrize("scale", SCALES)
def test_scale_divides_lengths_exactly_until_a_prompt_is_one_token(scale):
    assert 64 % scale == 0
    for (prompt, new), row in zip(published_draw(400), workload("published", scale=scale).rows, strict=True):
        assert row.new_tokens * scale == new
        if prompt >= scale:
            assert row.prompt_tokens * scale == prompt
        else:
            assert (prompt, row.prompt_tokens) == (16, 1)


def test_rate_is_not_scaled():
    assert workload("mixed32", scale=4, rate=3.0).rows[5].due_s == workload("mixed32", rate=3.0).rows[5].due_s


def test_gamma_arrivals():
    bursty = workload("published", rate=2.0, cv=3.0)
    assert [row[1:] for row in bursty.rows] == published_draw(400)
    assert bursty != workload("published", rate=2.0)


@pytest.mark.parametrize("scale", [0, -1, 3, 128, 4.0, math.nan, True, "4", None])
def test_bad_scale_is_refused(scale):
    for call in (lambda: workload("mixed8", scale=scale), lambda: scaled_chunk_budget(scale)):
        with pytest.raises(ValueError, match=r"scale must divide.*1, 2, 4, 8, 16, 32, 64; got"):
            call()


@pytest.mark.parametrize("rate", [0, -2.0, math.nan, math.inf])
def test_bad_rate_is_refused(rate):
    with pytest.raises(ValueError, match="rate must be a finite number above 0"):
        workload("published", rate=rate)


@pytest.mark.parametrize(
    ("name", "nearest"), [("mixed-32", "mixed32"), ("unifrom8", "uniform8"), ("disturb", "disturbance64")]
)
def test_unknown_name_gets_the_nearest(name, nearest):
    with pytest.raises(ValueError, match=f"unknown workload '{name}'; did you mean '{nearest}'"):
        workload(name)


@pytest.mark.parametrize("count", [0, -4, 2.5])
def test_bad_count_is_refused(count):
    with pytest.raises(ValueError, match="num_requests"):
        workload("mixed8", num_requests=count)


def test_cv_needs_a_rate():
    with pytest.raises(ValueError, match="give a rate too"):
        workload("mixed8", cv=2.0)


def test_requests_have_the_traces_lengths_and_times():
    trace = workload("mixed8", scale=4, rate=5.0)
    requests = requests_from_trace(trace, range(1000), seed=3)
    assert [(r.due_s, r.prompt_len, r.max_new_tokens) for r in requests] == list(trace.rows)
    assert [r.request_id for r in requests[:2]] == ["r0000", "r0001"]
    assert not any(r.stop_ids for r in requests)
    assert len({r.prompt for r in requests}) == len(requests)


def test_requests_repeat_for_a_seed():
    trace = Trace((TraceRow(0, 50, 1), TraceRow(0, 70, 1)))
    prompts = [[r.prompt for r in requests_from_trace(trace, range(400), seed)] for seed in (0, 0, 1)]
    assert prompts[0] == prompts[1] != prompts[2]


def test_no_torch_is_imported():
    code = "import sys, interleave.lab.workload; print({'torch', 'transformers', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
