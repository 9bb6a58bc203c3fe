"""Computes a step plan with a decoder, a KV cache and an attention backend.

Serves every engine whose rows are batched: packed forwards over blocks (`chunked`, `mixed`), and
padded groups followed by decode over blocks (`paged`) or slots (`continuous`, `static`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from interleave.engine.batched import Executed
from interleave.engine.layouts import BlockLayout, SlotLayout
from interleave.engine.padded import copy_into, dense_prefill
from interleave.model.batch import PackedBatch, pack
from interleave.model.decoder import Decoder
from interleave.model.kv_cache import KVCache
from interleave.model.sampling import new_generator, sample
from interleave.schedule.plan import Forward, Piece, StepPlan
from interleave.schedule.row import Row


class Attention(Protocol):
    """An attention backend: `plan` once per forward, `run` once per layer."""

    name: str

    def plan(self, batch: PackedBatch) -> None: ...

    def run(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor: ...


class Laps:
    """The host's wall time by kind.

    On a CPU that is where the work is done. On a GPU the host only launches it, and what it waits
    for lands in `sample`, which reads the tokens: nothing is made to wait for the sake of a lap.
    """

    def __init__(self) -> None:
        self.parts_s: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, kind: str) -> None:
        now = time.perf_counter()
        self.parts_s[kind] = self.parts_s.get(kind, 0.0) + now - self._last
        self._last = now


class Sampler:
    """Samples the rows that yield a token, with a generator for each request that wants one."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._generators: dict[str, torch.Generator | None] = {}

    def __call__(self, pieces: Sequence[Piece], hidden: Tensor) -> dict[str, int]:
        """hidden: [len(pieces), hidden] at each piece's last position."""
        wanted = [index for index, piece in enumerate(pieces) if piece.yields_token]
        if not wanted:
            return {}
        if len(wanted) < len(pieces):
            hidden = hidden[torch.tensor(wanted, device=hidden.device)]
        rows = [pieces[index].row for index in wanted]
        params = [row.request.sampling for row in rows]
        generators = [self._generator(row) for row in rows]
        tokens = sample(self._decoder.logits(hidden), params, generators).tolist()
        return {row.request_id: token for row, token in zip(rows, tokens, strict=True)}

    def _generator(self, row: Row) -> torch.Generator | None:
        if row.request_id not in self._generators:
            self._generators[row.request_id] = new_generator(row.request.sampling)
        return self._generators[row.request_id]

    def forget(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._generators.pop(row.request_id, None)


class BatchExecutor:
    """One decoder, one cache; `layout` says where a row's K and V lie.

    poison_freed fills whatever a released row held with NaN (tests and the parity gate).
    """

    def __init__(
        self,
        decoder: Decoder,
        cache: KVCache,
        layout: BlockLayout | SlotLayout,
        attention: Attention,
        poison_freed: bool = False,
    ) -> None:
        self.decoder = decoder
        self.cache = cache
        self.layout = layout
        self.attention = attention
        self.poison_freed = poison_freed
        self._sample = Sampler(decoder)

    def execute(self, plan: StepPlan) -> Executed:
        laps = Laps()
        copied_tokens, gone_slots = self.layout.compact(self.cache)
        if self.poison_freed:
            self.cache.poison(gone_slots)
        laps.lap("copy")
        self.layout.admit(plan.admitted)
        last_hidden: list[Tensor] = []
        for forward in plan.forwards:
            if plan.padded:
                dense = dense_prefill(self.decoder, forward)
                last_hidden.append(dense.last_hidden)
                laps.lap("prefill")
                tables = [list(self.layout.table(piece.row)) for piece in forward]
                copied_tokens += copy_into(self.cache, forward, dense, tables)
                del dense
                laps.lap("copy")
            else:
                last_hidden.append(self._packed(forward))
                laps.lap(forward_kind(forward))
        # Once a step: a second forward does not wait for the first one's tokens, and the head's
        # weights are read once.
        pieces = [piece for forward in plan.forwards for piece in forward]
        tokens = self._sample(pieces, torch.cat(last_hidden)) if pieces else {}
        laps.lap("sample")
        return Executed(tokens, laps.parts_s, copied_tokens)

    def _packed(self, forward: Forward) -> Tensor:
        """Hidden state [pieces, hidden] at each piece's last position."""
        batch = pack(
            forward, self.layout.table, self.cache.block_tokens, self.decoder.device, self.layout.walk_widest
        )
        self.attention.plan(batch)
        hidden = self.decoder.forward(batch.tokens, batch.positions, self.attention.run)
        if len(hidden) == len(forward):
            return hidden
        return hidden[torch.from_numpy(batch.query_starts[1:] - 1).to(hidden.device)]

    def release(self, rows: list[Row], blocks: list[list[int]]) -> None:
        self._sample.forget(rows)
        self.layout.release(rows)
        if self.poison_freed and isinstance(self.layout, BlockLayout):
            self.cache.poison([block for own in blocks for block in own])


def forward_kind(forward: Forward) -> str:
    """What a forward's time counts as: prefill, decode, or mixed when it holds both."""
    decodes = sum(piece.is_decode for piece in forward)
    if decodes == len(forward):
        return "decode"
    return "mixed" if decodes else "prefill"
