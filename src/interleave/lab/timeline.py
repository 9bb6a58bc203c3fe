"""Who ran when: every step of a few requests under several policies, simulated. Torch-free.

The same requests are served once a policy; what is kept of a step is its start, its end, the pieces of
prompts and the rows that decode. Small enough to be put into a page; draws nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from interleave.documents import finding, read_document
from interleave.engine.batched import StepOutcome
from interleave.engine.loop import serve
from interleave.lab.code_hash import simulation_code
from interleave.lab.files import write_atomically
from interleave.lab.latency_file import model_to_json
from interleave.lab.latency_model import LatencyModel
from interleave.lab.paths import repo_root
from interleave.lab.provenance import simulated_provenance
from interleave.lab.request_table import number_of
from interleave.lab.simulate_serve import outside_lines
from interleave.lab.simulator import Served, requests_of
from interleave.lab.trace import Trace
from interleave.lab.workload import scaled_block_tokens, workload

SCHEMA_VERSION = 1
POLICIES = ("whole", "chunked", "mixed")
WORKLOAD = "published"
DIGITS = 6
"""Of seconds: a microsecond is below what a page can show."""


class Timeline(BaseModel):
    """What a page reads of the file; see `timeline_document`."""

    mark: str
    setting: dict[str, Any]
    requests: list[tuple[float, int, int]]
    runs: dict[str, list[tuple[float, float, list[tuple[int, int]], list[int]]]]


@dataclass(frozen=True, slots=True)
class TimelineSetting:
    """The first `num_requests` of the published trace at `rate` requests/s, served `max_rows` at a time."""

    model: LatencyModel
    num_requests: int = 16
    rate: float = 2.0
    max_rows: int = 8
    chunk_budget: int = 512
    scale: int = 1
    seed: int = 0

    def trace(self) -> Trace:
        draw = workload(WORKLOAD, scale=self.scale, rate=self.rate, seed=self.seed)
        if not 1 <= self.num_requests <= len(draw):
            raise ValueError(f"num_requests must lie between 1 and {len(draw)}, got {self.num_requests}")
        return Trace(draw.rows[: self.num_requests])

    def served(self, policy: str) -> Served:
        return Served(
            engine=policy,
            max_rows=self.max_rows,
            chunk_budget=self.chunk_budget,
            block_tokens=scaled_block_tokens(self.scale),
        )


def timeline_document(setting: TimelineSetting, policies: Sequence[str] = POLICIES) -> dict[str, Any]:
    """Setting, provenance, requests, and of each policy what `steps_of` says: steps, and those outside of the fit."""
    trace, model = setting.trace(), setting.model
    ran = {policy: steps_of(setting.served(policy), trace, model) for policy in policies}
    names = ("num_requests", "rate", "max_rows", "chunk_budget", "scale", "seed")
    return {
        "schema_version": SCHEMA_VERSION,
        "mark": "simulated",
        "setting": {
            "workload": WORKLOAD,
            **{name: getattr(setting, name) for name in names},
            "model": model_to_json(model),
        },
        "trace_sha256": trace.sha256,
        "code": timeline_code(),
        "provenance": simulated_provenance(),
        "requests": [list(row) for row in trace.rows],
        "outside": {policy: outside for policy, (_, outside) in ran.items()},
        "runs": {policy: steps for policy, (steps, _) in ran.items()},
    }


def timeline_code() -> str:
    """The hash of all code that the steps of a timeline depend on."""
    return simulation_code(repo_root(), "lab/timeline")


def steps_of(served: Served, trace: Trace, model: LatencyModel) -> tuple[list[list[Any]], dict[str, Any]]:
    """A step as [start_s, end_s, [[request, prompt tokens], ...], [request that decodes, ...]]; and how many of them
    have a count outside of the model's fit, with the largest value of each such count."""
    carried: list[tuple[list[list[int]], list[int]]] = []

    def keep(outcome: StepOutcome, _end_s: float) -> None:
        pieces = [piece for forward in outcome.plan.forwards for piece in forward]
        chunks = [[number_of(p.row.request_id), p.num_tokens] for p in pieces if not p.is_decode]
        carried.append((chunks, [number_of(p.row.request_id) for p in pieces if p.is_decode]))

    engine, executor = served.machine(model, None, keep_pieces=True)
    clock = executor.clock
    log = serve(engine, list(requests_of(trace.rows)), clock=clock, sleep=clock.sleep, on_step=keep)
    steps = [
        [round(step.start_s, DIGITS), round(step.end_s, DIGITS), chunks, decodes]
        for step, (chunks, decodes) in zip(log.steps, carried, strict=True)
    ]
    return steps, {"steps": executor.num_outside, "largest": executor.worst_outside}


def write_timeline(path: Path, document: Mapping[str, Any]) -> None:
    """A line for each request and each step."""
    head = {name: value for name, value in document.items() if name not in ("requests", "runs")}
    runs = ",\n".join(
        f"  {json.dumps(policy)}: [\n{_lines(steps, 3)}\n  ]" for policy, steps in document["runs"].items()
    )
    text = json.dumps(head, allow_nan=False, indent=1)[:-2]
    requests = _lines(document["requests"], 2)
    write_atomically(path, f'{text},\n "requests": [\n{requests}\n ],\n "runs": {{\n{runs}\n }}\n}}\n')


def _lines(rows: Sequence[Any], indent: int) -> str:
    return ",\n".join(" " * indent + json.dumps(row, allow_nan=False, separators=(",", ":")) for row in rows)


def read_timeline(path: Path) -> dict[str, Any]:
    """The document at `path`. ValueError naming the file for one that is none."""
    document = read_document(path, what="so not a timeline")
    version = document.get("schema_version") if isinstance(document, dict) else None
    if version != SCHEMA_VERSION or not isinstance(document.get("runs"), dict):
        raise ValueError(f"{path}: not a timeline of schema_version {SCHEMA_VERSION} (it has {version!r})")
    try:
        Timeline.model_validate(document)
    except ValidationError as error:
        raise ValueError(f"{path}: {finding(error)}") from error
    return dict(document)


def timeline_lines(document: Mapping[str, Any]) -> list[str]:
    """For a terminal: steps of each policy, their longest, the end of the run, and a warning of steps outside of
    the fit."""
    lines = [f"{'policy':>8} {'steps':>6} {'longest':>9} {'end':>9}"]
    for policy, steps in document["runs"].items():
        longest = max(end - start for start, end, *_ in steps)
        lines.append(f"{policy:>8} {len(steps):6d} {longest:8.3f}s {steps[-1][1]:8.3f}s")
        outside = document["outside"][policy]
        lines += outside_lines(outside["steps"], len(steps), outside["largest"])
    return lines
