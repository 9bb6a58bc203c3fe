"""Sizes of the checks that a borrowed GPU host runs: real shapes there, tiny ones for a dry run on a CPU."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Choices:
    """What the checks of this folder choose, the way experiments have their `Params`.

    model: a shipped config; layers: kept of it, None for all. tokens: positions that logits are compared at.
    """

    device: str = "cuda"
    model: str = "qwen2.5-1.5b"
    layers: int | None = None
    dtype: str = "fp16"
    tokens: int = 256
    backend: str = "triton"
    dtypes: tuple[str, ...] = ("fp16", "bf16", "fp32")

    def config(self, *names: str) -> dict[str, Any]:
        """The named choices, and those that every point shares, as strict JSON."""
        kept = ("device", "model", "layers", "backend", *names)
        values = {name: value for name, value in asdict(self).items() if name in kept}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


TINY = Choices(
    device="cpu",
    model="tiny-wide",
    layers=1,
    dtype="fp16",  # the plain ops, which compile nothing
    tokens=160,
    backend="reference",
    dtypes=("fp32",),
)
