"""What a GPU host borrowed for minutes measures, in order of value: sections of points, each with its time.

Every section is an experiment for `measure.collect`, so each point is stored as it is measured. Sizes:
`full` is the `gpu` profile of the experiments, `tiny` a dry run of the same code on a CPU.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from interleave.lab.gpu_host.choices import TINY, Choices
from interleave.lab.measure import Experiment

PROFILE = "gpu"


@dataclass(frozen=True, slots=True)
class Section:
    """experiment: a module of this folder, or of `lab/experiments`. seconds: planned, on a fast card; what
    it may take is more (see `run`). change: parameters beside those of the `gpu` profile."""

    name: str
    module: str
    seconds: float
    change: dict[str, Any]

    @property
    def experiment_name(self) -> str:
        """The folder of its points."""
        return self.module.rpartition(".")[2]

    def experiment(self) -> Experiment:
        return importlib.import_module(f"interleave.lab.{self.module}")

    def params(self, size: str) -> Any:
        return SIZES[size](self)


def _section(name: str, module: str, seconds: float, **change: Any) -> Section:
    return Section(name, module, seconds, change)


SECTIONS = (
    _section("agreement", "gpu_host.agreement", 30),
    _section("kernels", "gpu_host.kernel_checks", 40),
    _section("parity", "gpu_host.gate_random", 50),
    _section("layouts", "experiments.kernel_layout", 30),
    _section("decode", "experiments.recorded_decode", 70),
    _section(
        "closed",
        "experiments.closed_batches",
        80,
        engines=("paged", "chunked", "mixed", "recorded"),
    ),
    _section("closed-continuous", "experiments.closed_batches", 30, engines=("continuous",)),
    _section("disturbance", "experiments.step_trace", 50),
    _section("sweep", "experiments.chunk_budget", 60),
    _section("arrivals", "experiments.arrival_curves", 100),
)


def _full(section: Section) -> Any:
    if section.module.startswith("gpu_host."):
        return Choices()
    experiment: Any = section.experiment()
    return experiment.Params(**(experiment.PROFILES[PROFILE] | section.change))


_SMALL: dict[str, dict[str, Any]] = {
    "kernel_layout": {
        "shape": "tiny",
        "layers": 2,
        "rows": (3,),
        "contexts": (20,),
        "spreads": (0.0,),
        "chunk": 5,
        "mix_scale": 16,
        "repeats": 2,
    },
    "recorded_decode": {
        "rows": (1, 3),
        "context": 20,
        "repeats": 2,
        "served_rows": 2,
        "num_requests": 3,
        "runs": 1,
        "counted_rows": (3,),
        "counted_requests": 4,
        "counted_scale": 16,
        "rates": (2.0,),
        "steps_ms": (25.0,),
    },
    "closed_batches": {"rows": (2,), "recorded_runs": 1, "batches": ("mixed",)},
    "step_trace": {"rows": (2,), "num_requests": 4, "engines": ("chunked", "recorded")},
    "chunk_budget": {
        "rows": 2,
        "num_requests": 3,
        "budgets": (256,),
        "step_tokens": (1, 4),
        "repeats": 1,
        "engines": ("recorded",),
    },
    "arrival_curves": {"num_requests": 3, "loads": (1.0,), "engines": ("recorded",), "max_rows": 2},
}


def _tiny(section: Section) -> Any:
    if section.module.startswith("gpu_host."):
        return TINY
    experiment: Any = section.experiment()
    shared = {"model": "dummy:tiny-wide", "dtype": "fp32", "device": "cpu", "scale": 16}
    known = {name: value for name, value in shared.items() if name in experiment.Params.model_fields}
    return experiment.Params(**(known | section.change | _SMALL[section.experiment_name]))


SIZES: dict[str, Callable[[Section], Any]] = {"full": _full, "tiny": _tiny}
