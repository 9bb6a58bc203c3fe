"""For each experiment the parameters of a small run, and another valid value of every parameter."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Choices:
    """small: what differs from the defaults in a run of seconds on tiny weights. changes: (name, value).

    beside: by name, other parameters without which that value is refused.
    """

    small: dict[str, Any]
    changes: list[tuple[str, Any]]
    beside: dict[str, dict[str, Any]] = field(default_factory=dict)


CHOICES = {
    "step_trace": Choices(
        small={"model": "tiny", "rows": (3,), "num_requests": 8},
        changes=[
            ("model", "smollm2"),
            ("dtype", "bf16"),
            ("device", "cuda"),
            ("scale", 8),
            ("engines", ("paged",)),
            ("rows", (3, 4)),
            ("num_requests", 9),
            ("chunk_budget", 7),
            ("seed", 5),
        ],
    ),
    "chunk_budget": Choices(
        small={
            "model": "tiny",
            "rows": 3,
            "num_requests": 6,
            "budgets": (64, 256),
            "step_tokens": (1, 8),
            "repeats": 2,
        },
        changes=[
            ("model", "smollm2"),
            ("dtype", "bf16"),
            ("device", "cuda"),
            ("scale", 8),
            ("engines", ("mixed",)),
            ("budgets", (64, 512)),
            ("decode_steps", (2.0,)),
            ("rows", 4),
            ("num_requests", 7),
            ("step_tokens", (1, 16)),
            ("repeats", 3),
            ("seed", 5),
        ],
    ),
    "small_pool": Choices(
        small={"model": "tiny", "rows": 12},
        changes=[
            ("model", "smollm2"),
            ("dtype", "bf16"),
            ("device", "cuda"),
            ("scale", 8),
            ("batches", ("uniform",)),
            ("engine", "mixed"),
            ("allocations", ("progressive",)),
            ("shares", (0.5,)),
            ("ample", False),
            ("rows", 13),
            ("chunk_budget", 8),
            ("runs", 2),
            ("seed", 5),
        ],
    ),
    "policies": Choices(
        small={
            "model": "tiny",
            "traces": ("long", "uniform"),
            "loads": (0.6,),
            "map_loads": (0.6,),
            "map_requests": 20,
            "num_requests": 8,
            "other_requests": 6,
            "max_rows": 3,
            "ride_rows": 3,
            "ride_chunks": (4, 8),
            "repeats": 2,
        },
        changes=[
            ("model", "smollm2"),
            ("dtype", "bf16"),
            ("device", "cuda"),
            ("scale", 8),
            ("policies", ("whole", "mixed")),
            ("orders", ("decode_first",)),
            ("traces", ("long",)),
            ("loads", (0.6, 0.8)),
            ("overload", 3.0),
            ("token_budgets", (64, 8192)),
            ("share", 0.5),
            ("map_shares", ()),
            ("map_loads", (0.5,)),
            ("map_requests", 30),
            ("num_requests", 9),
            ("other_requests", 9),
            ("max_rows", 4),
            ("ttft_limits", (10.0, 50.0)),
            ("gap_limits", (3.0, 10.0)),
            ("ride_rows", 4),
            ("ride_chunks", (4,)),
            ("repeats", 4),
            ("seed", 5),
        ],
    ),
    "recorded_decode": Choices(
        small={
            "model": "tiny",
            "rows": (1, 3),
            "context": 20,
            "repeats": 3,
            "served_rows": 3,
            "num_requests": 6,
            "runs": 2,
            "counted_rows": (3,),
            "counted_requests": 8,
            "counted_scale": 16,
            "rates": (2.0,),
            "steps_ms": (20.0,),
        },
        changes=[
            ("model", "smollm2"),
            ("dtype", "bf16"),
            ("device", "cuda"),
            ("scale", 8),
            ("rows", (1, 4)),
            ("context", 21),
            ("repeats", 4),
            ("served_rows", 4),
            ("num_requests", 7),
            ("runs", 1),
            ("counted_rows", (2,)),
            ("counted_requests", 9),
            ("counted_scale", 8),
            ("rates", (3.0,)),
            ("steps_ms", (25.0,)),
            ("seed", 5),
        ],
    ),
    "kernel_layout": Choices(
        small={
            "shape": "tiny",
            "layers": 2,
            "rows": (1, 3),
            "contexts": (20,),
            "spreads": (0.0, 0.9),
            "chunk": 5,
            "mix_scale": 16,
            "repeats": 3,
        },
        changes=[
            ("shape", "smollm2-135m"),
            ("dtype", "fp16"),
            ("device", "cuda"),
            ("layers", 3),
            ("rows", (1, 4)),
            ("contexts", (21,)),
            ("spreads", (0.0,)),
            ("chunk", 6),
            ("mix_scale", 8),
            ("repeats", 4),
        ],
        beside={"dtype": {"device": "cuda"}},
    ),
    "simulator": Choices(
        small={
            "model": "tiny",
            "rates": (3.0,),
            "loads": (0.6,),
            "max_rows": 3,
            "num_requests": 6,
            "repeats": 1,
        },
        changes=[
            ("model", "smollm2"),
            ("dtype", "bf16"),
            ("device", "cuda"),
            ("scale", 8),
            ("rates", (2.0, 3.0)),
            ("engine", "mixed"),
            ("loads", (0.5,)),
            ("max_rows", 4),
            ("num_requests", 7),
            ("repeats", 2),
        ],
    ),
    "scale": Choices(
        small={
            "cost_requests": (100,),
            "replicas": (1, 2),
            "routings": ("round_robin", "least_loaded"),
            "machines": 2,
            "apart_loads": (0.6,),
            "rows": (32,),
            "num_requests": 200,
            "budgets": (256,),
            "targets_s": (0.06,),
            "agent_tokens": (8_192,),
        },
        changes=[
            ("cost_requests", (100, 200)),
            ("load", 0.7),
            ("replicas", (1, 3)),
            ("routings", ("round_robin",)),
            ("machines", 3),
            ("apart_loads", (0.5,)),
            ("rows", (16,)),
            ("slow_gbps", 1.0),
            ("num_requests", 300),
            ("budgets", (128,)),
            ("targets_s", (0.05,)),
            ("ttft_limit_s", 1.0),
            ("gap_limit_s", 0.2),
            ("share", 0.8),
            ("agent_tokens", (5_000,)),
            ("agent_share", 0.1),
            ("seed", 1),
        ],
    ),
    "closed_batches": Choices(
        small={"model": "tiny", "rows": (3,), "warmup_runs": 0, "recorded_runs": 2},
        changes=[
            ("model", "smollm2"),
            ("dtype", "bf16"),
            ("device", "cuda"),
            ("scale", 8),
            ("batches", ("mixed",)),
            ("rows", (3, 4)),
            ("engines", ("paged",)),
            ("chunk_budget", 7),
            ("warmup_runs", 1),
            ("recorded_runs", 4),
            ("seed", 5),
        ],
    ),
    "arrival_curves": Choices(
        small={"model": "tiny", "loads": (0.6,), "num_requests": 6, "max_rows": 3},
        changes=[
            ("model", "smollm2"),
            ("dtype", "bf16"),
            ("device", "cuda"),
            ("scale", 8),
            ("engines", ("paged",)),
            ("loads", (0.6, 0.9)),
            ("num_requests", 7),
            ("seeds", (1,)),
            ("near_seeds", (1,)),
            ("max_rows", 4),
            ("chunk_budget", 7),
        ],
    ),
    "parity": Choices(
        small={},
        changes=[
            ("model", "tiny"),
            ("dtype", "bf16"),
            ("device", "cuda"),
            ("thorough", True),
            ("backends", ("cpu",)),
        ],
    ),
    "predictions": Choices(small={}, changes=[("overlap", "additive")]),
}


def experiment(name: str) -> Any:
    """The module of an experiment."""
    return import_module(f"interleave.lab.experiments.{name}")


def configs(name: str, **changed: Any) -> list[dict[str, Any]]:
    """The recorded configuration of every point of a small run."""
    module = experiment(name)
    params = module.Params(**{**CHOICES[name].small, **changed})
    return [dict(point.config) for point in module.points(params)]
