"""What one point of the chapter on scale is: a simulated run, or several, summed up in one row.

By the model of step times that the point names. Torch-free; knows nothing of parameters or profiles.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from interleave.lab.deployment import Deployment, deployment
from interleave.lab.fleet import Fleet, FleetRun
from interleave.lab.latency_model import LatencyModel
from interleave.lab.metrics import Limits
from interleave.lab.point_table import Row
from interleave.lab.published_calibration import calibrate
from interleave.lab.reference import load_published
from interleave.lab.simulate_serve import draw_rows, machines, peak_bytes, saturated, served_rate
from interleave.lab.simulator import Served
from interleave.lab.slo_capacity import slo_capacity
from interleave.lab.step_fit import best_fit
from interleave.lab.ways_to_serve import (
    agents_and_others,
    saturated_with_agents,
    split,
    way_to_serve,
    with_agents,
)

FIRST_TOKEN = "ttft_p90_s"


@cache
def published_model() -> LatencyModel:
    """Step times of the published engine, from the calibration rows."""
    return best_fit(calibrate(load_published())).model


@cache
def _capacity(seed: int) -> float:
    """Requests/s of `chunked` on one machine with everybody waiting: what loads are multiples of."""
    return saturated(Fleet(served=Served(engine="chunked")), published_model(), seed)["served_rate"]


def _cost(config: Mapping[str, Any], model: LatencyModel) -> Row:
    number, rate = config["num_requests"], config["load"] * _capacity(config["seed"])
    start = time.perf_counter()
    run = Fleet(served=Served(engine="chunked")).run(draw_rows(number, rate, config["seed"]), number, model)
    seconds = time.perf_counter() - start
    return {
        "requests": number,
        "seconds": seconds,
        "requests_per_s": number / seconds,
        "events_per_request": run.table.num_events / number,
        "steps_per_request": run.table.num_steps / number,
        "peak_mib": peak_bytes() / 2**20,
    }


def _fleet(config: Mapping[str, Any], model: LatencyModel) -> Row:
    number = config["replicas"]
    fleet = deployment(Served(engine="chunked"), replicas=number, routing=config["routing"])
    row = _served(config, fleet, number * config["load"] * _capacity(config["seed"]), model)
    return {"machines": number, "routing": config["routing"], "load": config["load"], **row}


def _apart(config: Mapping[str, Any], model: LatencyModel) -> Row:
    number, prefill, rows, gbps = (config[name] for name in ("machines", "prefill_machines", "rows", "gbps"))
    tried = split(Served(engine="chunked", max_rows=rows), number, prefill, gbps)
    row = _served(config, tried, number * config["load"] * _capacity(config["seed"]), model)
    return {
        "machines": number,
        "prefill_machines": prefill,
        "rows": rows,
        "gbps": gbps,
        "load": config["load"],
        "saturated_rate": _saturated(number, prefill, rows, gbps, config["seed"]),
        **row,
    }


@cache
def _saturated(number: int, prefill: int, rows: int, gbps: float, seed: int) -> float:
    """The same at every load."""
    tried = split(Served(engine="chunked", max_rows=rows), number, prefill, gbps)
    return saturated(tried, published_model(), seed)["served_rate"]


def _budget(config: Mapping[str, Any], model: LatencyModel) -> Row:
    served = Served(engine="chunked", chunk_budget=config["budget"], tpot_target_s=config["target_s"])
    row = _served(config, Fleet(served=served), config["load"] * _capacity(config["seed"]), model)
    return {"budget": config["budget"], "target_s": config["target_s"], "load": config["load"], **row}


def _within(config: Mapping[str, Any], model: LatencyModel) -> Row:
    served, number = Served(engine=config["engine"]), config["replicas"]
    limits = Limits(config["ttft_limit_s"], None, config["gap_limit_s"])
    found = slo_capacity(
        split(served, number, config["prefill_machines"]),
        model,
        limits,
        config["share"],
        config["num_requests"] * number,
        config["seed"],
    )
    return {
        "engine": config["engine"],
        "machines": number,
        "prefill_machines": config["prefill_machines"],
        "saturated_rate": found["saturated"],
        "rate": found["rate"],
        "share_reached": found["share_reached"],
    }


def _served(config: Mapping[str, Any], tried: Deployment, rate: float, model: LatencyModel) -> Row:
    """What a run at an absolute rate left: rates, first tokens, gaps, and how busy the machines were."""
    number = config["num_requests"] * tried.num_machines
    run = tried.run(draw_rows(number, rate, config["seed"]), number, model)
    return {"rate": rate, "served_rate": served_rate(run.table), **_latencies(run)}


def _latencies(run: FleetRun) -> Row:
    table = run.table
    first = table.column("first_token_s") - table.column("due_s")
    longest = table.column("max_gap_s")
    busy = [machine["busy"] for machine in machines(run)]
    return {
        "ttft_p50_s": float(np.percentile(first, 50)),
        FIRST_TOKEN: float(np.percentile(first, 90)),
        "gap_p50_s": table.gaps.quantile(50),
        "gap_p99_s": table.gaps.quantile(99),
        "longest_gap_p50_s": float(np.nanmedian(longest)),
        "worst_gap_s": table.gaps.ends()[1],
        "busy_least": min(busy),
        "busy_most": max(busy),
    }


def _way(config: Mapping[str, Any], model: LatencyModel) -> Row:
    way, number = config["way"], config["machines"]
    rate = number * config["load"] * _capacity(config["seed"])
    tried = way_to_serve(way, number)
    most = saturated(tried, model, config["seed"])["served_rate"]
    row = _served(config, tried, rate, model)
    return {"way": way, "machines": number, "load": config["load"], "saturated_rate": most, **row}


def _agent(config: Mapping[str, Any], model: LatencyModel) -> Row:
    way, number, tokens, share = (config[name] for name in ("way", "machines", "agent_tokens", "agent_share"))
    rate = config["load"] * _agent_capacity(number, config["seed"], share, tokens)
    count = config["num_requests"] * number
    rows = with_agents(draw_rows(count, rate, config["seed"]), share, tokens, config["seed"])
    run = way_to_serve(way, number).run(rows, count, model)
    facts = {"way": way, "machines": number, "load": config["load"], "agent_tokens": tokens, "rate": rate}
    return {**facts, "served_rate": served_rate(run.table), **agents_and_others(run, tokens)}


@cache
def _agent_capacity(number: int, seed: int, share: float, tokens: int) -> float:
    """Requests/s of chunking on all machines with everybody, agents included, waiting."""
    return saturated_with_agents("chunked", number, published_model(), seed, share, tokens)


MEASURES = {
    "cost": _cost,
    "fleet": _fleet,
    "apart": _apart,
    "budget": _budget,
    "capacity": _within,
    "way": _way,
    "agent": _agent,
}
