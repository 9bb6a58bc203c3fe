"""The regime map on a made-up machine: what long prompts do to each policy there, and rows read back."""

from __future__ import annotations

import pytest

from interleave.lab import regime_map
from interleave.lab.latency_model import LatencyModel
from interleave.lab.long_prompts import long_prompts
from interleave.lab.plan_features import Features
from interleave.lab.simulator import Served
from interleave.lab.step_traces import TimedStep

MODEL = LatencyModel("additive", {"forwards": 0.01, "positions": 0.001})
T = 512


def served(engine: str, order: str) -> Served:
    return Served(engine=engine, order=order, max_rows=8, chunk_budget=T, token_budget=T, block_tokens=64)


POLICIES = {"whole": served("whole", "prefill_first"), "mixed": served("mixed", "decode_first")}


def cells(share: float, load: float) -> dict[str, dict[str, float]]:
    rows = regime_map.cells(
        POLICIES, served("chunked", "decode_first"), MODEL,
        shares=[share], loads=[load], scale=1, num_requests=200, seed=3, longest=T + 1,
    )  # fmt: skip
    assert [(row["share"], row["load"]) for row in rows] == [(share, load)] * 2
    return {str(row["policy"]): row for row in rows}  # type: ignore[misc]


def test_chunks_shorten_gaps_and_delay_the_long_prompts_themselves() -> None:
    by = cells(0.35, 0.8)
    assert by["mixed"]["max_gap_s"] < by["whole"]["max_gap_s"]
    assert by["mixed"]["worst_gap_s"] < 0.8 * by["whole"]["worst_gap_s"]
    assert by["mixed"]["ttft_long_s"] > by["whole"]["ttft_long_s"]


def test_without_long_prompts_there_is_nothing_to_cut() -> None:
    by = cells(0.0, 0.5)
    assert by["mixed"]["ttft_long_s"] is by["whole"]["ttft_long_s"] is None
    assert by["mixed"]["ttft_short_s"] == pytest.approx(by["whole"]["ttft_short_s"], rel=0.05)


def test_a_served_rate_below_capacity_is_the_arriving_one() -> None:
    row = cells(0.35, 0.5)["mixed"]
    assert row["served_rate"] == pytest.approx(row["rate"], rel=0.1)


def test_latencies_are_medians_of_their_own_kind() -> None:
    requests = [
        {"ttft_s": 1.0, "max_gap_s": 0.5, "long": 0.0},
        {"ttft_s": 3.0, "max_gap_s": None, "long": 0.0},
        {"ttft_s": 9.0, "max_gap_s": 0.7, "long": 1.0},
    ]
    assert regime_map.latencies(requests) == pytest.approx(
        {"max_gap_s": 0.6, "worst_gap_s": 0.7, "ttft_short_s": 2.0, "ttft_long_s": 9.0}
    )
    assert regime_map.latencies(requests[:2])["ttft_long_s"] is None


def test_forwards_come_back_as_the_steps_they_were() -> None:
    chunk = Features(forwards=1, positions=32, prefill_attended=528)
    decodes = Features(forwards=1, positions=3, decode_rows=3, decode_attended=90)
    steps = [TimedStep([chunk, decodes], 0.05), TimedStep([decodes], 0.02)]
    assert regime_map.steps_of(regime_map.forward_rows(steps)) == steps


def test_the_fit_finds_the_machine_that_made_the_steps() -> None:
    decodes = [Features(1, rows, 0, 0, rows, 20 * rows) for rows in range(1, 9)]
    chunks = [Features(1, n, n * (n + 1) // 2) for n in range(1, 33)]
    plans = [[forward] for forward in (*decodes, *chunks)] + [
        [c, d] for c, d in zip(chunks, 4 * decodes, strict=True)
    ]
    model, rms = regime_map.step_model([TimedStep(plan, MODEL.step_s(plan)) for plan in plans])
    assert rms < 1e-6
    assert model.fitted is None
    trace = long_prompts(0.35, num_requests=40, rate=0.5)
    ours, theirs = (regime_map.simulated(POLICIES["mixed"], trace, m, T + 1) for m in (MODEL, model))
    assert ours == pytest.approx(theirs)
