"""A long simulated run and what it says: the document of `interleave simulate serve`. Torch-free."""

from __future__ import annotations

import random
import resource
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from interleave.lab.arrivals import checked_positive
from interleave.lab.deployment import Deployment
from interleave.lab.fleet import FleetRun
from interleave.lab.latency_model import TICKS_PER_S, LatencyModel
from interleave.lab.quantiles import distribution
from interleave.lab.request_table import RequestTable
from interleave.lab.simulated_executor import SimulatedExecutor
from interleave.lab.trace import TraceRow
from interleave.lab.workload import PUBLISHED_NEW_TOKENS, PUBLISHED_PROMPT_LENS, scaled_len

SATURATED_REQUESTS = 4000
SATURATED_RATE = 1e6
"""Requests/s that no engine follows: nearly all are there at once."""


def draw_rows(num_requests: int, rate: float, seed: int = 0, scale: int = 1) -> Iterator[TraceRow]:
    """The published recipe as a stream: `published_draw` and Poisson arrivals, row by row."""
    checked_positive("rate", rate, "requests/s")
    prompts = [scaled_len(length, scale) for length in PUBLISHED_PROMPT_LENS]
    budgets = [scaled_len(length, scale) for length in PUBLISHED_NEW_TOKENS]
    choice, gap_s, due_s = random.Random(seed).choice, random.Random(seed).expovariate, 0.0
    for _ in range(num_requests):
        due_s += gap_s(rate)
        prompt = choice(prompts)
        yield TraceRow(due_s, prompt, choice(budgets))


def saturated(deployment: Deployment, model: LatencyModel, seed: int = 0, scale: int = 1) -> dict[str, float]:
    """Served rate with everybody waiting at once, and how fast the simulation of that was."""
    start = time.perf_counter()
    rows = draw_rows(SATURATED_REQUESTS, SATURATED_RATE, seed, scale)
    run = deployment.run(rows, SATURATED_REQUESTS, model)
    seconds = time.perf_counter() - start
    return {
        "served_rate": served_rate(run.table),
        "num_requests": SATURATED_REQUESTS,
        "seconds": seconds,
        "requests_per_second": SATURATED_REQUESTS / seconds,
    }


def served_rate(table: RequestTable) -> float:
    """Completed requests over the time from the first due time to the last token."""
    return float(table.num_completed / (table.column("last_token_s").max() - table.column("due_s")[0]))


def serve_document(
    deployment: Deployment,
    model: LatencyModel,
    rows: Iterator[TraceRow],
    num_requests: int,
    facts: Mapping[str, Any],
) -> dict[str, Any]:
    """Simulate and summarise. facts: rate, load, seed and the like, copied into the document."""
    start = time.perf_counter()
    run = deployment.run(rows, num_requests, model)
    table, executors = run.table, run.executors
    seconds = time.perf_counter() - start
    columns = {
        name: np.asarray(table.column(name), dtype=float)
        for name in ("due_s", "admit_s", "first_token_s", "last_token_s", "max_gap_s", "new_tokens")
    }
    several = columns["new_tokens"] > 1
    tpot = (columns["last_token_s"] - columns["first_token_s"])[several] / (
        columns["new_tokens"][several] - 1
    )
    return {
        **facts,
        "mark": "simulated",
        "num_requests": num_requests,
        "num_completed": table.num_completed,
        "served_rate": served_rate(table),
        "queue_wait_s": distribution((columns["admit_s"] - columns["due_s"]).tolist()),
        "ttft_s": distribution((columns["first_token_s"] - columns["due_s"]).tolist()),
        "tpot_s": distribution(tpot.tolist()),
        "max_gap_s": distribution(columns["max_gap_s"][several].tolist()),
        "gap_s": table.gaps.distribution(),
        "admission_groups": {str(size): count for size, count in sorted(table.groups.items())},
        "num_steps": table.num_steps,
        "num_events": table.num_events,
        "num_preemptions": table.num_preemptions,
        "mean_rows": table.row_steps / table.num_steps,
        "prefill_tokens": table.prefill_tokens,
        "recomputed_tokens": table.recomputed_tokens,
        "padded_tokens": table.padded_tokens,
        "new_tokens": table.new_tokens,
        "steps_outside_the_fit": sum(executor.num_outside for executor in executors),
        "outside": worst_outside(executors),
        "machines": machines(run),
        **_between(run),
        "simulation": {
            "seconds": seconds,
            "requests_per_second": num_requests / seconds,
            "peak_bytes": peak_bytes(),
        },
    }


