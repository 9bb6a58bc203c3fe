"""The oracle: attention in float32, one sequence at a time, written to be read.

It gathers each row's whole history, which makes chunked prefill quadratic in copying; it is what
the fast backends are tested against and never what is timed on a CPU.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from interleave.model.batch import DecodeBatch, PackedBatch
from interleave.model.decoder import Attend
from interleave.model.kv_cache import KVCache


class ReferenceAttention:
    """`plan` once per forward, `run` once per layer."""

    name = "reference"
    on_device = False

    def __init__(self, cache: KVCache) -> None:
        self.cache = cache
        self._batch: PackedBatch | None = None
        self._slots: list[Tensor] = []

    def plan(self, batch: PackedBatch) -> None:
        self._batch = batch
        device = self.cache.k.device
        self._slots = []
        for table, span in zip(batch.tables, batch.spans, strict=True):
            positions = torch.arange(int(span), device=device)
            blocks = torch.from_numpy(table).to(device)[positions // batch.block_tokens]
            self._slots.append(blocks * batch.block_tokens + positions % batch.block_tokens)

    def plan_decode(self, batch: DecodeBatch) -> None:
        self.plan(batch.on_host())

    @property
    def attend(self) -> Attend:
        return self.run

    def run(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Write k and v [n, kv_heads, dim], then attend q [m, heads, dim] -> [m, heads, dim]."""
        batch = self._batch
        assert batch is not None, "plan() comes before run()"
        self.cache.write(layer, batch.slots, k, v)
        out = torch.empty_like(q)
        for row, slots in enumerate(self._slots):
            start, stop = int(batch.query_starts[row]), int(batch.query_starts[row + 1])
            keys = self.cache.k[layer][:, slots]
            values = self.cache.v[layer][:, slots]
            out[start:stop] = attend_one(q[start:stop], keys, values, int(batch.context_lens[row]))
        return out


def attend_one(q: Tensor, keys: Tensor, values: Tensor, context_len: int) -> Tensor:
    """Causal attention of the last positions of one sequence, in float32.

    q: [n, heads, dim], at positions context_len - n .. context_len; keys, values:
    [kv_heads, span, dim] with span >= context_len, the surplus masked. Returns [n, heads, dim].
    """
    n, heads, dim = q.shape
    kv_heads, span, _ = keys.shape
    # The group of query heads that share a KV head becomes one more query axis.
    grouped = q.float().view(n, kv_heads, heads // kv_heads, dim).permute(1, 2, 0, 3)
    scores = grouped @ keys.float().transpose(1, 2)[:, None] / math.sqrt(dim)
    position = torch.arange(span, device=q.device)
    query_position = torch.arange(context_len - n, context_len, device=q.device)
    scores = scores.masked_fill(position > query_position[:, None], -math.inf)
    # 0 x NaN is NaN: values beyond the context are cleared, not only given no weight.
    seen = values.float().masked_fill((position >= context_len)[:, None], 0.0)
    context = scores.softmax(-1) @ seen[:, None]
    return context.permute(2, 0, 1, 3).reshape(n, heads, dim).to(q.dtype)
