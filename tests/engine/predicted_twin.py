"""A simulator beside a real engine: the same limits, and what both plan and report, to be compared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from interleave.engine.batched import Engine, Executed, StepOutcome
from interleave.engine.build import ENGINES
from interleave.lab.latency_model import LatencyModel
from interleave.lab.simulated_executor import SimulatedExecutor
from interleave.lab.virtual_clock import VirtualClock
from interleave.schedule.block_pool import BlockPool
from interleave.schedule.plan import StepPlan
from interleave.schedule.row import Row
from interleave.schedule.scheduler import Scheduler

MODEL = LatencyModel(
    "forward_floor", {"forwards": 1e-3, "positions": 1e-4, "decode_attended": 1e-5}, 2e-3, fixed_s=1e-4
)


class Watched:
    """An executor that remembers what the plan was before it was booked.

    tokens: given instead of its own, for one that cannot know them. fault: raised instead of computing.
    """

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.planned: tuple[Any, ...] = ()
        self.tokens: dict[str, int] | None = None
        self.fault: BaseException | None = None

    def execute(self, plan: StepPlan) -> Executed:
        self.planned = (
            plan.step,
            plan.composition(),
            plan.padded,
            [row.request_id for row in plan.admitted],
            [row.request_id for row in plan.resumed],
            [(gone.row.request_id, gone.blocks, gone.num_computed) for gone in plan.preempted],
        )
        if self.fault is not None:
            raise self.fault
        executed = self.inner.execute(plan)
        self.computed = dict(executed.tokens)
        return executed if self.tokens is None else replace(executed, tokens=self.tokens)

    def release(self, rows: list[Row], blocks: list[list[int]]) -> None:
        self.inner.release(rows, blocks)


def reported(outcome: StepOutcome) -> dict[str, Any]:
    """What a step says of itself, without tokens and times."""
    names = ("num_rows", "owned_blocks", "prefill_tokens", "decode_rows", "held_rows")
    counts = {name: getattr(outcome, name) for name in (*names, "attended_tokens", "context_tokens")}
    return counts | {"finished": outcome.finished, "served": [i for i, _ in outcome.tokens]}


class Twin(Engine):
    def __init__(self, name: str, scheduler: Scheduler, watched: Watched, vocab_size: int | None) -> None:
        super().__init__(name, scheduler, watched, vocab_size)
        self.watched = watched


def twin(subject: Engine, look_ahead: bool) -> Twin:
    """The same limits and pool, and an executor that predicts; the one that does not look ahead counts features."""
    pool = subject.scheduler.pool
    scheduler = Scheduler(
        subject.scheduler.config, BlockPool(pool.num_blocks, pool.block_tokens), look_ahead=look_ahead
    )
    slots = ENGINES[subject.name].kv == "slots"
    predicting = SimulatedExecutor(MODEL, VirtualClock(), slots=slots, keep_features=not look_ahead)
    return Twin(subject.name, scheduler, Watched(predicting), subject.vocab_size)
