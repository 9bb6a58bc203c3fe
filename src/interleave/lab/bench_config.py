"""One benchmark configuration: checked when it is made, and the trace it asks for. Runs nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from interleave.engine.ladder import ENGINES, ladder_config
from interleave.lab.metrics import Limits
from interleave.lab.peers.workload_file import Workload, WorkloadFile, default_file
from interleave.lab.trace import Trace, TraceRow, read_csv
from interleave.lab.workload import workload
from interleave.schedule.names import nearest

DEVICES = ("cpu", "cuda", "mps")
PEER_PREFIX = "peer-"  # workloads by these names are in the committed workload file


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchConfig:
    """One configuration, as chosen. Lengths and budgets in tokens, rate in requests/s.

    arrivals: closed (everything due at 0) or open (at a rate, or when the trace says).
    workload, trace: a name, or a CSV to replay; scale divides a workload's lengths, not a trace's.
    workload_file: token ids that a closed batch serves as they are; `workload` says which of them, if
    there are several (see `lab.peers.workload_file`).
    chunk_budget, block_tokens: None takes the published 512 and 64 divided by scale.
    pool_gib: None takes what memory leaves, up to what max_rows requests can use.
    allocation: when rows get their blocks, `reserve` or `progressive` (engines with a block pool).
    warmup: runs served and discarded before the `runs` that are recorded; a warm-up of an open
    configuration serves its first max_rows requests at once.
    tpot_target_s, latency: let the chunk budget follow from a target for the time of a step, by the model
    in a file of `interleave fit`; both or neither.
    ttft_limit_s, tpot_limit_s, gap_limit_s: what a request has to meet to count in the goodput; without
    any there is no goodput.
    """

    arrivals: str
    engine: str
    workload: str | None = None
    trace: str | None = None
    workload_file: str | None = None
    scale: int = 1
    rate: float | None = None
    num_requests: int | None = None
    seed: int = 0
    max_rows: int = 32
    chunk_budget: int | None = None
    max_chunk: int | None = None
    token_budget: int | None = None
    block_tokens: int | None = None
    pool_gib: float | None = None
    order: str | None = None
    allocation: str = "reserve"
    backend: str | None = None
    model: str = "smollm2"
    dtype: str = "fp32"
    device: str = "cpu"
    runs: int = 1
    warmup: int = 1
    tpot_target_s: float | None = None
    latency: str | None = None
    ttft_limit_s: float | None = None
    tpot_limit_s: float | None = None
    gap_limit_s: float | None = None

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise ValueError(nearest("engine", self.engine, ENGINES))
        ladder_config(
            self.engine, allocation=self.allocation
        )  # refused now, not after the weights are loaded
        if self.arrivals not in ("closed", "open"):
            raise ValueError(f"arrivals must be closed or open, got {self.arrivals!r}")
        if self.runs < 1 or self.warmup < 0:
            raise ValueError(f"runs must be at least 1 and warmup 0, got {self.runs} and {self.warmup}")
        if self.num_requests is not None and self.num_requests < 1:
            raise ValueError(f"num_requests must be at least 1, got {self.num_requests}")
        if self.reads_file:
            self._check_file()
        elif (self.workload is None) == (self.trace is None):
            raise ValueError("give a workload or a trace file, one of the two")
        if self.arrivals == "open" and (self.rate is None) == (self.trace is None):
            raise ValueError(
                "open arrivals need a rate, or a trace file that has the due times, one of the two"
            )
        if self.arrivals == "closed" and self.rate is not None:
            raise ValueError(f"closed arrivals have no rate, got {self.rate!r}")
        _ = self.limits  # refused now, not after the run
        if (self.tpot_target_s is None) != (self.latency is None):
            raise ValueError("a TPOT target needs a latency model to choose chunks by: give both or neither")

    @property
    def limits(self) -> Limits | None:
        """What goodput asks of a request; None where no limit is stated."""
        stated = (self.ttft_limit_s, self.tpot_limit_s, self.gap_limit_s)
        return None if stated == (None, None, None) else Limits(*stated)

    @property
    def reads_file(self) -> bool:
        """Whether the requests come from a workload file."""
        return self.workload_file is not None or (self.workload or "").startswith(PEER_PREFIX)

    def _check_file(self) -> None:
        if self.trace is not None:
            raise ValueError("give a workload file or a trace file, not both")
        if self.arrivals != "closed":
            raise ValueError(f"a workload file holds a closed batch; arrivals {self.arrivals!r} need a trace")
        if self.scale != 1:
            raise ValueError(f"a workload file is served as it is: scale must be 1, got {self.scale}")


def file_workload(config: BenchConfig) -> Workload | None:
    """The workload that a configuration takes from a file, shortened to `num_requests`; None without one."""
    if not config.reads_file:
        return None
    file = WorkloadFile(Path(config.workload_file) if config.workload_file else default_file())
    if not file.names:
        raise ValueError(f"{file.path} holds no workload: it must have a list of requests under some name")
    if config.workload is None and len(file.names) > 1:
        raise ValueError(f"workload must name one of those in {file.path}: {', '.join(file.names)}")
    name = config.workload or file.names[0]
    found = file.workload(name)
    return replace(found, requests=found.requests[: config.num_requests])


def bench_trace(config: BenchConfig) -> Trace:
    """The requests of a configuration; a closed one has every due time at 0."""
    if (from_file := file_workload(config)) is not None:
        return from_file.trace
    if config.workload is not None:
        return workload(
            config.workload,
            scale=config.scale,
            num_requests=config.num_requests,
            rate=config.rate,
            seed=config.seed,
        )
    assert config.trace is not None  # BenchConfig holds one of the two
    trace = read_csv(Path(config.trace))
    if config.num_requests is not None and config.num_requests > len(trace):
        raise ValueError(
            f"num_requests {config.num_requests} is more than the {len(trace)} of {config.trace}"
        )
    rows = trace.rows[: config.num_requests]
    return Trace(rows if config.arrivals == "open" else tuple(TraceRow(0.0, *row[1:]) for row in rows))


def check_lengths(path: str, trace: Trace, positions: int) -> None:
    """ValueError naming file and line of the first request that is longer than a model of so many positions takes."""
    for line, row in enumerate(trace.rows, 2):  # line 1 holds the names of the columns
        if row.prompt_tokens + row.new_tokens > positions:
            raise ValueError(
                f"{path}:{line}: {row.prompt_tokens} prompt and {row.new_tokens} new tokens can never fit: the model "
                f"has {positions} positions"
            )


def checked_device(name: str) -> torch.device:
    """A device that is there. Raises ValueError for an unknown name or one that this machine lacks."""
    kind, _, index = name.partition(":")
    if kind not in DEVICES or (index and not index.isdecimal()):
        raise ValueError(nearest("device", name, DEVICES))
    count = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}[kind]
    if int(index or 0) >= count:
        raise ValueError(f"device {name!r}: this machine has {count} {kind} devices; 'cpu' always works")
    return torch.device(name)
