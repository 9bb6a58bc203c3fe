"""When a row gets its blocks: all that it can ever need on admission, or as its positions need them.

Both rules admit the head of the queue when everybody's *claim* fits in the pool, its own included:

    reserve      claim = blocks of prompt + generation budget, handed out on admission, so that nothing
                 runs out mid-generation
    progressive  claim = blocks of the known tokens (prompt + emitted) and one more, never more than the
                 whole request needs; blocks are handed out as chunks and decodes come to need them

Under `progressive` rows outgrow their claims, and when the pool runs dry the scheduler preempts the
youngest. Known tokens, so that prefills under way never run each other dry. One block more, so that after
an admission every row computes at least `block_tokens` further positions before anybody is preempted: rows
that took turns to throw each other out would compute the same positions over and over. Never more than the
whole, so that a request whose whole need fits the pool always runs once it runs alone, and so that this rule
admits wherever `reserve` would.

Preemption by recomputation as in vLLM (Kwon et al., 2023), which admits on the next chunk's blocks alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from interleave.schedule.block_pool import BlockPool, need_blocks
from interleave.schedule.plan import Forward
from interleave.schedule.row import Row


class Allocation(Protocol):
    """One of the rules, over one pool."""

    def fits(self, known_len: int, total_len: int, rows: Sequence[Row]) -> bool:
        """Whether a request may join `rows`."""
        ...

    def admit(self, row: Row) -> None:
        """Hand out what a row gets on admission."""
        ...

    def take(self, forwards: Sequence[Forward]) -> bool:
        """Hand out what these forwards need beyond what their rows hold.

        False, with nothing done, if too little is free.
        """
        ...

    def most_repeats(self, forwards: Sequence[Forward], repeats: int) -> int:
        """How many of `repeats` recurrences of a plan whose blocks are taken run before the pool is dry; at least 1."""
        ...

    def catch_up(self, rows: Sequence[Row]) -> None:
        """Hand out what rows that go on have come to need in recurrences that were booked at once."""
        ...


class Reserve:
    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool

    def fits(self, known_len: int, total_len: int, rows: Sequence[Row]) -> bool:
        """Everybody's claim is what it holds, so what is free is what nobody claims."""
        return need_blocks(total_len, self._pool.block_tokens) <= self._pool.num_free

    def admit(self, row: Row) -> None:
        need = need_blocks(row.request.total_len, self._pool.block_tokens)
        row.blocks = self._pool.allocate(need, row.request_id)

    def take(self, forwards: Sequence[Forward]) -> bool:
        return True

    def most_repeats(self, forwards: Sequence[Forward], repeats: int) -> int:
        return repeats

    def catch_up(self, rows: Sequence[Row]) -> None:
        """Nothing: a row holds all that it can need."""


class Progressive:
    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool

    def fits(self, known_len: int, total_len: int, rows: Sequence[Row]) -> bool:
        claims = sum(self._claim(row.known_len, row.request.total_len) for row in rows)
        return claims + self._claim(known_len, total_len) <= self._pool.num_blocks

    def _claim(self, known_len: int, total_len: int) -> int:
        size = self._pool.block_tokens
        return min(need_blocks(known_len, size) + 1, need_blocks(total_len, size))

    def admit(self, row: Row) -> None:
        """Nothing but for positions that were delivered; the row's first chunk takes what it needs."""
        self._extend(row, row.num_computed)

    def take(self, forwards: Sequence[Forward]) -> bool:
        if self._growth(forwards) > self._pool.num_free:
            return False
        for forward in forwards:
            for piece in forward:
                self._extend(piece.row, piece.stop)
        return True

    def _growth(self, forwards: Sequence[Forward], repeats: int = 1) -> int:
        """Blocks that all pieces together lack after so many recurrences."""
        size = self._pool.block_tokens
        lacking = 0
        for forward in forwards:
            for row, start, num_tokens in forward:
                lacking += max(0, need_blocks(start + repeats * num_tokens, size) - len(row.blocks))
        return lacking

    def _extend(self, row: Row, num_positions: int) -> None:
        lacking = need_blocks(num_positions, self._pool.block_tokens) - len(row.blocks)
        if lacking > 0:
            row.blocks += self._pool.allocate(lacking, row.request_id)

    def most_repeats(self, forwards: Sequence[Forward], repeats: int) -> int:
        free = self._pool.num_free
        if repeats == 1 or self._growth(forwards, repeats) <= free:
            return repeats
        low, high = 1, repeats  # fits, does not fit
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._growth(forwards, middle) <= free else (low, middle)
        return low

    def catch_up(self, rows: Sequence[Row]) -> None:
        for row in rows:
            if row.finish_reason is None:
                self._extend(row, row.num_computed)


ALLOCATIONS: dict[str, type[Reserve] | type[Progressive]] = {"reserve": Reserve, "progressive": Progressive}
