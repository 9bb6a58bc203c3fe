"""Ways to serve that one is told to choose between, on the same machines, and prompts far longer than the rest.

By simulation, torch-free. Does not know which experiment asks, nor how the numbers are shown.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

import numpy as np

from interleave.lab.deployment import TRANSFER_GBPS, Deployment, deployment
from interleave.lab.fleet import FleetRun
from interleave.lab.latency_model import LatencyModel
from interleave.lab.point_table import Row
from interleave.lab.simulate_serve import SATURATED_RATE, SATURATED_REQUESTS, draw_rows, served_rate
from interleave.lab.simulator import Served
from interleave.lab.trace import TraceRow

APART = "apart"
WAYS = ("static", "continuous", "paged", "whole", "chunked", "mixed", APART)
"""Engines on every machine, or prefill and decode on machines of their own."""
ROUTING = "least_loaded"


def way_to_serve(name: str, num_machines: int) -> Deployment:
    """So many machines that serve one way of WAYS; apart, half of them compute prompts only."""
    if name == APART:
        return split(Served(engine="chunked"), num_machines, num_machines // 2)
    return split(Served(engine=name), num_machines, 0)


def split(served: Served, number: int, prefill: int, gbps: float = TRANSFER_GBPS) -> Deployment:
    """`number` machines, of which so many compute prompts only; 0 is serving alike on all of them."""
    if prefill == 0:
        return deployment(served, replicas=number, routing=ROUTING)
    return deployment(
        served,
        prefill_machines=prefill,
        decode_machines=number - prefill,
        routing=ROUTING,
        transfer_gbps=gbps,
    )


def with_agents(rows: Iterable[TraceRow], share: float, prompt_tokens: int, seed: int) -> Iterator[TraceRow]:
    """The same requests, a share of which, drawn by a generator of its own, has prompts of that many tokens."""
    rng = random.Random(seed)
    for row in rows:
        yield row._replace(prompt_tokens=prompt_tokens) if rng.random() < share else row


def saturated_with_agents(
    name: str, num_machines: int, model: LatencyModel, seed: int, share: float, agent_tokens: int
) -> float:
    """Requests/s with everybody, agents included, waiting; the same requests for each way."""
    rows = with_agents(draw_rows(SATURATED_REQUESTS, SATURATED_RATE, seed), share, agent_tokens, seed)
    return served_rate(way_to_serve(name, num_machines).run(rows, SATURATED_REQUESTS, model).table)


def agents_and_others(run: FleetRun, agent_tokens: int) -> Row:
    """First tokens of the agents' requests and of everybody else's, everybody's gaps, and how much of it is
    told by a model beyond what its fit has seen."""
    table = run.table
    first = table.column("first_token_s") - table.column("due_s")
    agents = table.column("prompt_tokens") == agent_tokens
    steps = sum(executor.num_outside for executor in run.executors)
    return {
        "agents": int(agents.sum()),
        "agent_ttft_p50_s": float(np.median(first[agents])) if agents.any() else None,
        "other_ttft_p90_s": float(np.percentile(first[~agents], 90)),
        "gap_p99_s": table.gaps.quantile(99),
        "worst_gap_s": table.gaps.ends()[1],
        "outside_share": steps / table.num_steps,
    }
