"""Capacity under limits: what meets them is counted as the full log counts it, and bisection ends at the edge."""

from __future__ import annotations

from dataclasses import replace

import pytest
from click.testing import CliRunner

from interleave.cli.main import main
from interleave.lab.fleet import Fleet
from interleave.lab.latency_model import LatencyModel
from interleave.lab.metrics import Limits
from interleave.lab.plan_features import FEATURES
from interleave.lab.simulate_serve import draw_rows
from interleave.lab.simulator import Served, simulate, simulate_table
from interleave.lab.slo_capacity import share_within, slo_capacity
from interleave.lab.trace import Trace

MODEL = LatencyModel("additive", {"positions": 6e-5, "decode_attended": 2e-7}, fixed_s=0.03)
SERVED = Served(engine="chunked", max_rows=8, chunk_budget=128, block_tokens=16)


@pytest.mark.parametrize(
    "limits", [Limits(ttft_s=0.8), Limits(tpot_s=0.033), Limits(max_gap_s=0.035), Limits(3.0, 0.034, 0.038)]
)
def test_the_share_is_that_of_the_log(limits: Limits) -> None:
    rows = list(draw_rows(150, 9.0, seed=3, scale=4))
    table, _ = simulate_table(SERVED, rows, len(rows), MODEL)
    log = simulate(SERVED, Trace(tuple(rows)), MODEL)
    exact = sum(map(limits.met_by, log.requests)) / len(rows)
    assert 0 < exact < 1
    assert share_within(table, limits) == pytest.approx(exact)


def test_the_rate_found_is_the_edge() -> None:
    limits = Limits(ttft_s=1.0)
    found = slo_capacity(Fleet(served=SERVED), MODEL, limits, 0.9, 150, scale=4)
    assert 0 < found["rate"] < found["saturated"] * 1.25
    assert found["share_reached"] >= 0.9
    rows = list(draw_rows(150, found["rate"] * 1.2, scale=4))
    assert share_within(simulate_table(SERVED, rows, 150, MODEL)[0], limits) < 0.9


@pytest.mark.parametrize(("most", "beyond"), [(10**9, False), (256, True)])
def test_steps_outside_of_the_fit_are_said(most: int, beyond: bool) -> None:
    """Of all rates that were tried; saturating alone tells nothing about the limits."""
    model = replace(MODEL, fitted=dict.fromkeys(FEATURES, (0, 10**9)) | {"decode_attended": (0, most)})
    found = slo_capacity(Fleet(served=SERVED), model, Limits(ttft_s=1.0), 0.9, 50, scale=4)
    assert 0 <= found["steps_outside_the_fit"] < found["num_steps"]
    assert (found["steps_outside_the_fit"] > 0) == beyond
    assert found["outside"].keys() == ({"decode_attended"} if beyond else set())
    # By the published model, which has seen 32 rows.
    choices = ["--max-rows", "64", "--num-requests", "100", "--ttft-s", "2"]
    done = CliRunner().invoke(main, ["simulate", "capacity", *choices])
    assert "steps lie outside the fitted range: decode rows (largest " in done.stdout


def test_limits_that_nothing_meets() -> None:
    found = slo_capacity(Fleet(served=SERVED), MODEL, Limits(ttft_s=1e-6), 0.9, 20, scale=4)
    assert (found["rate"], found["share_reached"]) == (None, 0.0)


def test_limits_that_everything_meets() -> None:
    found = slo_capacity(Fleet(served=SERVED), MODEL, Limits(max_gap_s=1e9), 0.9, 20, scale=4)
    assert found["limits_bind"] is False
    assert found["rate"] == pytest.approx(1.25 * found["saturated"])
    choices = ["--scale", "8", "--num-requests", "20", "--max-gap-s", "1e9"]
    done = CliRunner().invoke(main, ["simulate", "capacity", *choices])
    assert "the limits do not bind" in done.stdout


def test_no_limit_is_refused() -> None:
    done = CliRunner().invoke(main, ["simulate", "capacity"])
    assert done.exit_code == 2
    assert "at least one limit" in done.stderr
