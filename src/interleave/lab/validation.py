"""Simulator against engine: step times, and whole runs beside the spread of repeated ones.

Measures on this machine: a closed batch and an open trace at every load to fit, other traces to judge. Each
judged trace is served several times, so that a difference can be read beside what the engine differs from
itself by. Imports the engines (and torch) only when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from interleave.engine.records import RunLog
from interleave.lab import metrics
from interleave.lab.latency_file import model_to_json
from interleave.lab.latency_model import LatencyModel
from interleave.lab.quantiles import quantile
from interleave.lab.simulator import Served, simulate
from interleave.lab.step_fit import best_fit
from interleave.lab.step_traces import TimedStep, fit_steps, step_errors, timed_steps
from interleave.lab.trace import Trace
from interleave.lab.workload import scaled_block_tokens, scaled_chunk_budget, workload

LOADS = (0.3, 0.6, 0.85, 1.2)
FIT_SEED, HELD_OUT_SEED = 1, 2

MEASURES: dict[str, Callable[[RunLog], float | None]] = {
    "wall_s": lambda log: log.wall_s,
    "served_rate": metrics.served_rate,
    "queue_wait_p50_s": lambda log: _p50(log, metrics.queue_wait_s),
    "ttft_p50_s": lambda log: _p50(log, metrics.ttft_s),
    "ttft_p90_s": lambda log: quantile(_values(log, metrics.ttft_s), 90),
    "tpot_p50_s": lambda log: _p50(log, metrics.tpot_s),
    "max_gap_p50_s": lambda log: _p50(log, metrics.max_gap_s),
    "gap_p50_s": lambda log: quantile(_gaps(log), 50),
    "gap_p90_s": lambda log: quantile(_gaps(log), 90),
    "gap_p99_s": lambda log: quantile(_gaps(log), 99),
}

JUDGED = ("ttft_p50_s", "gap_p90_s", "served_rate")
LARGEST_ERROR = 0.05
"""The median error of a judged measure over the loads may be this or the engine's own spread, whichever is larger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to measure. Lengths, blocks and budgets are the published ones over `scale`."""

    engine: str
    scale: int = 4
    max_rows: int = 32
    num_requests: int = 60
    loads: Sequence[float] = LOADS
    repeats: int = 3

    def __post_init__(self) -> None:
        if self.repeats < 1 or self.num_requests < 1:
            raise ValueError(
                f"repeats and num_requests must be at least 1, got {self.repeats} and {self.num_requests}"
            )
        for load in self.loads:
            if not 0 < load < 100:
                raise ValueError(f"a load is a multiple of the capacity above 0, got {load!r}")

    @property
    def served(self) -> Served:
        return Served(
            engine=self.engine,
            max_rows=self.max_rows,
            chunk_budget=scaled_chunk_budget(self.scale),
            block_tokens=scaled_block_tokens(self.scale),
        )

    def trace(self, seed: int, rate: float | None) -> Trace:
        return workload("published", scale=self.scale, num_requests=self.num_requests, rate=rate, seed=seed)


Serve = Callable[[Trace], RunLog]


def engine_server(plan: Plan, model: Any) -> Serve:
    """Serves traces on a fresh engine each, after one warm-up of the first rows."""
    from interleave.lab.serving import model_corpus, serve_checked, serve_discarded, trace_engine
    from interleave.lab.workload import requests_from_trace

    corpus = model_corpus(model)

    def run(trace: Trace) -> RunLog:
        served = plan.served
        engine = trace_engine(
            plan.engine,
            model,
            trace,
            max_rows=served.max_rows,
            chunk_budget=served.chunk_budget,
            block_tokens=served.block_tokens,
        )
        requests = requests_from_trace(trace, corpus)
        serve_discarded(engine, requests)
        return serve_checked(engine, requests)

    return run


