"""One forward's rows as flat arrays: what the decoder and the attention backends read.

Built once per forward from a plan's pieces and each row's block table; the packed order is the
order of the pieces. It does not know about admission, phases or sampling parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from interleave.schedule.plan import Piece
from interleave.schedule.row import Row

TableOf = Callable[[Row], Sequence[int]]


@dataclass(slots=True)
class PackedBatch:
    """n packed query positions of R rows. Arrays on the host are numpy, the rest are tensors.

    tokens, positions, slots: int64 [n] on the device; slots say where K and V go.
    query_starts: int64 [R + 1]; row r owns queries query_starts[r] .. query_starts[r + 1]: all of its packed
    positions, or in `last_queries` one.
    context_lens: int64 [R]; positions of the row cached once this forward has written its own.
    tables: int64 [R, widest table]; block ids in order, padded with block 0.
    spans: int64 [R]; positions that attention walks, >= context_lens; the surplus is masked.
    """

    tokens: Tensor
    positions: Tensor
    slots: Tensor
    query_starts: np.ndarray
    context_lens: np.ndarray
    tables: np.ndarray
    spans: np.ndarray
    block_tokens: int

    @property
    def num_rows(self) -> int:
        return len(self.context_lens)

    @property
    def query_lens(self) -> np.ndarray:
        return np.diff(self.query_starts)

    def last_queries(self) -> PackedBatch:
        """The same rows with one query position each, their last; slots still hold all n new positions."""
        return replace(self, query_starts=np.arange(self.num_rows + 1))


@dataclass(slots=True)
class DecodeBatch:
    """R rows of one query position each, with every number on the device.

    tokens, positions, slots: int64 [R], as in `PackedBatch`; rows: int64 [R], 0 .. R - 1.
    context_lens: int32 [R]. tables: int32 [R, blocks]; what lies beyond a row's context is not read.
    longest: at least every context, now and whenever this batch is replayed.
    """

    tokens: Tensor
    positions: Tensor
    slots: Tensor
    rows: Tensor
    context_lens: Tensor
    tables: Tensor
    longest: int
    block_tokens: int

    def on_host(self) -> PackedBatch:
        """The same batch with its lengths and tables read back, for a backend that plans on the host."""
        contexts = self.context_lens.cpu().numpy().astype(np.int64)
        width = -(-int(contexts.max()) // self.block_tokens)
        return PackedBatch(
            tokens=self.tokens,
            positions=self.positions,
            slots=self.slots,
            query_starts=np.arange(len(contexts) + 1),
            context_lens=contexts,
            tables=np.ascontiguousarray(self.tables[:, :width].cpu().numpy(), dtype=np.int64),
            spans=contexts,
            block_tokens=self.block_tokens,
        )


def pack(
    pieces: Sequence[Piece],
    table_of: TableOf,
    block_tokens: int,
    device: torch.device | str,
    walk_widest: bool = False,
) -> PackedBatch:
    """Lay `pieces` end to end. `walk_widest` makes attention walk the widest row's span for all."""
    counts = np.array([piece.num_tokens for piece in pieces], dtype=np.int64)
    stops = np.array([piece.stop for piece in pieces], dtype=np.int64)
    tables = _padded_tables([table_of(piece.row) for piece in pieces])
    starts = np.concatenate(([0], np.cumsum(counts)))
    row_of = np.repeat(np.arange(len(pieces)), counts)
    positions = np.arange(starts[-1]) - np.repeat(starts[:-1], counts) + np.repeat(stops - counts, counts)
    slots = tables[row_of, positions // block_tokens] * block_tokens + positions % block_tokens
    tokens: list[int] = []
    for piece in pieces:
        tokens += piece.row.tokens_between(piece.start, piece.stop)
    return PackedBatch(
        tokens=torch.tensor(tokens, dtype=torch.int64, device=device),
        positions=torch.from_numpy(positions).to(device),
        slots=torch.from_numpy(slots).to(device),
        query_starts=starts,
        context_lens=stops,
        tables=tables,
        spans=np.full_like(stops, stops.max()) if walk_widest else stops,
        block_tokens=block_tokens,
    )


def _padded_tables(tables: Sequence[Sequence[int]]) -> np.ndarray:
    width = max(len(table) for table in tables)
    padded = np.zeros((len(tables), width), dtype=np.int64)
    for index, table in enumerate(tables):
        padded[index, : len(table)] = table
    return padded
