"""Prefill and decode apart: every token once, nothing before it was delivered, times as by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interleave.lab.disaggregation import Disaggregated, Link
from interleave.lab.fleet import Fleet
from interleave.lab.latency_model import LatencyModel
from interleave.lab.request_table import COLUMNS, COUNTS
from interleave.lab.routing import ROUTINGS
from interleave.lab.simulator import Served
from interleave.lab.trace import TraceRow

SECOND = LatencyModel("additive", {}, fixed_s=1.0)
MEBIBYTE = 1 << 20


def disaggregated(
    prefill_machines: int = 1,
    decode_machines: int = 1,
    *,
    routing: str = "round_robin",
    gbps: float = 8 * MEBIBYTE / 1e9,  # a token of one MiB takes a second
    latency_s: float = 0.0,
    max_rows: int = 4,
    engine: str = "chunked",
) -> Disaggregated:
    sizes: dict[str, Any] = {"max_rows": max_rows, "chunk_budget": 16, "block_tokens": 4, "num_blocks": 128}
    return Disaggregated(
        prefill=Fleet(served=Served(engine="whole", **sizes), num_replicas=prefill_machines, routing=routing),
        decode=Fleet(served=Served(engine=engine, **sizes), num_replicas=decode_machines, routing=routing),
        link=Link(gbps=gbps, latency_s=latency_s, kv_bytes_per_token=MEBIBYTE),
    )


def test_two_requests_by_hand() -> None:
    """A step takes a second, a token's keys and values a second on the link, half a second more to arrive.

    Both prompts (3 and 5) are computed in the step 0..1. The first is sent 1..4 and arrives at 4.5, the
    second has to wait for the link, 4..9, and arrives at 9.5. Decode steps are 4.5..5.5 and so on.
    """
    rows = [TraceRow(0.0, 3, 4), TraceRow(0.0, 5, 2)]
    run = disaggregated(latency_s=0.5).run(rows, 2, SECOND)
    rest = run.machines["decode"][0]
    assert run.table.column("first_token_s").tolist() == [1.0, 1.0]
    assert rest.column("due_s").tolist() == [4.5, 9.5]
    assert rest.column("admit_s").tolist() == [4.5, 9.5]
    assert run.table.column("last_token_s").tolist() == [7.5, 10.5]
    assert run.table.column("max_gap_s").tolist() == [4.5, 9.5]  # from the first token to the second
    assert run.table.column("new_tokens").tolist() == [4, 2]
    assert run.table.gaps.distribution()["n"] == 4


def test_one_token_needs_no_decode_machine() -> None:
    run = disaggregated().run([TraceRow(0.0, 7, 1), TraceRow(3.0, 7, 1)], 2, SECOND)
    assert run.table.column("last_token_s").tolist() == [1.0, 4.0]
    assert run.machines["decode"][0].num_arrived == 0


@st.composite
def streams(draw: st.DrawFn) -> list[TraceRow]:
    lengths = draw(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 25)), min_size=1, max_size=14))
    due_s, rows = 0.0, []
    for prompt, new in lengths:
        due_s = round(due_s + draw(st.sampled_from([0.0, 0.01, 0.05, 0.37])), 9)
        rows.append(TraceRow(due_s, prompt, new))
    return rows


@st.composite
def settings_of(draw: st.DrawFn) -> Disaggregated:
    return disaggregated(
        draw(st.integers(1, 3)),
        draw(st.integers(1, 3)),
        routing=draw(st.sampled_from(sorted(ROUTINGS))),
        gbps=draw(st.sampled_from([0.1, 8.0, math.inf])),
        latency_s=draw(st.sampled_from([0.0, 0.01, 0.3])),
        max_rows=draw(st.integers(1, 4)),
        engine=draw(st.sampled_from(["whole", "chunked", "mixed"])),
    )


MODEL = LatencyModel("step_floor", {"positions": 1e-3, "decode_rows": 3e-3, "decode_attended": 1e-5}, 0.01)


@settings(max_examples=40)
@given(rows=streams(), setting=settings_of())
def test_every_token_is_made_once_and_nothing_before_its_delivery(
    rows: list[TraceRow], setting: Disaggregated
) -> None:
    run = setting.run(rows, len(rows), MODEL)
    table, rest = run.table, run.machines["decode"][0]
    budgets = np.array([row.new_tokens for row in rows])
    prompts = np.array([row.prompt_tokens for row in rows])
    sent = budgets > 1
    assert table.num_completed == len(rows)
    assert table.new_tokens == budgets.sum()
    assert table.gaps.distribution()["n"] == (budgets - 1).sum()
    assert table.prefill_tokens == prompts.sum()  # a delivered prompt is not computed again
    assert sum(one.num_arrived for one in run.machines["decode"]) == sent.sum()
    first, last = table.column("first_token_s"), table.column("last_token_s")
    travel = np.array([setting.link.busy_ticks(int(n)) + setting.link.latency_ticks for n in prompts]) / 1e15
    assert np.all(rest.column("due_s")[sent] >= (first + travel)[sent] - 1e-12)
    assert np.all(rest.column("admit_s")[sent] >= rest.column("due_s")[sent])
    assert np.all(last[sent] > rest.column("admit_s")[sent])
    assert np.array_equal(last[~sent], first[~sent])
    assert np.all(table.column("max_gap_s")[sent] >= (rest.column("due_s") - first)[sent])


@settings(max_examples=30)
@given(rows=streams(), setting=settings_of())
def test_leaping_equals_stepping(rows: list[TraceRow], setting: Disaggregated) -> None:
    leapt, stepped = (setting.run(rows, len(rows), MODEL, leap=leap) for leap in (True, False))
    for ours, theirs in (
        (leapt.table, stepped.table),
        (leapt.machines["decode"][0], stepped.machines["decode"][0]),
    ):
        for name in (*COLUMNS, *COUNTS):
            np.testing.assert_allclose(
                ours.column(name),
                theirs.column(name),
                rtol=1e-9 if name == "max_gap_s" else 0,
                err_msg=name,
            )
        assert ours.num_steps == theirs.num_steps


@settings(max_examples=20)
@given(rows=streams())
def test_a_decode_machine_that_runs_dry_computes_a_delivered_prompt_again(rows: list[TraceRow]) -> None:
    setting = disaggregated(max_rows=4)
    dry = replace(setting.decode.served, num_blocks=24, allocation="progressive")
    setting = replace(setting, decode=replace(setting.decode, served=dry))
    run = setting.run(rows, len(rows), MODEL)
    assert run.table.num_completed == len(rows)
    assert run.table.gaps.distribution()["n"] == sum(row.new_tokens - 1 for row in rows)


def test_decoding_apart_takes_the_steps_of_decoding_together() -> None:
    """With a link that takes no time and everything due at once, a row decodes in as many steps."""
    rows = [TraceRow(0.0, 8, 6)]
    run = disaggregated(gbps=math.inf).run(rows, 1, SECOND)
    assert run.table.column("last_token_s").tolist() == [6.0]  # one prefill step, five decodes
    assert [table.num_steps for role in run.machines.values() for table in role] == [1, 5]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"gbps": 0.0}, "gbps must be at least 1e-06"),
        ({"gbps": 1e-300}, "gbps must be at least 1e-06"),
        ({"gbps": math.nan}, "gbps must be at least 1e-06"),
        ({"latency_s": 1e300}, "latency_s must lie between 0 and 86400"),
        ({"latency_s": -1.0}, "latency_s must lie between 0 and 86400.0 seconds, got -1.0"),
        ({"kv_bytes_per_token": 0}, "kv_bytes_per_token must be an integer of at least 1, got 0"),
    ],
)
def test_a_wrong_link_is_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Link(**({"gbps": 1.0, "latency_s": 0.0, "kv_bytes_per_token": 8} | change))
