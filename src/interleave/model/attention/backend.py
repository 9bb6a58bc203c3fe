"""What every attention backend offers: a plan once per forward, then one call a layer."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from interleave.model.batch import DecodeBatch, PackedBatch
from interleave.model.decoder import Attend, InPlace


class Attention(Protocol):
    """on_device: `plan_decode` reads nothing on the host, so that what follows it can be recorded."""

    name: str
    on_device: bool

    def plan(self, batch: PackedBatch) -> None: ...

    def plan_decode(self, batch: DecodeBatch) -> None:
        """A plan for rows whose numbers are on the device and may change before it is used again."""
        ...

    @property
    def attend(self) -> Attend | InPlace:
        """What the decoder calls, layer by layer, for the batch that was planned last."""
        ...

    def run(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Write k and v [n, kv_heads, dim], then attend q [n, heads, dim] -> [n, heads, dim]."""
        ...
