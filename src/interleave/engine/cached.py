"""The second rung, and the anchor of the parity gates: one request, one contiguous cache.

It shares no cache, batching or decode attention with the other engines; its prefill is torch's own
attention, which `nocache` and the padded groups call too. The parity gate therefore holds it to the
`reference` attention as well.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from interleave.engine.batched import Executed
from interleave.engine.executor import Laps, Sampler, forward_kind
from interleave.engine.torch_attention import causal
from interleave.model.decoder import Attend, Decoder
from interleave.schedule.plan import StepPlan
from interleave.schedule.row import Row


class CachedExecutor:
    """Prefills a prompt in one forward, then decodes one position at a time."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder
        self._sample = Sampler(decoder)
        self._k: list[Tensor] = []
        self._v: list[Tensor] = []

    def execute(self, plan: StepPlan) -> Executed:
        laps = Laps()
        tokens: dict[str, int] = {}
        for row in plan.admitted:
            self._allocate(row)
        for forward in plan.forwards:
            (piece,) = forward
            ids = torch.tensor(piece.row.tokens_between(piece.start, piece.stop), device=self.decoder.device)
            positions = torch.arange(piece.start, piece.stop, device=self.decoder.device)
            last = torch.tensor([len(ids) - 1], device=self.decoder.device)
            hidden = self.decoder.forward(ids, positions, self._attend_at(piece.start), last)
            laps.lap(forward_kind(forward))
            tokens |= self._sample(forward, hidden)
            laps.lap("sample")
        return Executed(tokens, laps.parts_s)

    def _allocate(self, row: Row) -> None:
        config = self.decoder.config
        shape = (config.num_key_value_heads, row.request.total_len, config.head_dim)
        layers = range(config.num_hidden_layers)
        self._k = [torch.empty(shape, dtype=self.decoder.dtype, device=self.decoder.device) for _ in layers]
        self._v = [torch.empty_like(k) for k in self._k]

    def _attend_at(self, start: int) -> Attend:
        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            stop = start + len(k)
            self._k[layer][:, start:stop] = k.transpose(0, 1)
            self._v[layer][:, start:stop] = v.transpose(0, 1)
            if len(q) == 1:
                return attend_newest(q, self._k[layer][:, :stop], self._v[layer][:, :stop])
            return causal(layer, q, k, v)

        return attend

    def release(self, rows: list[Row], blocks: list[list[int]]) -> None:
        self._sample.forget(rows)
        if rows:
            self._k, self._v = [], []


def attend_newest(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """One query position [1, heads, dim] over keys and values [kv_heads, len, dim], all visible."""
    _, heads, dim = q.shape
    grouped = q.view(keys.shape[0], -1, dim)
    scores = torch.bmm(grouped, keys.transpose(1, 2)) / math.sqrt(dim)
    return torch.bmm(scores.softmax(-1), values).view(1, heads, dim)
