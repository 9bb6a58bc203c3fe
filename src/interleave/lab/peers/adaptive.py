"""How long a step takes on this machine, fitted right before, and the target that chunks are chosen by.

A few runs of the disturbance, everybody there from the start, one for each of several chunk budgets:
together they hold chunks of many sizes behind histories of many lengths, beside rows that decode.
The target is a multiple of the decode step, since that is the gap that readers have when nobody arrives.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from interleave.engine.build import build_engine
from interleave.engine.loop import serve
from interleave.lab.latency_file import fit_document, read_model, write_fit
from interleave.lab.latency_model import LatencyModel
from interleave.lab.peers.kinds import DISTURB
from interleave.lab.peers.measure import PeersConfig
from interleave.lab.peers.workload_file import Workload, WorkloadFile
from interleave.lab.plan_features import Features
from interleave.lab.provenance import cpu_name
from interleave.lab.serving import engine_settings, serve_checked, touch_pool
from interleave.lab.step_traces import StepTrace, served_of, timed_steps
from interleave.model.sources import load_model
from interleave.schedule.request import Request

BUDGETS = (64, 128, 256, 512)


def chunk_target(
    config: PeersConfig, file: WorkloadFile, source: str, path: Path, say: Callable[[str], None]
) -> dict[str, Any]:
    """The target and what it follows from, JSON-able; `latency` names the model's file.

    path: where a model that is fitted here is written. Holds no lock: the caller does. Raises ValueError
    for a file that holds no model.
    """
    workload = file.workload(DISTURB)
    if config.latency is None:
        say(f"{config.engine}: timing its steps at chunk budgets {', '.join(map(str, BUDGETS))}")
        fitted = fit_here(config, workload, source)
        write_fit(fitted, path)
        say(f"step-time model of {fitted['num_steps']} steps, rms error {fitted['rms_error']:.1%}")
    else:
        fitted, path = None, Path(config.latency)
    decode_s = decode_step_s(read_model(path), workload)
    target_s = config.decode_steps * decode_s if config.tpot_target_s is None else config.tpot_target_s
    say(f"a decode step takes {decode_s * 1e3:.1f} ms; chunks by a target of {target_s * 1e3:.1f} ms")
    return {
        "tpot_target_s": target_s,
        "latency": str(path.absolute()),
        "decode_step_s": decode_s,
        "num_steps": fitted and fitted["num_steps"],
        "rms_error": fitted and fitted["rms_error"],
    }


def fit_here(config: PeersConfig, workload: Workload, source: str) -> dict[str, Any]:
    """A fit document (see `latency_file`) of this engine's steps on a workload, all of it due at once."""
    torch.set_num_threads(config.threads)
    model = load_model(source)
    asks = workload.everyone
    requests = [Request(f"r{n}", ask.prompt, ask.max_tokens) for n, ask in enumerate(asks)]
    origin = {"device": cpu_name(), "threads": config.threads, "model": source, "dtype": "fp32"}
    traces: list[StepTrace] = []
    for budget in BUDGETS:
        engine = build_engine(
            config.engine,
            model.decoder,
            max_rows=len(requests),
            chunk_budget=budget,
            max_request_tokens=max(request.total_len for request in requests),
        )
        touch_pool(engine)
        if not traces:  # machine code is loaded and caches are filled by whoever comes first
            serve(engine, [Request(r.request_id, r.prompt, 2) for r in requests])
        log = serve_checked(engine, requests)
        steps = timed_steps(served_of(config.engine, engine_settings(engine)), log.requests, log.steps)
        traces.append(
            StepTrace(f"chunk budget {budget}", config.engine, origin, workload.trace.sha256, steps)
        )
    return fit_document(traces)


def decode_step_s(model: LatencyModel, workload: Workload) -> float:
    """Seconds of a step in which all early rows decode, each in the middle of its answer."""
    rows = len(workload.requests)
    seen = sum(len(ask.prompt) + ask.max_tokens // 2 for ask in workload.requests)
    return model.step_s([Features(forwards=1, positions=rows, decode_rows=rows, decode_attended=seen)])
