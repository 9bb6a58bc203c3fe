"""One run's records as one dict of numbers, ready for strict JSON. Does not measure or store."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import asdict
from typing import Any

from interleave.engine.records import RunLog
from interleave.lab import metrics
from interleave.lab.metrics import Limits
from interleave.lab.quantiles import distribution

_PER_REQUEST = {
    "ttft_s": metrics.ttft_s,
    "queue_wait_s": metrics.queue_wait_s,
    "admit_to_first_chunk_s": metrics.admit_to_first_chunk_s,
    "prefill_s": metrics.prefill_s,
    "tpot_s": metrics.tpot_s,
    "max_gap_s": metrics.max_gap_s,
}
_STEP_COUNTS = ("forwards", "prefill_tokens", "decode_rows", "padded_tokens", "copied_tokens",
                "preempted", "recomputed_tokens")  # fmt: skip
_OCCUPANCY = ("rows", "owned_blocks", "used_blocks", "cached_tokens")


def summary(log: RunLog, limits: Limits | None = None) -> dict[str, Any]:
    """The numbers of a run: counts, rates, and distributions as `lab.quantiles.distribution` gives them.

    limits: adds the goodput under them. Times in seconds, rates per second. Aborted and failed requests count
    under `finish_reasons`, not as completed. `tpot_excluded` counts completed requests whose single token
    gives no TPOT. Pooled gaps of one request hang together, so their n overstates how much they say.
    Raises RecordError if a record's instants are out of order.
    """
    for record in log.requests:
        metrics.check_order(record)
    completed = [record for record in log.requests if metrics.is_completed(record)]
    new_tokens = sum(len(record.tokens) for record in log.requests)
    span = metrics.span_s(log)
    result: dict[str, Any] = {
        "num_requests": len(log.requests),
        "num_completed": len(completed),
        "finish_reasons": dict(Counter(record.finish_reason or "unfinished" for record in log.requests)),
        "wall_s": log.wall_s,
        "span_s": span,
        "served_rate": metrics.served_rate(log),
        "prompt_tokens": sum(record.prompt_tokens for record in log.requests),
        "new_tokens": new_tokens,
        "new_tokens_per_s": None if span is None else new_tokens / span,
        "tpot_excluded": sum(metrics.tpot_s(record) is None for record in completed),
    }
    for name, measure in _PER_REQUEST.items():
        values = (measure(record) for record in log.requests)
        result[name] = distribution(value for value in values if value is not None)
    result["gap_s"] = distribution(gap for record in log.requests for gap in metrics.gaps_s(record))
    result["incumbent_gap"] = _incumbent_gaps(log)
    result["admission_group"] = distribution(metrics.admission_groups(log))
    result["goodput"] = limits and {"limits": asdict(limits), "rate": metrics.goodput(log, limits)}
    result["steps"] = _steps(log)
    result["occupancy"] = _occupancy(log)
    return result


def _incumbent_gaps(log: RunLog) -> dict[str, float | int | None]:
    gaps = metrics.incumbent_gaps(log)
    return {
        "n": len(gaps),
        "baseline_s": statistics.median(gap.gap_s for gap in gaps) if gaps else None,
        "num_spikes": len(metrics.spikes(gaps)) if gaps else None,
        "worst_s": max((gap.gap_s for gap in gaps), default=None),
    }


def _occupancy(log: RunLog) -> dict[str, float | None]:
    """What the steps held, each weighted with its duration (see `StepRecord`); None where no step took time."""
    busy_s = sum(step.end_s - step.start_s for step in log.steps)
    return {
        f"mean_{name}": sum(getattr(step, name) * (step.end_s - step.start_s) for step in log.steps) / busy_s
        if busy_s > 0
        else None
        for name in _OCCUPANCY
    }


def _steps(log: RunLog) -> dict[str, Any]:
    parts_s: Counter[str] = Counter()
    for step in log.steps:
        parts_s.update(step.parts_s)
    counts = {name: sum(getattr(step, name) for step in log.steps) for name in _STEP_COUNTS}
    busy_s = sum(step.end_s - step.start_s for step in log.steps)
    return {"n": len(log.steps), **counts, "busy_s": busy_s, "parts_s": dict(parts_s)}
