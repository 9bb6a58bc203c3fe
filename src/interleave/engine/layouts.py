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

    def release(self, rows: Sequence[Row]) -> None:
        """Nothing to do: the scheduler has the blocks back."""

    def compact(self, cache: KVCache) -> tuple[int, list[int]]:
        """Blocks need no neighbours, so nothing ever moves: (0 positions, no block)."""
        return 0, []


class SlotLayout:
    """One full-width slot per row, kept compact: rows 0..R-1 use slots 0..R-1.

    A slot is a cache block as wide as the longest request. Attention walks the widest row's span
    for every row. When rows have ended, the next step first moves the last ones into the gaps.
    """

    walk_widest = True

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._ended: set[int] = set()

    def admit(self, rows: Sequence[Row]) -> None:
        self._rows.extend(rows)

    def table(self, row: Row) -> Sequence[int]:
        return (self._rows.index(row),)

    def release(self, rows: Sequence[Row]) -> None:
        """These rows have ended; one that never got here changes nothing."""
        self._ended.update(map(id, rows))

    def compact(self, cache: KVCache) -> tuple[int, list[int]]:
        """Close the gaps of ended rows. Returns (positions moved, slots that fell free)."""
        occupied = len(self._rows)
        survivors = sum(id(row) not in self._ended for row in self._rows)
        moved_tokens = 0
        for slot in range(survivors):
            if id(self._rows[slot]) in self._ended:
                source = max(i for i, row in enumerate(self._rows) if id(row) not in self._ended)
                moved = self._rows[source]
                cache.move(source, slot, moved.num_computed)
                moved_tokens += moved.num_computed
                self._rows[slot], self._rows[source] = moved, self._rows[slot]
        del self._rows[survivors:]
        self._ended.clear()
        return moved_tokens, list(range(survivors, occupied))
