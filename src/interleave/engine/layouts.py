"""Where a row's keys and values lie in the cache: in its own blocks, or in one compact slot.

A layout does not decide who is admitted; it follows what the scheduler granted.
"""

from __future__ import annotations

from collections.abc import Sequence

from interleave.model.kv_cache import KVCache
from interleave.schedule.row import Row


class BlockLayout:
    """Paged: each row reads and writes the blocks that the scheduler gave it, at its true length."""

    walk_widest = False

    def admit(self, rows: Sequence[Row]) -> None:
        """Nothing to do: the block table is the row's own list."""

    def table(self, row: Row) -> Sequence[int]:
        return row.blocks

    def release(self, rows: list[Row], cache: KVCache) -> list[int]:
        """Blocks that hold nothing any more, known to the scheduler already."""
        return []


class SlotLayout:
    """One full-width slot per row, kept compact: rows 0..R-1 use slots 0..R-1.

    A slot is a cache block as wide as the longest request. Attention walks the widest row's span
    for every row, and when a row ends the last one's K and V move into the gap.
    """

    walk_widest = True

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self.moved_tokens = 0

    def admit(self, rows: Sequence[Row]) -> None:
        self._rows.extend(rows)

    def table(self, row: Row) -> Sequence[int]:
        return (self._rows.index(row),)

    def release(self, rows: list[Row], cache: KVCache) -> list[int]:
        """Close the gaps that `rows` leave and return the slots that fell free."""
        ended = set(map(id, rows))
        survivors = [row for row in self._rows if id(row) not in ended]
        occupied = len(self._rows)
        for slot in range(len(survivors)):
            if id(self._rows[slot]) in ended:
                source = max(i for i, row in enumerate(self._rows) if id(row) not in ended)
                moved = self._rows[source]
                cache.move(source, slot, moved.num_computed)
                self.moved_tokens += moved.num_computed
                self._rows[slot], self._rows[source] = moved, self._rows[slot]
        del self._rows[len(survivors) :]
        return list(range(len(survivors), occupied))
