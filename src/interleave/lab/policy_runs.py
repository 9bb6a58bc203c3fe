"""The runs behind the policies chapter: one policy at one load, and what is computed from several of them.

A run's configuration: trace, share (of long prompts, for that trace), policy, order, token_budget (before
it is divided by scale), load (None: everybody waits from the start), and the sizes they share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from interleave.engine.records import RequestRecord, RunLog
from interleave.lab import metrics, regime_map
from interleave.lab.long_prompts import long_prompts
from interleave.lab.point_table import Row, one_table
from interleave.lab.quantiles import quantile
from interleave.lab.serving import ServingSetting, serve_checked, serve_discarded, trace_engine
from interleave.lab.simulator import Served
from interleave.lab.step_traces import timed_steps
from interleave.lab.trace import Trace
from interleave.lab.workload import requests_from_trace, scaled_block_tokens, workload
from interleave.schedule.policies import DEFAULT_ORDER

Config = Mapping[str, Any]
USUAL_BUDGET = 512
USUAL_ORDER = DEFAULT_ORDER
CAPACITY_ENGINE = "chunked"
RUN_FACTS = ("trace", "share", "policy", "order", "token_budget", "load")
WORKLOADS = {"published": "published", "uniform": "uniform32"}


def run_label(config: Config) -> str:
    """Names a run by its `RUN_FACTS`."""
    mix = config["trace"] + ("" if config["share"] is None else f" {config['share']:g}")
    load = "all waiting" if config["load"] is None else f"{config['load']:g} x"
    return f"{mix}, {config['policy']} {config['order']}, T {config['token_budget']}, {load}"


def effective_budget(token_budget: int, scale: int, max_rows: int) -> int:
    """Query positions in a step: the budget at its scale, but never too few for all rows and a chunk."""
    return max(token_budget // scale, max_rows + 1)


def policy_trace(config: Config, rate: float | None) -> Trace:
    """The requests of a run, arriving at `rate` per second."""
    sizes: dict[str, Any] = {name: config[name] for name in ("scale", "num_requests", "seed")}
    if config["trace"] == "long":
        return long_prompts(config["share"], rate=rate, **sizes)
    return workload(WORKLOADS[config["trace"]], rate=rate, **sizes)


def served_by(config: Config, policy: str | None = None) -> Served:
    """The engine of a run, or `policy` in its usual order at the usual budget, as the simulator knows it."""
    budget = config["token_budget"] if policy is None else USUAL_BUDGET
    tokens = effective_budget(budget, config["scale"], config["max_rows"])
    return Served(
        engine=policy or config["policy"],
        order=USUAL_ORDER[policy] if policy else config["order"],
        max_rows=config["max_rows"],
        chunk_budget=tokens,
        token_budget=tokens,
        block_tokens=scaled_block_tokens(config["scale"]),
    )


def longest_whole(config: Config) -> int:
    """The fewest tokens of a prompt that the usual budget cuts."""
    return effective_budget(USUAL_BUDGET, config["scale"], config["max_rows"]) + 1


def run_rows(config: Config, setting: ServingSetting, earlier: Mapping[str, list[Row]]) -> list[Row]:
    """Serve the trace: a row per request, and one per forward of the runs that the map is fitted to."""
    rate = None
    if config["load"] is not None:
        reference = {"policy": CAPACITY_ENGINE, "order": USUAL_ORDER[CAPACITY_ENGINE]}
        full = {**config, **reference, "token_budget": USUAL_BUDGET, "load": None}
        capacity = earlier[run_label(full)][0]["served_rate"]
        assert isinstance(capacity, float)
        rate = config["load"] * capacity
    trace, served = policy_trace(config, rate), served_by(config)
    engine = trace_engine(
        served.engine,
        setting.model,
        trace,
        order=served.order,
        max_rows=served.max_rows,
        chunk_budget=served.chunk_budget,
        token_budget=served.token_budget,
        block_tokens=served.block_tokens,
    )
    requests = requests_from_trace(trace, setting.tokens, config["seed"])
    serve_discarded(engine, requests)
    log = serve_checked(engine, requests)
    facts = {name: config[name] for name in RUN_FACTS} | _run_facts(log, rate)
    rows = [_request_row(record, longest_whole(config)) for record in log.requests]
    if is_mapped(config):
        steps = timed_steps(served, log.requests, log.steps)
        rows += [{"kind": "forward", **row} for row in regime_map.forward_rows(steps)]
    return one_table(facts, rows)


def is_mapped(config: Config) -> bool:
    """Whether a run is one of those that the map compares: long prompts, the usual order and budget."""
    usual = config["order"] == USUAL_ORDER[config["policy"]] and config["token_budget"] == USUAL_BUDGET
    return bool(config["trace"] == "long" and usual and config["load"] is not None)


def _run_facts(log: RunLog, rate: float | None) -> Row:
    gaps = [gap for record in log.requests for gap in metrics.gaps_s(record)]
    new_tokens = sum(len(record.tokens) for record in log.requests)
    span = metrics.span_s(log)
    return {
        "rate": rate,
        "wall_s": log.wall_s,
        "served_rate": metrics.served_rate(log),
        "output_rate": None if span is None else new_tokens / span,
        "gap_p50_s": quantile(gaps, 50),
        "worst_gap_s": max((gap.gap_s for gap in metrics.incumbent_gaps(log)), default=None),
        "run_steps": len(log.steps),
        "run_forwards": sum(step.forwards for step in log.steps),
    }


def _request_row(record: RequestRecord, longest: int) -> Row:
    return {
        "kind": "request",
        "request": record.request_id,
        "prompt_tokens": record.prompt_tokens,
        "long": record.prompt_tokens >= longest,
        "due_s": record.due_s,
        "ttft_s": metrics.ttft_s(record),
        "tpot_s": metrics.tpot_s(record),
        "max_gap_s": metrics.max_gap_s(record),
        "finish_s": record.finish_s,
    }


def limit_rows(config: Config, runs: Mapping[str, Sequence[Row]], base_steps_s: Sequence[float]) -> list[Row]:
    """Per run and pair of limits (multiples of the median base step): share of requests within, goodput."""
    base_s = median(base_steps_s)
    found: list[Row] = []
    for rows in runs.values():
        requests = [row for row in rows if row["kind"] == "request"]
        span_s = max(map(_number("finish_s"), requests)) - min(map(_number("due_s"), requests))
        for pair, (ttft, gap) in enumerate(zip(config["ttft_limits"], config["gap_limits"], strict=True)):
            good = sum(
                _number("ttft_s")(row) <= ttft * base_s and _number("max_gap_s")(row) <= gap * base_s
                for row in requests
            )
            limits: Row = {
                "pair": pair,
                "base_s": base_s,
                "ttft_limit_s": ttft * base_s,
                "gap_limit_s": gap * base_s,
            }
            facts = {name: rows[0][name] for name in RUN_FACTS}
            found.append(
                {
                    "kind": "limits",
                    **facts,
                    **limits,
                    "within": good / len(requests),
                    "goodput": good / span_s,
                }
            )
    return found


def _number(name: str) -> Any:
    """A column as a number; a request with one token has no gap, and meets every limit of it."""
    return lambda row: float(row[name] or 0.0)


def map_rows(config: Config, runs: Mapping[str, Sequence[Row]], policies: Sequence[str]) -> list[Row]:
    """kind cell: the map, simulated. kind twin: each measured run of the map, simulated on its own trace."""
    mapped = [rows for rows in runs.values() if is_mapped(rows[0]) and rows[0]["policy"] in policies]
    steps = [
        step for rows in mapped for step in regime_map.steps_of(r for r in rows if r["kind"] == "forward")
    ]
    model, rms = regime_map.step_model(steps)
    served = {policy: served_by(config, policy) for policy in policies}
    longest = longest_whole(config)
    cells = regime_map.cells(
        served,
        served_by(config, CAPACITY_ENGINE),
        model,
        shares=sorted({*regime_map.SHARES, config["share"], *config["map_shares"]}),
        loads=sorted({*regime_map.LOADS, *config["map_loads"]}),
        scale=config["scale"],
        num_requests=config["map_requests"],
        seed=config["seed"],
        longest=longest,
    )
    twins: list[Row] = []
    for rows in mapped:
        run = {**config, **{name: rows[0][name] for name in RUN_FACTS}}
        policy, rate = str(rows[0]["policy"]), rows[0]["rate"]
        assert isinstance(rate, float)
        found = regime_map.simulated(served[policy], policy_trace(run, rate), model, longest)
        twins.append({"share": run["share"], "load": run["load"], "rate": rate, "policy": policy, **found})
    facts: Row = {"overlap": model.overlap, "fit_rms": rms, "fit_steps": len(steps)}
    return one_table(
        facts, [{"kind": "cell", **row} for row in cells] + [{"kind": "twin", **row} for row in twins]
    )
