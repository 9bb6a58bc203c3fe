"""Whole runs with recorded decode: beside eager decode on the same requests, and what a run records and pads."""

from __future__ import annotations

import contextlib
import io
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from interleave.engine.batched import Engine
from interleave.engine.executor import BatchExecutor
from interleave.engine.recorded import RecordedDecode, buckets
from interleave.engine.records import RunLog
from interleave.lab import metrics
from interleave.lab.decode_bench import ENGINES, padding
from interleave.lab.point_table import Row
from interleave.lab.serving import ServingSetting, serve_checked, serve_discarded, trace_engine
from interleave.lab.trace import Trace
from interleave.lab.workload import requests_from_trace, scaled_block_tokens, scaled_chunk_budget
from interleave.model.sources import LoadedModel

EIGHTH = 8
"""Recordings begin for this part of the longest request, so that a run outgrows them."""


def paired_rows(config: Mapping[str, Any], trace: Trace, setting: ServingSetting) -> list[Row]:
    """One row for each run of each engine, the engines in turn, each first in every second round."""
    engines = {name: _engine(name, setting.model, trace, config) for name in ENGINES}
    requests = requests_from_trace(trace, setting.tokens, config["seed"])
    for engine in engines.values():
        serve_discarded(engine, requests)
    found: list[Row] = []
    for run in range(config["runs"]):
        for name in ENGINES if run % 2 else reversed(ENGINES):
            log = serve_checked(engines[name], requests)
            decodes = [step.end_s - step.start_s for step in log.steps if not step.prefill_tokens]
            found.append(
                {
                    "engine": name,
                    "run": run,
                    "rows": config["served_rows"],
                    "wall_s": log.wall_s,
                    "served_rate": metrics.served_rate(log),
                    "step_s": statistics.median(decodes) if decodes else None,
                    **_step_shares(log),
                }
            )
    return found


def counted_row(config: Mapping[str, Any], trace: Trace, model: LoadedModel, tokens: Sequence[int]) -> Row:
    """What one run of `recorded` records, writes anew and pads. The plans of a closed run depend on no time, so
    these counts are the same for all weights and machines."""
    longest = max(row.prompt_tokens + row.new_tokens for row in trace.rows)
    first_maximum = max(1, longest // EIGHTH)
    engine = _engine("recorded", model, trace, config, recorded_tokens=first_maximum, warm_up=False)
    recorded = _recorded(engine)
    # A rehearsal would outgrow them first, where this process has not had one yet.
    recorded.record_all()
    before = recorded.recorded, recorded.re_recorded, recorded.updates
    begun_for = recorded.maximum
    # That recordings are outgrown is what is counted here, not news.
    with contextlib.redirect_stderr(io.StringIO()):
        log = serve_checked(engine, requests_from_trace(trace, tokens, config["seed"]))
    made, again, updates = (
        after - earlier
        for after, earlier in zip(
            (recorded.recorded, recorded.re_recorded, recorded.updates), before, strict=True
        )
    )
    counts = [step.decode_rows for step in log.steps if step.decode_rows]
    padded = sum(padding(count, config["served_rows"]) for count in counts)
    return {
        "rows": config["served_rows"],
        "requests": len(trace),
        "buckets": len(buckets(config["served_rows"])),
        "recorded_before": before[0],
        "recorded": made,
        "re_recorded": again,
        "begun_for": begun_for,
        "maximum": recorded.maximum,
        "longest": longest,
        "decode_steps": len(counts),
        # Each recording is made over padding, whose lines are written for it.
        "updates": updates - made,
        "decoded_rows": sum(counts),
        "padded_rows": padded,
        **_step_shares(log),
    }


def _engine(name: str, model: LoadedModel, trace: Trace, config: Mapping[str, Any], **choices: Any) -> Engine:
    return trace_engine(
        name,
        model,
        trace,
        max_rows=config["served_rows"],
        chunk_budget=scaled_chunk_budget(config["scale"]),
        block_tokens=scaled_block_tokens(config["scale"]),
        **choices,
    )


def _recorded(engine: Engine) -> RecordedDecode:
    assert isinstance(engine.executor, BatchExecutor)
    assert engine.executor.recorded is not None
    return engine.executor.recorded


def _step_shares(log: RunLog) -> Row:
    """Shares of steps, and of the time in them, that carried a chunk forward."""
    seconds = [step.end_s - step.start_s for step in log.steps]
    chunk_s = sum(took for took, step in zip(seconds, log.steps, strict=True) if step.prefill_tokens)
    chunks = sum(step.prefill_tokens > 0 for step in log.steps)
    return {"chunk_steps": chunks / len(log.steps), "chunk_time": chunk_s / sum(seconds)}
