"""Decode forwards that are recorded once per number of rows and replayed, over buffers that stay.

One int32 line per row holds all that changes: the newest token, its position, whether the row is real,
and its block table. A replay computes the forward, chooses each row's greedy token and moves the line on
by one position, all on the device, so that a step in which no row comes or goes asks nothing of the host
but to read the tokens. When rows do change, the lines are copied over once.

Rows are padded to a bucket: powers of two, and `max_rows` itself. A padded row decodes position 0 of a
block that no request is ever given, and its line does not move.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from interleave.engine.recording import Recording, recorder
from interleave.model.attention.backend import Attention
from interleave.model.batch import DecodeBatch
from interleave.model.decoder import Decoder
from interleave.model.kv_cache import KVCache
from interleave.model.sampling import check_finite
from interleave.schedule.block_pool import need_blocks
from interleave.schedule.plan import Forward
from interleave.schedule.row import Row

TOKEN, POSITION, REAL, HEADER = 0, 1, 2, 4
"""Columns of a line; the block table starts at HEADER, on a multiple of 16 bytes."""

FIRST_MAXIMUM = 8192
"""Contexts that are recorded for at first, where requests can be longer: what a recording takes grows with it."""

Say = Callable[[str], None]


def buckets(max_rows: int) -> list[int]:
    """Row counts that are recorded: 1, 2, 4, ... and max_rows."""
    return [*(1 << n for n in range((max_rows - 1).bit_length())), max_rows]


def line_bytes(longest_request: int, block_tokens: int, hidden_bytes: int) -> int:
    """Bytes of the buffers that a row takes, on the device."""
    return 4 * (HEADER + need_blocks(longest_request, block_tokens)) + hidden_bytes + 16


@dataclass(slots=True)
class _Line:
    """What the host knows to stand in a line: whose it is, the next position, blocks in its table."""

    row: Row
    position: int
    num_blocks: int


class RecordedDecode:
    """Up to max_rows decoding rows. The cache's last block is for padding: the scheduler has none of it.

    longest_request: no context is ever longer; first_maximum: contexts that are recorded for at first.
    hidden: [max_rows, hidden], of the last replay's rows in order. recorded, re_recorded: recordings
    made, and those of them that replaced one whose maximum was outgrown. updates: times that lines were
    copied over.
    """

    def __init__(
        self,
        decoder: Decoder,
        cache: KVCache,
        attention: Attention,
        *,
        max_rows: int,
        longest_request: int,
        first_maximum: int = FIRST_MAXIMUM,
        say: Say = lambda line: print(line, file=sys.stderr, flush=True),
    ) -> None:
        self.decoder, self.cache, self.attention = decoder, cache, attention
        self.max_rows = max_rows
        self.maximum = min(longest_request, first_maximum)
        self.recorded = self.re_recorded = self.updates = 0
        self._longest_request = longest_request
        self._say = say
        device = decoder.device
        on_gpu = device.type == "cuda"
        width = HEADER + min(need_blocks(longest_request, cache.block_tokens), cache.num_blocks)
        self._lines = torch.zeros((max_rows, width), dtype=torch.int32, device=device)
        self._host_lines = torch.zeros((max_rows, width), dtype=torch.int32, pin_memory=on_gpu)
        self._numbers = torch.arange(max_rows, device=device)
        self._tokens = torch.zeros(max_rows, dtype=torch.int64, device=device)
        self._host_tokens = torch.zeros(max_rows, dtype=torch.int64, pin_memory=on_gpu)
        self.hidden = torch.zeros((max_rows, decoder.config.hidden_size), dtype=decoder.dtype, device=device)
        self._copied = torch.cuda.Event() if on_gpu else None
        self._graphs = on_gpu and attention.on_device
        self._record = recorder(self._graphs)
        self._recordings: dict[int, Recording] = {}
        self._outgrown: set[int] = set()
        self._held: list[_Line] = []
        self._bucket = self._num_rows = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers on the device, without what the recordings themselves keep."""
        return sum(x.nbytes for x in (self._lines, self._numbers, self._tokens, self.hidden))

    def record_all(self) -> None:
        """Record every bucket now rather than when it is first needed."""
        for bucket in buckets(self.max_rows):
            if bucket not in self._recordings:
                self._record_bucket(bucket)

    def launch(self, forward: Forward) -> None:
        """Replay the decode of these rows. On a GPU this returns before it is computed."""
        stop = max(piece.stop for piece in forward)
        if stop > self.maximum:
            self._outgrow(stop)
        bucket = self._bucket_of(len(forward))
        if bucket not in self._recordings:
            self._record_bucket(bucket)
        if not self._holds(bucket, forward):
            self._write(bucket, forward)
        self._recordings[bucket].replay()
        for line in self._held:
            line.position += 1
        self._num_rows = len(forward)
        self._host_tokens.copy_(self._tokens, non_blocking=True)
        if self._copied is not None:
            self._copied.record()

    def tokens(self) -> list[int]:
        """The greedy tokens of the last launch, in its order; waits for them.

        Raises NonFiniteLogits, naming the rows.
        """
        if self._copied is not None:
            self._copied.synchronize()
        tokens: list[int] = self._host_tokens[: self._num_rows].tolist()
        check_finite(tokens)
        return tokens

    def compute_padding(self, num_rows: int) -> None:
        """What a recording for that many rows holds, launched kernel by kernel, over padding only."""
        bucket = self._bucket_of(num_rows)
        self._write(bucket, ())
        self._compute(bucket)
        self.forget()

    def forget(self) -> None:
        """What the lines hold is no longer what comes next: rows left, or took another token."""
        self._held.clear()
        self._bucket = 0

    def _bucket_of(self, num_rows: int) -> int:
        return next(size for size in buckets(self.max_rows) if size >= num_rows)

    def _outgrow(self, stop: int) -> None:
        before = self.maximum
        self.maximum = min(self._longest_request, max(2 * before, stop))
        self._outgrown |= self._recordings.keys()
        self._recordings.clear()
        self._record = recorder(self._graphs)
        self._say(
            f"recorded decode: a context of {stop} outgrew the recorded maximum of {before}; recording "
            f"again, for up to {self.maximum}"
        )

    def _record_bucket(self, bucket: int) -> None:
        # Recording computes for real: over padding only, so that it moves nobody on.
        self._write(bucket, ())
        self._recordings[bucket] = self._record(partial(self._compute, bucket))
        self.forget()
        self.recorded += 1
        if bucket in self._outgrown:
            self._outgrown.remove(bucket)
            self.re_recorded += 1

    def _holds(self, bucket: int, forward: Forward) -> bool:
        """Whether the lines already say what this forward asks for."""
        return (
            bucket == self._bucket
            and len(forward) == len(self._held)
            and all(
                line.row is piece.row
                and line.position == piece.start
                and line.num_blocks == len(piece.row.blocks)
                for line, piece in zip(self._held, forward, strict=True)
            )
        )

    def _write(self, bucket: int, forward: Forward) -> None:
        lines = self._host_lines.numpy()
        held: list[_Line] = []
        for index, (row, position, _) in enumerate(forward):
            before = self._held[index] if index < len(self._held) else None
            num_blocks = len(row.blocks)
            if before is None or before.row is not row or before.num_blocks != num_blocks:
                lines[index, HEADER : HEADER + num_blocks] = row.blocks
            lines[index, :HEADER] = (row.token_at(position), position, 1, 0)
            held.append(_Line(row, position, num_blocks))
        lines[len(forward) : bucket, :HEADER] = 0
        lines[len(forward) : bucket, HEADER] = self.cache.num_blocks - 1
        self._lines[:bucket].copy_(self._host_lines[:bucket], non_blocking=True)
        self._held, self._bucket = held, bucket
        self.updates += 1

    @torch.inference_mode()
    def _compute(self, bucket: int) -> None:
        """The forward of `bucket` lines, their tokens, and the lines moved on. Only this is recorded."""
        lines, size = self._lines[:bucket], self.cache.block_tokens
        positions = lines[:, POSITION].long()
        tables = lines[:, HEADER:]
        blocks = tables.gather(1, (positions // size)[:, None])[:, 0].long()
        batch = DecodeBatch(
            tokens=lines[:, TOKEN].long(),
            positions=positions,
            slots=blocks * size + positions % size,
            rows=self._numbers[:bucket],
            context_lens=lines[:, POSITION] + 1,
            tables=tables,
            longest=self.maximum,
            block_tokens=size,
        )
        self.attention.plan_decode(batch)
        hidden = self.decoder.forward(batch.tokens, positions, self.attention.attend)
        tokens = self.decoder.ops.greedy(self.decoder.logits(hidden))
        self.hidden[:bucket].copy_(hidden)
        self._tokens[:bucket].copy_(tokens)
        lines[:, TOKEN].copy_(tokens.clamp(min=0))
        lines[:, POSITION].add_(lines[:, REAL])
