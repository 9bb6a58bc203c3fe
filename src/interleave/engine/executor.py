"""Computes a step plan with a decoder, a KV cache and an attention backend.

Serves every engine whose rows are batched: packed forwards over blocks (`chunked`, `mixed`), padded
groups followed by decode over blocks (`paged`) or slots (`continuous`, `static`), and decodes that are
replayed (`recorded`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
from torch import Tensor

from interleave.engine.batched import Executed
from interleave.engine.layouts import BlockLayout, SlotLayout
from interleave.engine.padded import copy_into, dense_prefill
from interleave.engine.recorded import RecordedDecode
from interleave.model.attention.backend import Attention, attend_last_queries
from interleave.model.batch import pack
from interleave.model.decoder import Decoder
from interleave.model.kv_cache import KVCache
from interleave.model.sampling import new_generator, sample
from interleave.schedule.plan import Forward, Piece, StepPlan
from interleave.schedule.row import Row


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
        logits = self._decoder.logits(hidden)
        tokens = sample(logits, params, generators, self._decoder.ops.greedy).tolist()
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

    recorded: replays forwards that only decode; None computes them like any other.
    poison_freed fills whatever a released or preempted row held with NaN (tests and the parity gate).
    """

    def __init__(
        self,
        decoder: Decoder,
        cache: KVCache,
        layout: BlockLayout | SlotLayout,
        attention: Attention,
        poison_freed: bool = False,
        recorded: RecordedDecode | None = None,
    ) -> None:
        self.decoder = decoder
        self.cache = cache
        self.layout = layout
        self.attention = attention
        self.poison_freed = poison_freed
        self.recorded = recorded
        self._sample = Sampler(decoder)

    def execute(self, plan: StepPlan) -> Executed:
        laps = Laps()
        copied_tokens, gone_slots = self.layout.compact(self.cache)
        if self.poison_freed:
            # What a preempted row held may be another's by now, who has yet to write there.
            self.cache.poison([*gone_slots, *(block for gone in plan.preempted for block in gone.blocks)])
        laps.lap("copy")
        self.layout.admit(plan.admitted)
        last_hidden: list[Tensor] = []
        pieces: list[Piece] = []
        replayed: Forward = ()
        for forward in plan.forwards:
            kind = forward_kind(forward)
            if self.recorded is not None and kind == "decode":
                self.recorded.launch(forward)
                replayed = forward
                laps.lap(kind)
                continue
            pieces += forward
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
                laps.lap(kind)
        # Once a step: a second forward does not wait for the first one's tokens, and the head's
        # weights are read once.
        tokens = self._sample(pieces, torch.cat(last_hidden)) if pieces else {}
        if self.recorded is not None:
            tokens |= self._replayed_tokens(self.recorded, replayed)
        laps.lap("sample")
        return Executed(tokens, laps.parts_s, copied_tokens)

    def _replayed_tokens(self, recorded: RecordedDecode, forward: Forward) -> dict[str, int]:
        """The device chose greedily. With a row that wants another choice, all are sampled here instead,
        from the replay's hidden states, and the tokens that the device goes on from are written anew."""
        if not forward:
            recorded.forget()
            return {}
        if all(piece.row.request.sampling.greedy for piece in forward):
            ids = [piece.row.request_id for piece in forward]
            return dict(zip(ids, recorded.tokens(), strict=True))
        recorded.forget()
        return self._sample(forward, recorded.hidden[: len(forward)])

    def _packed(self, forward: Forward) -> Tensor:
        """Hidden state [pieces, hidden] at each piece's last position."""
        batch = pack(
            forward, self.layout.table, self.cache.block_tokens, self.decoder.device, self.layout.walk_widest
        )
        self.attention.plan(batch)
        if len(batch.tokens) == len(forward):
            return self.decoder.forward(batch.tokens, batch.positions, self.attention.attend)
        last = torch.from_numpy(batch.query_starts[1:] - 1).to(self.decoder.device)
        attend = attend_last_queries(self.attention, batch)
        return self.decoder.forward(batch.tokens, batch.positions, attend, last)

    def release(self, rows: list[Row], blocks: list[list[int]]) -> None:
        self._sample.forget(rows)
        self.layout.release(rows)
        if self.recorded is not None:
            self.recorded.forget()
        if self.poison_freed and isinstance(self.layout, BlockLayout):
            self.cache.poison([block for own in blocks for block in own])


def forward_kind(forward: Forward) -> str:
    """What a forward's time counts as: prefill, decode, or mixed when it holds both."""
    decodes = sum(piece.is_decode for piece in forward)
    if decodes == len(forward):
        return "decode"
    return "mixed" if decodes else "prefill"
