"""Runs one configuration: trace, model, engine, warm-ups, recorded runs, document.

Knows how the parts are put together for a benchmark. Does not know the command line, nor where the
document goes: `publish` receives it, also when a run fails or is interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

import torch

from interleave.engine.loop import serve
from interleave.engine.memory import PeakMemory
from interleave.engine.records import RunLog
from interleave.lab.bench import bench_document, median_run
from interleave.lab.bench_config import BenchConfig, bench_trace, check_lengths, checked_device, file_workload
from interleave.lab.devices import place
from interleave.lab.machine_store import known_roofline
from interleave.lab.provenance import provenance, utc_now
from interleave.lab.serving import (
    engine_settings,
    model_corpus,
    serve_checked,
    touch_pool,
    tpot_target,
    trace_engine,
)
from interleave.lab.timing import timing_lock
from interleave.lab.workload import (
    requests_from_trace,
    scaled_block_tokens,
    scaled_chunk_budget,
)
from interleave.model.sources import LoadedModel, load_model
from interleave.schedule.request import Request


def run_bench(
    config: BenchConfig,
    *,
    say: Callable[[str], None] = lambda _: None,
    publish: Callable[[dict[str, Any]], None] = lambda _: None,
) -> dict[str, Any]:
    """Measure `config` and return its document (see `lab.bench.bench_document`).

    publish: called once with the document, before the fault of a failed or interrupted run goes on.
    Raises ValueError for what cannot run, before anything is measured; EngineFault if a forward fails;
    RecordError if a request did not generate its whole budget.
    """
    from_file = file_workload(config)
    ready = from_file and from_file.engine_requests()  # refused here, before anything is loaded
    trace = bench_trace(config)
    device = checked_device(config.device)
    tpot = tpot_target(config.tpot_target_s, config.latency)
    asked = config
    config = replace(
        config,
        chunk_budget=scaled_chunk_budget(config.scale)
        if config.chunk_budget is None
        else config.chunk_budget,
        block_tokens=scaled_block_tokens(config.scale)
        if config.block_tokens is None
        else config.block_tokens,
    )
    model = load_model(config.model, config.dtype, config.device, say=say)
    if config.trace is not None:
        check_lengths(config.trace, trace, model.config.max_position_embeddings)
    engine = trace_engine(
        config.engine,
        model,
        trace,
        max_rows=config.max_rows,
        chunk_budget=config.chunk_budget,
        max_chunk=config.max_chunk,
        token_budget=config.token_budget,
        order=config.order,
        allocation=config.allocation,
        block_tokens=config.block_tokens,
        backend=config.backend,
        pool_gib=config.pool_gib,
        tpot=tpot,
    )
    for line in unused_options(asked, engine_settings(engine)):
        say(line)
    requests = ready or requests_from_trace(trace, model_corpus(model), config.seed)
    for request in requests:
        engine.validate(request)
    here = place(config.device)
    origin = provenance(
        {**asdict(config), "weights": model.description, "linear_paths": model.linear},
        device=here.device,
        driver=here.driver,
        threads=torch.get_num_threads(),
        seed=config.seed,
        trace_sha256=trace.sha256,
        started_at=utc_now(),
    )
    finished: list[RunLog] = []
    current: RunLog | None = None
    status = "failed"
    pool_bytes = touch_pool(engine)
    peak = PeakMemory(device)
    try:
        with timing_lock(config.device, say), peak:
            for number in range(config.warmup):
                say(f"warm-up {number + 1} of {config.warmup}")
                serve(engine, _warmup_requests(config, requests))
            for number in range(config.runs):
                current = RunLog()
                say(f"run {number + 1} of {config.runs}: {len(requests)} requests")
                serve_checked(engine, requests, log=current)
                finished.append(current)
        status = "completed"
    except (KeyboardInterrupt, SystemExit):
        status = "interrupted"
        raise
    finally:
        if current is not None:
            document = bench_document(
                median_run(finished) if finished else current,
                origin["config"],
                trace,
                origin,
                mark="measured-cpu" if device.type == "cpu" else "measured-gpu",
                memory=_memory(model, pool_bytes, peak),
                runs=finished,
                status=status,
                limits=config.limits,
                engine=engine_settings(engine),
                roofline=known_roofline(model.decoder),
            )
            publish(document)
    return document


def unused_options(config: BenchConfig, settings: Mapping[str, Any]) -> list[str]:
    """A line for each option that was chosen and that this engine makes no use of."""
    usual = BenchConfig(arrivals="closed", engine=config.engine, workload="mixed8")
    names = ("max_rows", "chunk_budget", "block_tokens")
    chosen = {name: getattr(config, name) for name in names if getattr(config, name) != getattr(usual, name)}
    return [
        f"note: engine {config.engine} makes no use of {name} {value}"
        for name, value in chosen.items()
        if settings[name] != value
    ]


def _warmup_requests(config: BenchConfig, requests: list[Request]) -> list[Request]:
    if config.arrivals == "closed":
        return requests
    return [replace(request, due_s=0.0) for request in requests[: config.max_rows]]


def _memory(model: LoadedModel, pool_bytes: int | None, peak: PeakMemory) -> dict[str, int | None]:
    """Bytes: weights, the KV pool (None without one), and how far memory rose above both."""
    return {
        "weight_bytes": model.decoder.weight_bytes,
        "pool_bytes": pool_bytes,
        "peak_bytes": peak.peak_bytes,
    }