def worst_outside(executors: Sequence[SimulatedExecutor]) -> dict[str, int]:
    """The largest value of each count outside its fitted range, over machines."""
    worst: dict[str, int] = {}
    for executor in executors:
        for name, value in executor.worst_outside.items():
            worst[name] = max(value, worst.get(name, value))
    return worst


def outside_lines(steps: int, num_steps: int, worst: Mapping[str, int]) -> list[str]:
    """The warning for a terminal that a run went beyond what its model was fitted to; none where it did not."""
    if not steps:
        return []
    largest = ", ".join(f"{name.replace('_', ' ')} (largest {value:,})" for name, value in worst.items())
    return [f"{'warning':14} {steps:,} of {num_steps:,} steps lie outside the fitted range: {largest}"]


def machines(run: FleetRun) -> list[dict[str, Any]]:
    """What each machine did: requests, steps, and the share of the run in which it computed."""
    span_s = float(np.nanmax(run.table.column("last_token_s")) - run.table.column("due_s")[0])
    listed = [(role, table) for role, tables in run.machines.items() for table in tables]
    return [
        {
            "role": role,
            "num_requests": table.num_arrived,
            "num_steps": table.num_steps,
            "busy": executor.busy_ticks / TICKS_PER_S / span_s,
        }
        for (role, table), executor in zip(listed, run.executors, strict=True)
    ]


def _between(run: FleetRun) -> dict[str, Any]:
    """Of prefill and decode apart: from the first token to the delivery of keys and values, then to admission."""
    if "decode" not in run.machines:
        return {}
    rest, first = run.machines["decode"][0], run.table.column("first_token_s")
    due, admit = rest.column("due_s"), rest.column("admit_s")
    sent = ~np.isnan(due)
    return {
        "delivery_s": distribution((due - first)[sent].tolist()),
        "decode_wait_s": distribution((admit - due)[sent].tolist()),
    }


def peak_bytes() -> int:
    """The process's largest resident set so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def serve_lines(document: Mapping[str, Any]) -> list[str]:
    """The document for a terminal."""
    run = document["simulation"]
    lines = [
        f"{'engine':14} {document['engine']}, {document['latency']} (simulated)",
        f"{'requests':14} {document['num_completed']:,} of {document['num_requests']:,}",
        f"{'served rate':14} {document['served_rate']:.3f} requests/s at {document['rate'] or 0:.3f} offered",
    ]
    if document.get("saturated"):
        at = document["saturated"]
        lines.append(f"{'saturated':14} {at['served_rate']:.3f} requests/s "
                     f"(simulated at {at['requests_per_second']:,.0f} requests/s)")  # fmt: skip
    shown = ("queue_wait_s", "ttft_s", "delivery_s", "decode_wait_s", "tpot_s", "max_gap_s", "gap_s")
    for name in shown:
        values = document.get(name)
        if values is None or not values["n"]:
            continue
        cells = ", ".join(
            f"{key} {values[key]:.4f}" for key in ("p50", "p95", "p99") if values[key] is not None
        )
        lines.append(f"{name[:-2]:14} {cells} s (n={values['n']:,})")
    if document["num_preemptions"]:
        lines.append(f"{'preempted':14} {document['num_preemptions']:,} times, {document['recomputed_tokens']:,} of "
                     f"{document['prefill_tokens']:,} prefill positions recomputed")  # fmt: skip
    lines += outside_lines(document["steps_outside_the_fit"], document["num_steps"], document["outside"])
    if len(document["machines"]) > 1:
        lines += [
            f"{one['role']:14} {one['num_requests']:,} requests, {one['num_steps']:,} steps, busy {one['busy']:.0%}"
            for one in document["machines"]
        ]
    lines.append(
        f"{'simulation':14} {run['seconds']:.2f} s, {run['requests_per_second']:,.0f} requests/s, "
        f"{document['num_events'] / document['num_requests']:.2f} events and "
        f"{document['num_steps'] / document['num_requests']:.2f} steps a request, peak "
        f"{run['peak_bytes'] / 2**20:.0f} MiB"
    )
    return lines
