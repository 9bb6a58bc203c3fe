"""A target for the time of a step on this machine: the step-time model behind it, fitted where it is used.

The model comes from runs at a few fixed chunk budgets, so that it has seen chunks of many sizes beside
rows that decode. A target is told in decode steps, the gap that readers have while nobody arrives.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from interleave.lab.latency_file import model_from_json, model_to_json
from interleave.lab.plan_features import Features
from interleave.lab.point_table import Row
from interleave.lab.serving import (
    ServingSetting,
    engine_settings,
    serve_checked,
    serve_discarded,
    trace_engine,
)
from interleave.lab.step_fit import best_fit
from interleave.lab.step_prediction import step_predictor
from interleave.lab.step_traces import TimedStep, fit_steps, served_of, timed_steps
from interleave.lab.trace import Trace
from interleave.lab.workload import requests_from_trace
from interleave.schedule.tpot_target import TpotTarget


def fit_row(
    name: str, setting: ServingSetting, trace: Trace, seed: int, budgets: Sequence[int], **choices: Any
) -> Row:
    """Serve a trace once at each budget and fit one model to all steps: the model as JSON text, what it was
    fitted to, how well, and the decode step it predicts (s).

    choices: as in `build_engine`, max_rows among them.
    """
    steps: list[TimedStep] = []
    requests = requests_from_trace(trace, setting.tokens, seed)
    for budget in budgets:
        engine = trace_engine(name, setting.model, trace, chunk_budget=budget, **choices)
        serve_discarded(engine, requests)
        log = serve_checked(engine, requests)
        steps += timed_steps(served_of(name, engine_settings(engine)), log.requests, log.steps)
    fit = best_fit(fit_steps(steps))
    rows = min(choices["max_rows"], len(requests))
    # Every row in the middle of its answer, at the mean length.
    attended = rows * statistics.mean(len(each.prompt) + each.max_new_tokens / 2 for each in requests)
    full = Features(forwards=1, positions=rows, decode_rows=rows, decode_attended=round(attended))
    return {
        "kind": "model",
        "engine": name,
        "fit_steps": len(steps),
        "fit_rms": fit.rms,
        "decode_step_s": fit.model.step_s([full]),
        "model": json.dumps(model_to_json(fit.model)),
    }


def target_of(row: Mapping[str, Any], decode_steps: float) -> TpotTarget:
    """The target of so many decode steps, by the model of a `fit_row`."""
    model = model_from_json(json.loads(row["model"]))
    return TpotTarget(decode_steps * row["decode_step_s"], step_predictor(model))
