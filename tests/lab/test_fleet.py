"""Replicas behind a router: one is the plain simulation, several are its sum, and routers see what has ended."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interleave.engine.batched import StepOutcome
from interleave.lab.fleet import Fleet
from interleave.lab.latency_model import LatencyModel
from interleave.lab.replica import OnStep, Replica
from interleave.lab.request_table import COLUMNS, COUNTS, RequestTable, number_of
from interleave.lab.routing import ROUTINGS
from interleave.lab.simulate_serve import draw_rows
from interleave.lab.simulator import Served, requests_of, simulate_table
from interleave.lab.trace import TraceRow

FLOOR = LatencyModel("step_floor", {"positions": 1e-3, "decode_attended": 1e-5}, floor_s=0.01)
TIMES = st.sampled_from([0.0, 0.001, 0.003, 0.01])


@st.composite
def models(draw: st.DrawFn) -> LatencyModel:
    """Few digits, so that steps of several replicas end together and on due times."""
    per = {"positions": draw(TIMES), "decode_rows": draw(TIMES), "decode_attended": draw(TIMES) / 10}
    return LatencyModel("step_floor", per, floor_s=draw(st.sampled_from([0.01, 0.02])), fixed_s=0.001)


@st.composite
def streams(draw: st.DrawFn) -> list[TraceRow]:
    lengths = draw(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 25)), min_size=1, max_size=16))
    due_s, rows = 0.0, []
    for prompt, new in lengths:
        due_s = round(due_s + draw(st.sampled_from([0.0, 0.01, 0.02, 0.05, 0.37])), 9)
        rows.append(TraceRow(due_s, prompt, new))
    return rows


def served(engine: str = "chunked", max_rows: int = 3) -> Served:
    return Served(engine=engine, max_rows=max_rows, chunk_budget=16, block_tokens=4, num_blocks=128)


def assert_same(ours: RequestTable, theirs: RequestTable, counts: tuple[str, ...] = COUNTS) -> None:
    for name in (*COLUMNS, *counts):
        np.testing.assert_array_equal(ours.column(name), theirs.column(name), err_msg=name)
    for mine, other in zip(ours.gaps.pairs(), theirs.gaps.pairs(), strict=True):
        np.testing.assert_array_equal(mine, other)
    for name in ("groups", "num_steps", "num_events", "num_completed", "prefill_tokens", "new_tokens"):
        assert getattr(ours, name) == getattr(theirs, name), name


@pytest.mark.parametrize("routing", sorted(ROUTINGS))
@pytest.mark.parametrize("engine", ["whole", "chunked", "mixed", "paged", "static", "continuous"])
@settings(max_examples=6)
@given(rows=streams(), model=models(), leap=st.booleans())
def test_a_fleet_of_one_is_the_plain_simulation(
    engine: str, routing: str, rows: list[TraceRow], model: LatencyModel, leap: bool
) -> None:
    fleet = Fleet(served=served(engine), routing=routing)
    plain, _ = simulate_table(served(engine), rows, len(rows), model, leap=leap)
    assert_same(fleet.run(rows, len(rows), model, leap=leap).table, plain)


@settings(max_examples=25)
@given(rows=streams(), model=models(), number=st.integers(2, 4))
def test_turns_make_independent_simulations(rows: list[TraceRow], model: LatencyModel, number: int) -> None:
    """Round robin does not look at the replicas, so each serves its own share as if it were alone."""
    run = Fleet(served=served(), num_replicas=number).run(rows, len(rows), model, leap=False)
    for index in range(min(number, len(rows))):
        own = rows[index::number]
        alone, _ = simulate_table(served(), own, len(own), model, leap=False)
        for name in (*COLUMNS, "admit_step"):
            np.testing.assert_array_equal(
                run.table.column(name)[index::number], alone.column(name), err_msg=name
            )
        assert run.machines["replica"][index].num_steps == alone.num_steps


@pytest.mark.parametrize("routing", sorted(ROUTINGS))
@settings(max_examples=30)
@given(
    rows=streams(),
    model=models(),
    number=st.integers(2, 4),
    allocation=st.sampled_from(["reserve", "progressive"]),
)
def test_leaping_equals_stepping(
    routing: str, rows: list[TraceRow], model: LatencyModel, number: int, allocation: str
) -> None:
    """Also for a router that asks in the middle of a leap what has been done, and where pools run dry."""
    small = replace(served(), num_blocks=24, allocation=allocation)
    fleet = Fleet(served=small, num_replicas=number, routing=routing)
    leapt = fleet.run(rows, len(rows), model, leap=True).table
    stepped = fleet.run(rows, len(rows), model, leap=False).table
    for name in (*COLUMNS, *COUNTS):
        np.testing.assert_allclose(
            leapt.column(name), stepped.column(name), rtol=1e-9 if name == "max_gap_s" else 0, err_msg=name
        )
    assert (leapt.num_steps, leapt.groups) == (stepped.num_steps, stepped.groups)


class Witness:
    """What each replica's steps did and when they ended, kept apart from the replicas' own books."""

    def __init__(self) -> None:
        self.done: dict[int, list[tuple[float, int]]] = defaultdict(list)
        self.ended_s: dict[int, float] = {}

    def watch(self, replica: Replica) -> OnStep:
        def hears(outcome: StepOutcome, end_s: float) -> None:
            assert outcome.executed.repeats == 1
            self.done[replica.index].append((end_s, outcome.prefill_tokens + len(outcome.tokens)))
            self.ended_s.update((number_of(one.request_id), end_s) for one in outcome.finished)

        return hears

    def loads(self, given: list[tuple[int, TraceRow]], index: int, at_s: float) -> tuple[int, int]:
        """(requests, tokens) outstanding at a replica that was given these so far."""
        live = sum(self.ended_s[number] > at_s for number, _ in given)
        asked = sum(row.prompt_tokens + row.new_tokens for _, row in given)
        return live, asked - sum(tokens for end_s, tokens in self.done[index] if end_s <= at_s)


@pytest.mark.parametrize("routing", ["least_loaded", "shortest_queue"])
@settings(max_examples=30)
@given(rows=streams(), model=models(), number=st.integers(2, 4))
def test_the_least_busy_replica_is_chosen(
    routing: str, rows: list[TraceRow], model: LatencyModel, number: int
) -> None:
    fleet, witness = Fleet(served=served(), num_replicas=number, routing=routing), Witness()
    table = RequestTable(len(rows))
    fleet.serve(requests_of(rows), table, model, leap=False, watch=witness.watch)
    given: list[list[tuple[int, TraceRow]]] = [[] for _ in range(number)]
    for request, (row, chosen) in enumerate(zip(rows, table.column("replica").tolist(), strict=True)):
        loads = [witness.loads(own, index, row.due_s) for index, own in enumerate(given)]
        wanted = [load[0 if routing == "shortest_queue" else 1] for load in loads]
        assert chosen == wanted.index(min(wanted)), (request, wanted)
        given[chosen].append((request, row))


def test_what_a_preempted_row_lost_is_outstanding_again() -> None:
    """Two rows outgrow a pool of 12 blocks: one restarts, and its positions are counted a second time."""
    rows = [TraceRow(0.0, 8, 25), TraceRow(0.0, 8, 25)]
    dry = replace(served(), num_blocks=12, allocation="progressive")
    run = Fleet(served=dry, routing="least_loaded").run(rows, 2, FLOOR)  # checks that nothing is left over
    assert run.table.num_preemptions > 0
    assert run.table.num_completed == 2


def test_a_router_that_looks_beats_one_that_does_not() -> None:
    rows = list(draw_rows(400, 60.0, scale=16))
    waits = {}
    for routing in ROUTINGS:
        table = Fleet(served=served(max_rows=8), num_replicas=4, routing=routing).run(rows, 400, FLOOR).table
        assert table.num_completed == 400
        waits[routing] = float((table.column("first_token_s") - table.column("due_s")).mean())
    assert waits["least_loaded"] < waits["round_robin"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"num_replicas": 0}, "num_replicas must be an integer of at least 1, got 0"),
        ({"routing": "shortest-queue"}, "did you mean 'shortest_queue'"),
    ],
)
def test_wrong_values_are_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Fleet(served=served(), **change)


def test_a_request_that_cannot_fit_leaves_nobody_live() -> None:
    rows = [TraceRow(0.0, 20, 4), TraceRow(0.0, 20, 4), TraceRow(0.01, 600, 4)]
    seen: list[Replica] = []

    def watch(replica: Replica) -> OnStep:
        seen.append(replica)
        return lambda _outcome, _end_s: None

    with pytest.raises(ValueError, match="needs 151 blocks of 4 tokens, the pool has 128"):
        Fleet(served=served(), num_replicas=2).serve(requests_of(rows), RequestTable(3), FLOOR, watch=watch)
    assert [replica.engine.scheduler.live_ids for replica in seen] == [[], []]


def test_an_adaptive_budget_keeps_steps_within_its_target() -> None:
    rows = list(draw_rows(200, 6.0, scale=4))
    fixed = Served(engine="chunked", max_rows=8, chunk_budget=512, block_tokens=16)
    adaptive = Served(engine="chunked", max_rows=8, chunk_budget=512, block_tokens=16, tpot_target_s=0.1)
    longest = {}
    for name, one in (("fixed", fixed), ("adaptive", adaptive)):
        longest[name] = Fleet(served=one, num_replicas=2).run(rows, 200, FLOOR).table.gaps.ends()[1]
    assert longest["adaptive"] <= 0.1 + 1e-9 < longest["fixed"]
