"""Step traces: bench documents read back, replayed for their counts, and fitted. Torch-free."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from interleave.documents import finding, read_document
from interleave.engine.ladder import ENGINES
from interleave.engine.records import RequestRecord, StepRecord
from interleave.lab.latency_model import LatencyModel
from interleave.lab.plan_features import FEATURES, Features, total
from interleave.lab.replay import ReplayError, replay
from interleave.lab.simulator import Served
from interleave.lab.step_fit import Fit, Observed, Problem, compare

KINDS = ("prefill", "decode", "chunk and decode", "mixed", "padded group")


MOST = 2**24
"""Blocks, rows or tokens of an engine: a pool of more would take all memory to plan with."""


class StepTraceError(ValueError):
    """A file that holds no usable step trace; the message names it."""


@dataclass(frozen=True, slots=True)
class TimedStep:
    """The counts of a step's forwards, and the seconds it took."""

    forwards: Sequence[Features]
    seconds: float

    @property
    def kind(self) -> str:
        if any(f.dense_attended for f in self.forwards):
            return "padded group"
        if len(self.forwards) > 1:
            return "chunk and decode"
        (only,) = self.forwards
        decodes = only.decode_rows > 0
        return ("mixed" if only.positions > only.decode_rows else "decode") if decodes else "prefill"


@dataclass(frozen=True, slots=True)
class StepTrace:
    """A recorded run. `origin`: device, threads, model, dtype."""

    name: str
    engine: str
    origin: Mapping[str, Any]
    trace_sha256: str
    steps: Sequence[TimedStep]


def read_step_trace(path: Path) -> StepTrace:
    """A document of `interleave bench`, replayed. Raises StepTraceError naming the file."""
    document = read_document(path, StepTraceError)
    try:
        config = document["config"]
        requests = _records(RequestRecord, document["requests"])
        steps = _records(StepRecord, document["steps"])
        origin = {
            "device": document["device"],
            "threads": document["threads"],
            "model": config["model"],
            "dtype": config["dtype"],
        }
        sha256 = document["trace_sha256"]
        for name, value in dict(document["engine"]).items():
            if isinstance(value, int) and value > MOST:
                raise StepTraceError(f"{path}: engine: {name} is {value}, more than any engine has")
        served = served_of(config["engine"], document["engine"])
    except ValidationError as error:
        raise StepTraceError(f"{path}: not a record of `interleave bench`: {finding(error)}") from error
    except StepTraceError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise StepTraceError(f"{path}: not a document of `interleave bench`: {error} is missing") from error
    if document.get("status") != "completed":
        raise StepTraceError(
            f"{path}: the run is {document.get('status')!r}; only a completed one is replayed"
        )
    try:
        return StepTrace(path.name, config["engine"], origin, sha256, timed_steps(served, requests, steps))
    except ReplayError as error:
        raise StepTraceError(f"{path}: {error}") from error
    except Exception as error:  # a record that was never a run may break a rule anywhere in the scheduler
        raise StepTraceError(f"{path}: cannot be replayed: {error or type(error).__name__}") from error


def _records(kind: Any, values: Any) -> Any:
    """Objects as records of `kind`, with every field there and of its type."""
    check, names = TypeAdapter(kind), [field.name for field in fields(kind)]
    return [check.validate_python({name: one[name] for name in names}) for one in values]


def served_of(name: str, settings: Mapping[str, Any]) -> Served:
    """The engine `name` as it really ran (see `serving.engine_settings`), as the simulator knows it."""
    slots = ENGINES[name].kv == "slots" if name in ENGINES else False
    names = ("max_rows", "chunk_budget", "max_chunk", "token_budget", "order", "allocation")
    return Served(
        engine=name,
        **{choice: settings[choice] for choice in names},
        **({"slot_tokens": settings["block_tokens"]} if slots else
           {"block_tokens": settings["block_tokens"], "num_blocks": settings["num_blocks"]}),
    )  # fmt: skip


def timed_steps(
    served: Served, requests: Sequence[RequestRecord], steps: Sequence[StepRecord]
) -> list[TimedStep]:
    """Counts by replay, seconds from the record."""
    counts = replay(served, requests, steps)
    if backward := [step.step for step in steps if step.end_s <= step.start_s]:
        raise ReplayError(f"step {backward[0]} took no time")
    return [
        TimedStep(forwards, step.end_s - step.start_s) for forwards, step in zip(counts, steps, strict=True)
    ]


def fit_steps(steps: Sequence[TimedStep]) -> dict[str, Fit]:
    """The best fit of each overlap hypothesis; the floor is searched among the times of the steps."""
    observed = [Observed(str(number), [step.forwards], step.seconds) for number, step in enumerate(steps)]
    problem = Problem.of(observed)
    seconds = np.array([step.seconds for step in steps])
    floors = np.quantile(seconds, np.linspace(0.0, 0.5, 11)) * 0.98
    fits = compare(problem, [0.0, *map(float, floors)])
    ranges = fitted_ranges(steps)
    return {name: replace(fit, model=replace(fit.model, fitted=ranges)) for name, fit in fits.items()}


def fitted_ranges(steps: Iterable[TimedStep]) -> dict[str, tuple[int, int]]:
    """Lowest and highest count of each feature over whole steps."""
    totals = np.array([total(list(step.forwards)) for step in steps])
    return {
        name: (int(column.min()), int(column.max())) for name, column in zip(FEATURES, totals.T, strict=True)
    }


def step_errors(model: LatencyModel, steps: Sequence[TimedStep]) -> dict[str, dict[str, float | int]]:
    """By kind: number of steps, median and p90 of the relative error's size, and the signed bias.

    bias: predicted time of all steps of the kind over their measured time, less 1. outside: steps with
    a count that the fit has not seen.
    """
    errors: dict[str, dict[str, float | int]] = {}
    for kind in KINDS:
        chosen = [step for step in steps if step.kind == kind]
        if not chosen:
            continue
        predicted = np.array([model.step_s(step.forwards) for step in chosen])
        measured = np.array([step.seconds for step in chosen])
        relative = np.abs(predicted / measured - 1.0)
        errors[kind] = {
            "n": len(chosen),
            "median_error": float(np.median(relative)),
            "p90_error": float(np.quantile(relative, 0.9)),
            "bias": float(predicted.sum() / measured.sum() - 1.0),
            "outside": sum(bool(model.outside(total(list(step.forwards)))) for step in chosen),
        }
    return errors
