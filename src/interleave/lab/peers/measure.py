"""This engine and each peer on the same work, back to back in interleaved pairs: A B A B ...

Each pair of engines runs alone, in two processes that stay loaded; per workload the pairs follow one
another, so that the machine's drift moves both sides of a ratio. Knows what is run in which order and
what is read off a run; not how an engine is driven, nor where the rows go.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from interleave.lab.peers.engines import OUR_ENGINE, OURS, Engine, Found
from interleave.lab.peers.process import EngineProcess, PeerError, Served
from interleave.lab.peers.workload_file import Workload, WorkloadFile
from interleave.lab.point_table import Row
from interleave.schedule.names import nearest

KINDS: dict[str, tuple[str, ...]] = {
    "check": ("check",),
    "decode": ("peer-decode1", "peer-decode8", "peer-decode32"),
    "mixed": ("peer-mixed32",),
    "uniform": ("peer-uniform32",),
    "disturb": ("peer-disturb",),
}
WARMUP = "warmup"
SLOW_S = 30.0
FEWEST_PAIRS = 3


@dataclass(frozen=True, slots=True)
class PeersConfig:
    """runs: pairs of each workload, after the first that takes more than SLOW_S no more than FEWEST_PAIRS.

    model: a source that `load_model` takes; a peer gets its folder, or the embedded model's GGUF.
    engine, chunk_budget: of this project's side; peers get the same budget. rows: most at once.
    """

    threads: int
    only: tuple[str, ...] = ()
    runs: int = 5
    model: str = "smollm2"
    engine: str = "mixed"
    chunk_budget: int = 512
    rows: int = 32
    cache_gb: int = 2

    def __post_init__(self) -> None:
        for kind in self.only:
            if kind not in KINDS:
                raise ValueError(nearest("workload", kind, KINDS))
        for name in ("threads", "runs", "chunk_budget", "rows"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")

    @property
    def kinds(self) -> tuple[str, ...]:
        """In the order in which they run, the short ones first."""
        return tuple(kind for kind in KINDS if not self.only or kind in self.only)


@dataclass(slots=True)
class Measurement:
    """rows: one per run; hellos: versions and flags by engine; checks: greedy tokens by engine;
    failures: what went wrong, by peer."""

    rows: list[Row] = field(default_factory=list)
    hellos: dict[str, dict[str, Any]] = field(default_factory=dict)
    checks: dict[str, list[list[int]]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)


def compare(
    config: PeersConfig,
    peers: Sequence[Found],
    file: WorkloadFile,
    model_for: Callable[[Engine], Path | str],
    our_python: str,
    say: Callable[[str], None] = lambda _: None,
    into: Measurement | None = None,
) -> Measurement:
    """Run every pair; a peer that fails is told and left out, the others go on.

    model_for: what an engine is loaded from. into: is filled as the runs come, so that an interrupted
    comparison keeps what it has. Raises PeerError if this project's own side fails.
    """
    found = Measurement() if into is None else into
    workloads = {name: file.workload(name) for kind in config.kinds for name in KINDS[kind]}
    warmup = file.workload(WARMUP)
    longest = max(
        len(ask.prompt) + ask.max_tokens for w in (*workloads.values(), warmup) for ask in w.everyone
    )
    options = {
        "threads": config.threads,
        "engine": config.engine,
        "chunk_budget": config.chunk_budget,
        "rows": config.rows,
        "cache_gb": config.cache_gb,
        "longest": longest,
    }
    for peer in peers:
        say(f"{peer.engine.label}: loading")
        ours = EngineProcess(OUR_ENGINE, our_python, {**options, "model": str(model_for(OUR_ENGINE))})
        with ours:
            try:
                theirs = EngineProcess(
                    peer.engine, peer.python, {**options, "model": str(model_for(peer.engine))}
                )
                with theirs:
                    _pairs(config, (ours, theirs), workloads, warmup, found, say)
            except (PeerError, OSError) as error:
                if isinstance(error, PeerError) and OUR_ENGINE.label in str(error):
                    raise
                found.failures[peer.engine.name] = str(error)
                say(f"{peer.engine.label}: {error}")
    return found


def _pairs(
    config: PeersConfig,
    pair: tuple[EngineProcess, EngineProcess],
    workloads: Mapping[str, Workload],
    warmup: Workload,
    found: Measurement,
    say: Callable[[str], None],
) -> None:
    peer = pair[1].engine
    for process in pair:
        found.hellos[process.engine.name] = process.hello
        process.serve(warmup)
    for name, workload in workloads.items():
        if name == "check":
            for process in pair:
                tokens = [_alone(process, workload, n) for n in range(len(workload.requests))]
                found.checks[process.engine.name] = tokens
            say(f"{peer.label}: {check_line(found.checks[OURS], found.checks[peer.name])}")
            continue
        if workload.late is not None and not peer.serves_late:
            say(f"{peer.label}, {name}: a batch that nobody can join; left out")
            continue
        slowest, run = 0.0, 0
        while run < config.runs and (run < FEWEST_PAIRS or slowest <= SLOW_S):
            for process in pair:
                row = run_row(process.serve(workload), workload, peer.name, process.engine.name, run)
                found.rows.append(row)
                slowest = max(slowest, float(row["wall_s"] or 0))
                say(f"{name} {run + 1}, {process.engine.label}: {_shown(row)}")
            run += 1


def _alone(process: EngineProcess, workload: Workload, number: int) -> list[int]:
    return process.serve(Workload(workload.name, (workload.requests[number],))).tokens[0]


def run_row(served: Served, workload: Workload, pair: str, engine: str, run: int) -> Row:
    """What one run says, in seconds: wall; the median step in which all rows decode; and around a late
    request the worst gap that it causes, the median gap, and its own first token. None where not asked."""
    row: dict[str, Any] = {
        "pair": pair,
        "engine": engine,
        "workload": workload.name,
        "run": run,
        "requests": len(workload.everyone),
        "prompt_tokens": workload.trace.num_prompt_tokens,
        "new_tokens": workload.trace.num_new_tokens,
        "wall_s": served.wall_s,
    }
    steps = decode_steps_s(served) if workload.late is None else []
    row["step_s"] = statistics.median(steps) if steps else None
    row |= {"worst_gap_s": None, "median_gap_s": None, "late_ttft_s": None}
    if workload.late is not None and served.late_s is not None:
        early = served.times_s[:-1]
        gaps = [(end, end - start) for times in early for start, end in pairwise(times)]
        row["worst_gap_s"] = max((gap for end, gap in gaps if end > served.late_s), default=None)
        row["median_gap_s"] = statistics.median(gap for _, gap in gaps)
        row["late_ttft_s"] = served.times_s[-1][0] - served.late_s
    return row


def decode_steps_s(served: Served) -> list[float]:
    """Gaps of the first row while every row is decoding: after the last first token, before the first end."""
    begin = max(times[0] for times in served.times_s)
    end = min(times[-1] for times in served.times_s)
    inside = [at for at in served.times_s[0] if begin <= at <= end]
    return [after - before for before, after in pairwise(inside)]


def check_line(ours: Sequence[Sequence[int]], theirs: Sequence[Sequence[int]]) -> str:
    """Whether two engines gave the same greedy tokens, and where they first differ."""
    said = []
    for number, (a, b) in enumerate(zip(ours, theirs, strict=True), 1):
        differs = next((i for i, (x, y) in enumerate(zip(a, b, strict=True), 1) if x != y), None)
        if differs is not None:
            said.append(f"prompt {number} differs from token {differs} of {len(a)}")
    total = sum(map(len, ours))
    return ", ".join(said) or f"the same {total} greedy tokens on {len(ours)} check prompts"


def _shown(row: Row) -> str:
    parts = [f"wall {row['wall_s']:.2f} s"]
    for name, label in (("step_s", "step"), ("worst_gap_s", "worst gap"), ("median_gap_s", "median gap")):
        if row[name] is not None:
            parts.append(f"{label} {float(row[name] or 0) * 1e3:.1f} ms")
    return ", ".join(parts)
