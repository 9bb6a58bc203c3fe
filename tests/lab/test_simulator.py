"""The simulator: leaping equals stepping, the table equals the log, and bad input is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interleave.engine.batched import StepOutcome
from interleave.engine.ladder import ENGINES
from interleave.lab.latency_model import OVERLAPS, LatencyModel
from interleave.lab.metrics import check_budget, check_order, gaps_s, max_gap_s
from interleave.lab.request_table import COLUMNS, RequestTable
from interleave.lab.simulator import Served, requests_of, simulate, simulate_table
from interleave.lab.trace import Trace, TraceRow
from interleave.lab.virtual_clock import Arrivals
from interleave.schedule.allocation import ALLOCATIONS
from interleave.schedule.block_pool import need_blocks

SIMULATED = [name for name, spec in ENGINES.items() if spec.kv in ("slots", "blocks")]
GROUPS = ("static", "continuous", "paged")

Composition = tuple[tuple[tuple[str, int, int], ...], ...]


@st.composite
def models(draw: st.DrawFn) -> LatencyModel:
    """Times that kink, tie and vanish: few digits, so that steps end exactly on due times too."""
    times = st.sampled_from([0.0, 0.001, 0.003, 0.01])
    per = {
        "forwards": draw(times),
        "positions": draw(times),
        "prefill_attended": draw(times) / 10,
        "dense_attended": draw(times) / 10,
        "decode_rows": draw(times),
        "decode_attended": draw(times) / 10,
        "slot_attended": draw(times) / 10,
        "copied_rows": draw(times),
    }
    return LatencyModel(
        draw(st.sampled_from(OVERLAPS)),
        per,
        floor_s=draw(st.sampled_from([0.0, 0.01, 0.02, 0.05])),
        fixed_s=draw(st.sampled_from([0.001, 0.01])),
        weights_s=draw(st.sampled_from([0.0, 0.005])),
    )


@st.composite
def cases(draw: st.DrawFn, engine: str, order: str | None) -> tuple[Served, Trace]:
    max_rows = draw(st.integers(1, 6))
    lengths = draw(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 25)), min_size=1, max_size=12))
    gaps = st.sampled_from([0.0, 0.01, 0.05, 0.37]) | st.floats(0, 0.5)
    due_s, rows = 0.0, []
    for prompt, new in lengths:
        due_s = round(due_s + draw(gaps), 9)
        rows.append(TraceRow(due_s, prompt, new))
    widest = max(need_blocks(row.prompt_tokens + row.new_tokens, 4) for row in rows)
    chunking = engine in ("chunked", "mixed")
    served = Served(
        engine=engine,
        order=order,
        allocation=draw(st.sampled_from(sorted(ALLOCATIONS)))
        if ENGINES[engine].kv == "blocks"
        else "reserve",
        max_rows=max_rows,
        chunk_budget=draw(st.integers(1, 20)),
        max_chunk=draw(st.none() | st.integers(1, 20)) if chunking else None,
        token_budget=None if engine in GROUPS else draw(st.none() | st.integers(max_rows + 1, max_rows + 20)),
        block_tokens=4,
        num_blocks=draw(st.integers(widest, 4 * widest)),  # from one request's room on
    )
    return served, Trace(tuple(rows))


def run(
    served: Served, trace: Trace, model: LatencyModel, leap: bool
) -> tuple[RequestTable, list[Composition]]:
    """The table, and the plan of every step with leaps taken apart."""
    plans: list[Composition] = []

    def keep(outcome: StepOutcome, _end_s: float) -> None:
        for step in range(outcome.executed.repeats):
            plans.append(
                tuple(
                    tuple((name, start + step * count, count) for name, start, count in forward)
                    for forward in outcome.plan.composition()
                )
            )

    table, _ = simulate_table(served, trace.rows, len(trace), model, leap=leap, on_step=keep)
    return table, plans


@pytest.mark.parametrize(
    ("engine", "order"),
    [
        (engine, order)
        for engine in SIMULATED
        for order in (None, "decode_first", "prefill_first")
        if not (engine in GROUPS and order == "decode_first")  # refused: a group runs first
    ],
)
@settings(max_examples=40)
@given(data=st.data())
def test_leaping_equals_stepping(engine: str, order: str | None, data: st.DataObject) -> None:
    served, trace = data.draw(cases(engine, order))
    model = data.draw(models())
    leapt, leapt_plans = run(served, trace, model, leap=True)
    stepped, stepped_plans = run(served, trace, model, leap=False)
    assert leapt_plans == stepped_plans
    for name in COLUMNS:
        if name != "max_gap_s":  # a difference of two rounded times
            np.testing.assert_array_equal(leapt.column(name), stepped.column(name))
    np.testing.assert_allclose(leapt.column("max_gap_s"), stepped.column("max_gap_s"), rtol=1e-9)
    assert np.array_equal(leapt.column("admit_step"), stepped.column("admit_step"))
    assert (leapt.groups, leapt.num_steps) == (stepped.groups, stepped.num_steps)
    for count in ("num_preemptions", "recomputed_tokens", "prefill_tokens", "row_steps"):
        assert getattr(leapt, count) == getattr(stepped, count)
    assert leapt.gaps.distribution()["n"] == stepped.gaps.distribution()["n"]
    for ours, theirs in zip(leapt.gaps.ends(), stepped.gaps.ends(), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-9)


def test_leaps_are_taken() -> None:
    served, trace = Served(engine="chunked"), Trace((TraceRow(0.0, 4096, 256), TraceRow(0.0, 16, 64)))
    model = LatencyModel("step_floor", {"positions": 6e-5}, floor_s=0.03)
    events: list[int] = []
    table, _ = simulate_table(
        served, trace.rows, 2, model, on_step=lambda outcome, _: events.append(outcome.executed.repeats)
    )
    assert table.num_steps == sum(events) == 8 + 255
    assert len(events) < 10


def test_a_leap_counts_the_steps_that_are_outside_of_the_fit() -> None:
    """Into the range of what decodes see and out of it again within one leap."""
    fitted = {"forwards": (1, 1), "positions": (1, 10), "prefill_attended": (0, 55)}
    fitted |= {"decode_rows": (0, 1), "decode_attended": (20, 60)}
    model = LatencyModel("additive", {"positions": 1e-3}, fitted=fitted)
    served, rows = Served(engine="chunked"), (TraceRow(0.0, 10, 91),)
    table, leapt = simulate_table(served, rows, 1, model)
    _, stepped = simulate_table(served, rows, 1, model, leap=False)
    assert table.num_events < table.num_steps
    # 90 decodes see 11 .. 100 positions; the prompt sees none as a decode.
    assert leapt.num_outside == stepped.num_outside == 1 + 9 + 40
    assert leapt.worst_outside == stepped.worst_outside == {"decode_attended": 100}


@pytest.mark.parametrize("engine", [name for name in SIMULATED if ENGINES[name].kv == "blocks"])
def test_the_table_says_what_the_log_says_of_a_pool_that_runs_dry(engine: str) -> None:
    rows = tuple(TraceRow(0.4 * n, 1 + 37 * n % 300, 1 + 11 * n % 200) for n in range(40))
    served = Served(engine=engine, max_rows=16, num_blocks=40, block_tokens=16, allocation="progressive")
    table = compare_with_the_log(served, rows)
    assert table.num_preemptions > 5
    assert 0 < table.recomputed_tokens < table.prefill_tokens


@pytest.mark.parametrize("engine", SIMULATED)
def test_the_table_says_what_the_log_says(engine: str) -> None:
    rows = tuple(TraceRow(0.4 * n, 1 + 37 * n % 900, 1 + 11 * n % 60) for n in range(40))
    compare_with_the_log(Served(engine=engine, max_rows=8), rows)


def compare_with_the_log(served: Served, rows: tuple[TraceRow, ...]) -> RequestTable:
    trace = Trace(rows)
    model = LatencyModel("forward_floor", {"positions": 1e-4, "decode_attended": 1e-7}, floor_s=0.02)
    log = simulate(served, trace, model)
    table, _ = simulate_table(served, rows, len(rows), model)
    for record in log.requests:
        check_order(record)
        check_budget(record)
    assert table.num_completed == len(rows)
    for name in ("due_s", "admit_s", "first_chunk_s", "first_token_s", "last_token_s"):
        assert table.column(name).tolist() == [getattr(record, name) for record in log.requests]
    longest = [max_gap_s(record) for record in log.requests]
    assert table.column("max_gap_s").tolist() == pytest.approx(
        [np.nan if gap is None else gap for gap in longest], rel=1e-9, nan_ok=True
    )
    gaps = sorted(gap for record in log.requests for gap in gaps_s(record))
    assert table.gaps.distribution()["n"] == len(gaps)
    for percent in (50, 90):
        exact = gaps[round((len(gaps) - 1) * percent / 100)]
        assert table.gaps.quantile(percent) == pytest.approx(exact, rel=3e-3)
    assert table.num_preemptions == sum(step.preempted for step in log.steps)
    assert table.recomputed_tokens == sum(step.recomputed_tokens for step in log.steps)
    assert table.row_steps == sum(step.rows for step in log.steps)
    return table


def test_rows_out_of_order_are_refused() -> None:
    rows = [TraceRow(1.0, 5, 5), TraceRow(0.5, 5, 5)]
    with pytest.raises(ValueError, match=r"'r0001' is due at 0\.5 s, before"):
        list(Arrivals(requests_of(rows)))


def test_a_request_that_can_never_fit_is_refused_with_the_numbers() -> None:
    served = Served(engine="chunked", num_blocks=4)
    with pytest.raises(ValueError, match="needs 5 blocks of 64 tokens, the pool has 4"):
        simulate(served, Trace((TraceRow(0.0, 256, 64),)), LatencyModel("additive", {}, fixed_s=0.01))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"engine": "chunkd"}, "did you mean 'chunked'"),
        ({"engine": "nocache"}, "'nocache' is not simulated"),
    ],
)
def test_a_wrong_engine_is_refused(change: dict[str, str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Served(**({"engine": "chunked"} | change))


def test_importing_it_brings_no_torch() -> None:
    code = "import sys, interleave.lab.simulator; print({'torch', 'pandas', 'numba'} & set(sys.modules))"
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(root / "src"), "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "set()", done.stderr
