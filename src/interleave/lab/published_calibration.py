"""The published A10 engine's step-time model, calibrated on `use=calibrate` rows and nothing else.

What is assumed, and where it comes from:

- 5.15 ms to read the weights once a forward (rows h01, h02: 3.09 GB at 600 GB/s), hidden behind the
  work on its positions where that takes longer.
- A closed run's plans do not depend on time, so the counts of its steps are known before any fit.
- Dense attention works at the efficiency of the linear layers: one query-key pair costs as much of a
  position as its share of the arithmetic (Qwen2.5-1.5B: 28 layers x 4 x 12 heads x 128 against
  2 x 1.31e9 parameters). The published numbers cannot tell the two apart.
- The copy of a padded group into the pool costs by the row: it is a loop of small launches, whose
  bytes alone would take 0.8 ms. (By the position would fit the calibration rows a little better, at a
  cost above that of the position's whole forward; LOG.md compares the two.)
- The kernel rows stand for 28 layers of attention over 32 rows of the mixed draw in mid-run.
- What a fit has seen is the steps behind its calibration rows: a simulated step with a count beyond all of
  theirs counts as outside of the fit. The kernel rows are no step.
- The median decode step of 32 mixed rows is taken over the steps of the disturbance in which all 32
  rows decode and nothing else happens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from interleave.engine.batched import Engine
from interleave.engine.ladder import ENGINES
from interleave.engine.loop import serve
from interleave.lab.latency_model import OVERLAPS, LatencyModel, Range
from interleave.lab.plan_features import FEATURES, Features, total
from interleave.lab.reference import Published
from interleave.lab.simulated_executor import SimulatedExecutor
from interleave.lab.simulator import Served, requests_of
from interleave.lab.step_fit import Fit, Observed, Problem, compare
from interleave.lab.virtual_clock import VirtualClock
from interleave.lab.workload import workload

LAYERS = 28
PAIR_PER_POSITION = LAYERS * 4 * 12 * 128 / (2 * 1.31e9)
TIES = {"dense_attended": ("positions", PAIR_PER_POSITION), "copied_tokens": ("copied_rows", 0.0)}
FLOORS_S = [step / 1e4 for step in range(100, 341)]
MID_RUN_TOKENS = 79
"""Half of the mean budget: how much a row of the mixed draw has generated in mid-run."""
DRAIN = {"mixed32": 5408, "uniform32": 8160}
"""Tokens that a paged closed batch decodes after its prefill: all but each request's first."""


def steps_of(engine: str, name: str, max_rows: int = 32) -> list[list[Features]]:
    """The counts of every step of a closed run."""
    served = Served(engine=engine, max_rows=max_rows)
    clock = VirtualClock()
    executor = SimulatedExecutor(
        LatencyModel("additive", {}, fixed_s=1.0),
        clock,
        slots=ENGINES[engine].kv == "slots",
        keep_features=True,
    )
    serve(
        Engine(engine, served.scheduler(), executor),
        list(requests_of(workload(name).rows)),
        clock=clock,
        sleep=clock.sleep,
    )
    return executor.steps or []


_steps = cache(steps_of)


def mid_run_attended() -> int:
    """Positions that one decode of 32 rows of the mixed draw sees in mid-run."""
    return sum(row.prompt_tokens + MID_RUN_TOKENS for row in workload("mixed32").rows)


def observations(rows: Sequence[Published]) -> list[Observed]:
    """What the calibration rows say, as times of steps. Other rows are refused with a ValueError."""
    wrong = [row.id for row in rows if row.use != "calibrate"]
    if wrong:
        raise ValueError(f"rows {', '.join(wrong)} are not for calibration")
    value = {row.id: row.value for row in rows}
    mixed, uniform = _steps("paged", "mixed32"), _steps("paged", "uniform32")
    disturbed = _steps("chunked", "disturbance64")
    slots = _steps("continuous", "mixed32")
    decoding = [step for step in disturbed if any(f.decode_rows for f in step)]
    full = [step for step in disturbed if len(step) == 1 and step[0].decode_rows == 32]
    mid_run = mid_run_attended()
    new_tokens = sum(row.new_tokens for row in workload("mixed32").rows)
    known = {
        "c02": lambda v: Observed("c02", mixed, v),
        "c03": lambda v: Observed("c03", mixed[:1], v),
        "c04": lambda v: Observed("c04", mixed[1:], DRAIN["mixed32"] / v),
        "c05": lambda v: Observed("c05", _steps("chunked", "uniform32"), v),
        "c06": lambda v: Observed("c06", uniform, v),
        "c07": lambda v: Observed("c07", uniform[1:], DRAIN["uniform32"] / v),
        "c08": lambda v: Observed("c08", decoding, v / 1e3, "max"),
        "c11": lambda v: Observed("c11", full, v / 1e3, "median"),
        "c12": lambda v: Observed("c12", [[Features(decode_attended=mid_run)]], LAYERS * v / 1e3, bare=True),
        "c16": lambda v: Observed("c16", slots, new_tokens / v),
    }
    return [make(value[name]) for name, make in known.items() if value.get(name) is not None]


def seen(observed: Sequence[Observed]) -> dict[str, Range]:
    """Lowest and highest count of each feature over the whole steps behind these observations."""
    totals = [total(list(step)) for one in observed if not one.bare for step in one.steps]
    return {
        name: (min(values), max(values))
        for name, values in zip(FEATURES, zip(*totals, strict=True), strict=True)
    }


def calibrate(published: Sequence[Published]) -> dict[str, Fit]:
    """The best fit under each overlap hypothesis, from the rows marked calibrate and constant alone.

    Each model states the ranges of what it was fitted to, so that runs count the steps beyond them.
    """
    constants = {row.id: row.value for row in published if row.use == "constant"}
    weights_s = (constants["h02"] or 0.0) / (constants["h01"] or 1.0)
    observed = observations([row for row in published if row.use == "calibrate"])
    problem = Problem.of(observed, ties=TIES, weights_s=weights_s, with_fixed=False)
    fits, ranges = compare(problem, FLOORS_S, OVERLAPS), seen(observed)
    return {name: replace(fit, model=replace(fit.model, fitted=ranges)) for name, fit in fits.items()}
