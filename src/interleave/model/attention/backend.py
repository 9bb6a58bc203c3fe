"""What every attention backend offers: a plan once per forward and kind of queries, then one call a layer."""

from __future__ import annotations

from dataclasses import replace
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
        """Write k and v [n, kv_heads, dim], then attend q [m, heads, dim] -> [m, heads, dim].

        n are the batch's slots; m the positions in its `query_starts`, all n or each row's last.
        """
        ...


def attend_last_queries(attention: Attention, batch: PackedBatch) -> Attend | InPlace:
    """What the decoder calls for a batch of whose rows only the last positions are wanted.

    As soon as fewer queries come than the batch has positions, which is in the last layer, it is planned
    for those.
    """
    attend, num_positions = attention.attend, len(batch.tokens)

    def follow(q: Tensor) -> None:
        if len(q) < num_positions:
            attention.plan(batch.last_queries())

    if isinstance(attend, InPlace):
        in_place = attend

        def read(layer: int, q: Tensor) -> Tensor:
            follow(q)
            return in_place.attend(layer, q)

        return replace(in_place, attend=read)

    def run(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        follow(q)
        return attention.run(layer, q, k, v)

    return run
