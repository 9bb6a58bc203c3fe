"""Parity: the gates that every engine passes before its times count, as one point.

The point is a whole run of `lab.gate`. Its rows are the trials (one engine on one workload through
one attention backend) and the near ties. Does not draw.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from pydantic import Field

from interleave.lab.choices import ModelChoices
from interleave.lab.devices import num_threads
from interleave.lab.gate import gate_model
from interleave.lab.measure import Point
from interleave.lab.point_table import Row
from interleave.model.sources import LoadedModel, load_model

TIE_COLUMNS = ("request", "prompt_tokens", "position", "token_index", "expected", "got", "gap_steps")


class Params(ModelChoices):
    """What a run of this experiment can choose."""

    thorough: bool = Field(False, description="every trial through every attention backend, not a subset")
    backends: tuple[Literal["cpu", "reference", "triton"], ...] = Field(
        ("cpu", "reference", "triton"),
        min_length=1,
        description="attention backends; those that work here run",
    )


PROFILES: dict[str, dict[str, Any]] = {
    "quick": {},
    "cpu": {"thorough": True},
    "gpu": {"model": "dummy:qwen2.5-1.5b", "dtype": "fp16", "device": "cuda", "thorough": True},
}
MODULES = ("gate", "gate_report", "gate_trials", "parity")
LESS_MEMORY = "choose a smaller `model`"


def points(params: Params) -> list[Point]:
    return [Point("parity gate", params.model_dump(mode="json"))]


def estimate_s(params: Params) -> list[float]:
    """Seconds on two CPU cores or a GPU."""
    return [400.0 if params.thorough else 60.0]


def prepare(params: Params) -> LoadedModel:
    torch.set_num_threads(num_threads())
    return load_model(params.model, params.dtype, params.device)


def measure(point: Point, setting: LoadedModel, _earlier: Mapping[str, list[Row]]) -> list[Row]:
    """kind trial: how many requests were compared and how that ended; kind tie: each near tie."""
    document = gate_model(setting, quick=not point.config["thorough"], backends=point.config["backends"])
    facts = {
        "distinct_tokens": document["distinct_tokens"],
        "near_tie_steps": document["near_tie_steps"],
        "refused": "; ".join(document["conditions"]["refused_backends"]) or None,
    }
    return [
        *({**facts, **_row("trial", trial)} for trial in document["trials"]),
        *({**facts, **_row("tie", tie)} for tie in document["ties"]),
    ]


def _row(kind: str, entry: Mapping[str, Any]) -> Row:
    counts = ("requests", "exact", "near_ties", "failed")
    return {
        "kind": kind,
        **{name: entry[name] or None for name in ("engine", "workload", "backend", "conditions", "against")},
        **{name: entry[name] if kind == "trial" else None for name in counts},
        **{name: entry[name] if kind == "tie" else None for name in TIE_COLUMNS},
    }