def validate(plan: Plan, serve: Serve, say: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """Fit on one draw, judge on another. Returns the document, JSON-able.

    Steps to fit are taken at every load, right before the runs that they judge: a step after a rest costs
    more than one in a row of others, and neighbours come and go. No count of a plan tells either.
    """
    say("saturated run: reference capacity, and steps to fit")
    closed = serve(plan.trace(FIT_SEED, None))
    capacity = metrics.served_rate(closed)
    assert capacity is not None
    say(f"capacity {capacity:.3f} requests/s")
    fitted, held = _steps(plan, closed), list[TimedStep]()
    served: list[tuple[float, list[RunLog]]] = []
    for load in plan.loads:
        say(f"load {load:g}, a run to fit")
        fitted += _steps(plan, serve(plan.trace(FIT_SEED, load * capacity)))
        trace = plan.trace(HELD_OUT_SEED, load * capacity)
        logs: list[RunLog] = []
        for repeat in range(plan.repeats):
            say(f"load {load:g}, run {repeat + 1} of {plan.repeats}")
            logs.append(serve(trace))
            held += _steps(plan, logs[-1])
        served.append((load, logs))
    fits = fit_steps(fitted)
    model = best_fit(fits).model
    runs = []
    for load, logs in served:
        rate = load * capacity
        measures = end_to_end(plan, plan.trace(HELD_OUT_SEED, rate), model, logs)
        runs.append({"load": load, "rate": rate, "measures": measures})
    return {
        "engine": plan.engine,
        "scale": plan.scale,
        "max_rows": plan.max_rows,
        "num_requests": plan.num_requests,
        "capacity": capacity,
        "model_parameters": model_to_json(model),
        "hypotheses": {name: fit.rms for name, fit in fits.items()},
        "fitted_steps": step_errors(model, fitted),
        "held_out_steps": step_errors(model, held),
        "runs": runs,
        "judged": judged(runs),
    }


def judged(runs: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """By judged measure, medians over loads: the error's size, and how far the engine's own runs go from their
    median, both as shares; the bound, the larger of that and LARGEST_ERROR; and whether the error is within it."""
    found = {}
    for name in JUDGED:
        ones = [run["measures"][name] for run in runs if name in run["measures"]]
        ones = [one for one in ones if one["error"] is not None]
        if not ones:
            continue
        error = median(abs(one["error"]) for one in ones)
        spread = median(
            max(one["high"] - one["measured"], one["measured"] - one["low"]) / one["measured"] for one in ones
        )
        bound = max(LARGEST_ERROR, spread)
        found[name] = {"error": error, "spread": spread, "bound": bound, "met": error <= bound}
    return found


def _steps(plan: Plan, log: RunLog) -> list[TimedStep]:
    return timed_steps(plan.served, log.requests, log.steps)


def end_to_end(
    plan: Plan, trace: Trace, model: LatencyModel, logs: Sequence[RunLog]
) -> dict[str, dict[str, float | None]]:
    """By measure: simulated, the engine's median, lowest and highest, and the relative error to the median."""
    simulated = simulate(plan.served, trace, model)
    found: dict[str, dict[str, float | None]] = {}
    for name, measure in MEASURES.items():
        ours, theirs = measure(simulated), [value for value in map(measure, logs) if value is not None]
        if ours is None or not theirs:
            continue
        middle = median(theirs)
        found[name] = {
            "simulated": ours,
            "measured": middle,
            "low": min(theirs),
            "high": max(theirs),
            "error": (ours - middle) / middle if middle else None,
        }
    return found


def _values(log: RunLog, measure: Callable[[Any], float | None]) -> list[float]:
    return [value for value in map(measure, log.requests) if value is not None]


def _gaps(log: RunLog) -> list[float]:
    return [gap for record in log.requests for gap in metrics.gaps_s(record)]


def _p50(log: RunLog, measure: Callable[[Any], float | None]) -> float | None:
    return quantile(_values(log, measure), 50)


def validation_lines(document: Mapping[str, Any]) -> list[str]:
    """The document for a terminal."""
    from interleave.lab.latency_file import error_lines

    lines = [f"{document['engine']}, capacity {document['capacity']:.3f} requests/s", "fitted steps:"]
    lines += error_lines(document["fitted_steps"])
    lines += ["held-out steps:", *error_lines(document["held_out_steps"])]
    for run in document["runs"]:
        lines.append(f"load {run['load']:g} ({run['rate']:.3f} requests/s)")
        for name, one in run["measures"].items():
            error = "-" if one["error"] is None else f"{one['error']:+.1%}"
            lines.append(
                f"  {name:17} simulated {one['simulated']:9.4f}  measured {one['measured']:9.4f} "
                f"({one['low']:.4f} to {one['high']:.4f})  {error}"
            )
    lines.append(f"median over loads, at most {LARGEST_ERROR:.0%} or the engine's own spread:")
    for name, one in document["judged"].items():
        verdict = "met" if one["met"] else "missed"
        lines.append(f"  {name:17} error {one['error']:.1%}  spread {one['spread']:.1%}  {verdict}")
    return lines
