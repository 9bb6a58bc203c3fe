"""The simulator: the serving loop and scheduler of the engines, on a virtual clock. Torch-free.

Nothing is decided here. It puts `engine.loop`, the scheduler, a `SimulatedExecutor` and a
`VirtualClock` together, and chooses between a full log and a table of fixed size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from interleave.engine.batched import Engine, StepOutcome
from interleave.engine.ladder import ENGINES, ladder_config
from interleave.engine.loop import RunClock, serve, serve_arrivals
from interleave.engine.records import RunLog
from interleave.lab.latency_model import LatencyModel
from interleave.lab.request_table import RequestTable, name_of
from interleave.lab.simulated_executor import SimulatedExecutor
from interleave.lab.step_prediction import step_predictor
from interleave.lab.trace import Trace, TraceRow
from interleave.lab.virtual_clock import Arrivals, VirtualClock
from interleave.schedule.block_pool import BlockPool
from interleave.schedule.names import nearest
from interleave.schedule.request import Request
from interleave.schedule.scheduler import Scheduler
from interleave.schedule.tpot_target import TpotTarget

AMPLE_BLOCKS = 1 << 13
"""A pool that no default workload exhausts: 32 rows of the longest published request take 2,176."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The engine to simulate. Fields as in `build_engine`; num_blocks None is a pool that never binds.

    slot_tokens: slot width of `continuous` and `static`, as wide as any request.
    tpot_target_s: chunks as large as a step of this length allows, at most chunk_budget (`chunked`, `mixed`).
    """

    engine: str
    max_rows: int = 32
    chunk_budget: int | None = 512
    max_chunk: int | None = None
    token_budget: int | None = None
    order: str | None = None
    allocation: str = "reserve"
    block_tokens: int = 64
    num_blocks: int | None = None
    slot_tokens: int = 1 << 20
    tpot_target_s: float | None = None

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise ValueError(nearest("engine", self.engine, ENGINES))
        if ENGINES[self.engine].kv in ("none", "one"):
            raise ValueError(
                f"engine {self.engine!r} is not simulated: it has no batch; choose one of "
                f"{', '.join(name for name, spec in ENGINES.items() if spec.kv not in ('none', 'one'))}"
            )

    def scheduler(self, look_ahead: bool = False, model: LatencyModel | None = None) -> Scheduler:
        """A fresh scheduler with its pool. model: what a tpot target asks; without one it can only validate."""
        config = ladder_config(
            self.engine,
            order=self.order,
            chunk_budget=self.chunk_budget,
            max_chunk=self.max_chunk,
            token_budget=self.token_budget,
            max_rows=self.max_rows,
            allocation=self.allocation,
        )
        if ENGINES[self.engine].kv == "slots":
            pool = BlockPool(self.max_rows, self.slot_tokens)
        else:
            pool = BlockPool(AMPLE_BLOCKS if self.num_blocks is None else self.num_blocks, self.block_tokens)
        tpot = None
        if self.tpot_target_s is not None:
            tpot = TpotTarget(self.tpot_target_s, step_predictor(model))
        return Scheduler(config, pool, look_ahead=look_ahead, tpot=tpot)

    @property
    def slots(self) -> bool:
        return ENGINES[self.engine].kv == "slots"

    def machine(
        self, model: LatencyModel, arrivals: Arrivals | None, *, keep_pieces: bool = False
    ) -> tuple[Engine, SimulatedExecutor]:
        """The engine on a clock of its own, at 0. arrivals: the stream that limits leaps; None never leaps."""
        executor = SimulatedExecutor(
            model, VirtualClock(), slots=self.slots, arrivals=arrivals, keep_pieces=keep_pieces
        )
        return Engine(self.engine, self.scheduler(arrivals is not None, model), executor), executor


def requests_of(rows: Iterable[TraceRow]) -> Iterator[Request]:
    """A request per row, in order, with a length in place of a prompt."""
    for number, (due_s, prompt_tokens, new_tokens) in enumerate(rows):
        yield Request(name_of(number), range(prompt_tokens), new_tokens, due_s=due_s)


def simulate(served: Served, trace: Trace, model: LatencyModel) -> RunLog:
    """Every step and token of serving a trace: the log that an engine would leave, with predicted times."""
    engine, executor = served.machine(model, None)
    clock = executor.clock
    return serve(engine, list(requests_of(trace.rows)), clock=clock, sleep=clock.sleep)


def simulate_table(
    served: Served,
    rows: Iterable[TraceRow],
    num_requests: int,
    model: LatencyModel,
    *,
    leap: bool = True,
    on_step: Callable[[StepOutcome, float], None] | None = None,
) -> tuple[RequestTable, SimulatedExecutor]:
    """Serve `rows`, drawn one by one, and keep a few numbers a request.

    leap: book runs of recurring steps at once; the result is the same, sooner. on_step may look at
    outcomes (a leap is one of them) but not abort.
    Raises ValueError for rows out of order and for a request that can never fit.
    """
    arrivals = Arrivals(requests_of(rows))
    engine, executor = served.machine(model, arrivals if leap else None, keep_pieces=on_step is not None)
    table = RequestTable(num_requests)
    clock = executor.clock
    serve_arrivals(engine, arrivals, table, RunClock(clock), clock.sleep, on_step)
    engine.check()
    return table, executor
