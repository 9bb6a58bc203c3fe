"""This engine and each peer on the same work, back to back in interleaved pairs: A B A B ...

Each pair of engines runs alone, in processes that stay loaded; per workload the pairs follow one
another, so that the machine's drift moves both sides of a ratio. Where a long prompt arrives, this
engine runs a second time in each pair, with chunks chosen by a target for the time of a step. Knows
what is run in which order; not how an engine is driven, what is read off a run, nor where the rows go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interleave.lab.peers.engines import OUR_ADAPTIVE, OUR_ENGINE, OUR_SIDE, OURS, Engine, Found
from interleave.lab.peers.kinds import DISTURB, KINDS, WARMUP, workloads_of
from interleave.lab.peers.process import EngineProcess, PeerError
from interleave.lab.peers.run_rows import check_line, run_row, shown
from interleave.lab.peers.workload_file import Workload, WorkloadFile
from interleave.lab.point_table import Row
from interleave.schedule.names import nearest

SLOW_S = 30.0
FEWEST_PAIRS = 5
DECODE_STEPS = 6.0


@dataclass(frozen=True, slots=True)
class PeersConfig:
    """runs: pairs of each workload, after the first that takes more than SLOW_S no more than FEWEST_PAIRS.

    model: a source that `load_model` takes; a peer gets its folder, or the embedded model's GGUF.
    engine, chunk_budget: of this project's side; peers get the same budget. rows: most at once.
    tpot_target_s: that the adaptive engine keeps a step to; None takes `decode_steps` times the step in
    which the rows of the disturbance decode, as the latency model tells it (see `adaptive`). latency:
    the file of that model; None fits one right before.
    """

    threads: int
    only: tuple[str, ...] = ()
    runs: int = 5
    model: str = "smollm2"
    engine: str = "mixed"
    chunk_budget: int = 512
    rows: int = 32
    cache_gb: int = 2
    tpot_target_s: float | None = None
    decode_steps: float = DECODE_STEPS
    latency: str | None = None

    def __post_init__(self) -> None:
        for kind in self.only:
            if kind not in KINDS:
                raise ValueError(nearest("workload", kind, KINDS))
        for name in ("threads", "runs", "chunk_budget", "rows"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name, value in (("tpot_target_s", self.tpot_target_s), ("decode_steps", self.decode_steps)):
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"{name} must be a finite number above 0, got {value!r}")

    @property
    def kinds(self) -> tuple[str, ...]:
        """In the order in which they run, the short ones first."""
        return tuple(kind for kind in KINDS if not self.only or kind in self.only)


@dataclass(slots=True)
class Measurement:
    """rows: one per run; hellos: versions, flags and memory by engine; checks: greedy tokens by engine;
    failures: what went wrong, by peer; starts_s: of this engine, from no process to a token;
    target: how chunks were chosen (see `adaptive`), None where they were not."""

    rows: list[Row] = field(default_factory=list)
    hellos: dict[str, dict[str, Any]] = field(default_factory=dict)
    checks: dict[str, list[list[int]]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    starts_s: list[float] = field(default_factory=list)
    target: dict[str, Any] | None = None


def engine_options(config: PeersConfig, workloads: Sequence[Workload]) -> dict[str, Any]:
    """What every adapter gets; longest: positions of the longest request of these workloads."""
    return {
        "threads": config.threads,
        "engine": config.engine,
        "chunk_budget": config.chunk_budget,
        "rows": config.rows,
        "cache_gb": config.cache_gb,
        "longest": max(len(ask.prompt) + ask.max_tokens for w in workloads for ask in w.everyone),
    }


def compare(
    config: PeersConfig,
    peers: Sequence[Found],
    file: WorkloadFile,
    model_for: Callable[[Engine], Path | str],
    our_python: str,
    say: Callable[[str], None] = lambda _: None,
    into: Measurement | None = None,
    target: Mapping[str, Any] | None = None,
) -> Measurement:
    """Run every pair; a peer that fails is told and left out, the others go on.

    model_for: what an engine is loaded from. into: is filled as the runs come, so that an interrupted
    comparison keeps what it has. target: options of the adaptive engine (`tpot_target_s`, `latency`);
    without them it does not run. Raises PeerError if this project's own side fails.
    """
    found = Measurement() if into is None else into
    workloads, warmup = workloads_of(config.kinds, file), file.workload(WARMUP)
    if not workloads:
        return found
    options = engine_options(config, [*workloads.values(), warmup])
    ours = {**options, "model": str(model_for(OUR_ENGINE)), "touch_pool": True}
    for peer in peers:
        say(f"{peer.engine.label}: loading")
        with ExitStack() as stack:
            pair = [stack.enter_context(EngineProcess(OUR_ENGINE, our_python, ours))]
            if target is not None and DISTURB in workloads and peer.engine.serves_late:
                by_target = {**ours, "tpot_target_s": target["tpot_target_s"], "latency": target["latency"]}
                pair.append(stack.enter_context(EngineProcess(OUR_ADAPTIVE, our_python, by_target)))
            try:
                theirs = {**options, "model": str(model_for(peer.engine))}
                pair.append(stack.enter_context(EngineProcess(peer.engine, peer.python, theirs)))
                _pairs(config, pair, workloads, warmup, found, say)
            except (PeerError, OSError) as error:
                if isinstance(error, PeerError) and error.engine.name in OUR_SIDE:
                    raise
                found.failures[peer.engine.name] = str(error)
                say(f"{peer.engine.label}: {error}")
    return found


def _pairs(
    config: PeersConfig,
    pair: Sequence[EngineProcess],
    workloads: Mapping[str, Workload],
    warmup: Workload,
    found: Measurement,
    say: Callable[[str], None],
) -> None:
    """pair: this engine, perhaps with chunks by a target too, and a peer last."""
    peer = pair[-1].engine
    for process in pair:
        found.hellos[process.engine.name] = process.hello
        process.serve(warmup)
    for name, workload in workloads.items():
        if name == "check":
            for process in pair:
                tokens = [_alone(process, workload, n) for n in range(len(workload.requests))]
                found.checks[process.engine.name] = tokens
                if process.engine.name != OURS:
                    say(f"{process.engine.label}: {check_line(found.checks[OURS], tokens)}")
            continue
        if workload.late is not None and not peer.serves_late:
            say(f"{peer.label}, {name}: a batch that nobody can join; left out")
            continue
        taking_part = [p for p in pair if p.engine is not OUR_ADAPTIVE or workload.late is not None]
        slowest, run = 0.0, 0
        while run < config.runs and (run < FEWEST_PAIRS or slowest <= SLOW_S):
            for process in taking_part:
                row = run_row(process.serve(workload), workload, peer.name, process.engine.name, run)
                found.rows.append(row)
                slowest = max(slowest, float(row["wall_s"] or 0))
                say(f"{name} {run + 1}, {process.engine.label}: {shown(row)}")
            run += 1


def _alone(process: EngineProcess, workload: Workload, number: int) -> list[int]:
    return process.serve(Workload(workload.name, (workload.requests[number],))).tokens[0]
