"""The bottom rung: nothing is kept, so every new token recomputes all that came before it."""

from __future__ import annotations

import torch

from interleave.engine.batched import Executed
from interleave.engine.executor import Laps, Sampler, forward_kind
from interleave.engine.torch_attention import causal
from interleave.model.decoder import Decoder
from interleave.schedule.plan import StepPlan
from interleave.schedule.row import Row


class NoCacheExecutor:
    """One request at a time; a piece that ends at position p computes positions 0..p."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder
        self._sample = Sampler(decoder)

    def execute(self, plan: StepPlan) -> Executed:
        laps = Laps()
        tokens: dict[str, int] = {}
        for forward in plan.forwards:
            (piece,) = forward
            ids = torch.tensor(piece.row.tokens_between(0, piece.stop), device=self.decoder.device)
            positions = torch.arange(piece.stop, device=self.decoder.device)
            last = torch.tensor([len(ids) - 1], device=self.decoder.device)
            hidden = self.decoder.forward(ids, positions, causal, last)
            laps.lap(forward_kind(forward))
            tokens |= self._sample(forward, hidden)
            laps.lap("sample")
        return Executed(tokens, laps.parts_s)

    def release(self, rows: list[Row], blocks: list[list[int]]) -> None:
        self._sample.forget(rows)
