"""One benchmarked configuration as a JSON document, and as lines for a terminal. Torch-free.

`data/schema/bench.schema.json` describes the document. Does not run anything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from interleave.engine.records import RunLog, StepRecord
from interleave.lab.files import write_atomically
from interleave.lab.metrics import Limits
from interleave.lab.roofline import Roofline, fraction
from interleave.lab.summary import summary
from interleave.lab.trace import Trace

SCHEMA_VERSION = 1
STATUSES = ("completed", "failed", "interrupted")


def bench_document(
    log: RunLog,
    config: Mapping[str, Any],
    trace: Trace,
    provenance: Mapping[str, Any],
    *,
    mark: str,
    memory: Mapping[str, int | None] | None = None,
    runs: Sequence[RunLog] = (),
    status: str = "completed",
    limits: Limits | None = None,
    engine: Mapping[str, Any] | None = None,
    roofline: Roofline | None = None,
) -> dict[str, Any]:
    """The document of one configuration.

    log: the run whose requests and steps are listed (see `median_run`); runs: all recorded runs,
    summarised one by one, by default that one. mark: measured-cpu or measured-gpu.
    memory: bytes of weights, pool and measured peak. status: one of STATUSES. engine: what the engine
    made of the configuration (see `serving.engine_settings`), for `config` also holds what it ignores.
    roofline: gives each step its floor and the fraction of the possible that was reached; without one both
    are null.
    Raises RecordError for a log whose instants are out of order.
    """
    if status not in STATUSES:
        raise ValueError(f"status must be one of {', '.join(STATUSES)}, got {status!r}")
    return {
        "schema_version": SCHEMA_VERSION,
        "status": status,
        "mark": mark,
        **provenance,
        "config": dict(config),
        "engine": dict(engine or {}),
        "trace_sha256": trace.sha256,
        "trace": {
            "num_requests": len(trace),
            "prompt_tokens": trace.num_prompt_tokens,
            "new_tokens": trace.num_new_tokens,
        },
        "wall_s": log.wall_s,
        "floor_s": roofline and roofline.run_floor_s(log.steps),
        "roofline": roofline and roofline.described(),
        "summary": summary(log, limits),
        "memory": dict(memory or {"weight_bytes": None, "pool_bytes": None, "peak_bytes": None}),
        "runs": [{"wall_s": run.wall_s, "summary": summary(run, limits)} for run in runs or (log,)],
        "requests": [asdict(record) for record in log.requests],
        "steps": [_step(record, roofline) for record in log.steps],
    }


def _step(record: StepRecord, roofline: Roofline | None) -> dict[str, Any]:
    floor_s = None if roofline is None else roofline.step_floor_s(record)
    return {**asdict(record), "floor_s": floor_s, "reached": fraction(floor_s, record.end_s - record.start_s)}


def median_run(runs: Sequence[RunLog]) -> RunLog:
    """The run with the median wall time; of an even number, the faster of the middle two."""
    return sorted(runs, key=lambda run: run.wall_s)[(len(runs) - 1) // 2]


def write_document(document: Mapping[str, Any], path: Path) -> None:
    """Write strict JSON (no NaN), all of it or nothing. Raises StorageError naming the path."""
    write_atomically(path, json.dumps(document, allow_nan=False, separators=(",", ":")) + "\n")


def summary_lines(document: Mapping[str, Any]) -> list[str]:
    """What a person wants to see first: one `name value` line each; a dash where there is no value."""
    found, memory, config = document["summary"], document["memory"], document["config"]
    walls = [run["wall_s"] for run in document["runs"]]
    spread = f" ({min(walls):.3f} to {max(walls):.3f}, {len(walls)} runs)" if len(walls) > 1 else ""
    gaps = found["incumbent_gap"]
    steps = found["steps"]
    lines = {
        "engine": f"{config['engine']}, {config['model']} {config['dtype']}",
        "device": f"{document['device']}, threads {document['threads']} ({document['mark']})",
        "requests": f"{found['num_completed']} completed of {found['num_requests']}",
        "tokens": f"{found['prompt_tokens']:,} prompt, {found['new_tokens']:,} new",
        "wall": f"{document['wall_s']:.3f} s{spread}",
        "floor": _floor(document),
        "served rate": _number(found["served_rate"], " requests/s"),
        "new tokens": _number(found["new_tokens_per_s"], " tokens/s", digits=1),
        "TTFT": _quantiles(found["ttft_s"]),
        "queue wait": _quantiles(found["queue_wait_s"]),
        "gap": _quantiles(found["gap_s"]),
        "TPOT": f"{_quantiles(found['tpot_s'])}, {found['tpot_excluded']} excluded",
        "spikes": f"{_number(gaps['num_spikes'])} of {gaps['n']} gaps above 3 x "
        f"{_number(gaps['baseline_s'], ' s', digits=4)}",
        "goodput": _goodput(found["goodput"]),
        "steps": f"{steps['n']:,}, {steps['forwards']:,} forwards, {steps['padded_tokens']:,} padded and "
        f"{steps['copied_tokens']:,} copied positions",
        "pool": _pool(found["occupancy"], document["engine"], steps),
        "memory": f"weights {_mib(memory['weight_bytes'])} in every layout kept, pool {_mib(memory['pool_bytes'])}, "
        f"at its peak {_mib(memory['peak_bytes'])} above both",
    }
    return [f"{name:12} {value}" for name, value in lines.items()]


def _pool(held: Mapping[str, float | None], engine: Mapping[str, Any], steps: Mapping[str, int]) -> str:
    """Shares of the pool over time, and what its running dry has cost."""
    num_blocks, size = engine.get("num_blocks"), engine.get("block_tokens")
    owned, used, cached = (held[f"mean_{name}"] for name in ("owned_blocks", "used_blocks", "cached_tokens"))
    if num_blocks is None or size is None or owned is None or used is None or cached is None:
        return "-"
    all_tokens = num_blocks * size
    return (
        f"{num_blocks:,} blocks, {engine['allocation']}: {owned / num_blocks:.0%} owned, {cached / all_tokens:.0%} "
        "used, "
        f"{used / num_blocks - cached / all_tokens:.0%} rounding; {steps['preempted']:,} preemptions, "
        f"{steps['recomputed_tokens']:,} positions recomputed"
    )


def _goodput(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "- (no limit stated)"
    limits = ", ".join(f"{name} {value:g}" for name, value in found["limits"].items() if value is not None)
    return f"{_number(found['rate'], ' requests/s')} within {limits}"


def _floor(document: Mapping[str, Any]) -> str:
    reached = fraction(document["floor_s"], document["wall_s"])
    if reached is None:
        return "- (interleave machine measures what this machine can do)"
    return f"{document['floor_s']:.3f} s, {reached:.0%} of the possible reached"


def _number(value: float | None, unit: str = "", digits: int = 3) -> str:
    if value is None:
        return "-"
    return f"{value}{unit}" if isinstance(value, int) else f"{value:.{digits}f}{unit}"


def _quantiles(values: Mapping[str, float | None]) -> str:
    parts = (f"{name} {_number(values[name], ' s', digits=4)}" for name in ("p50", "p95", "max"))
    return f"{', '.join(parts)} (n={values['n']})"


def _mib(num_bytes: int | None) -> str:
    return "-" if num_bytes is None else f"{num_bytes / 2**20:,.1f} MiB"
