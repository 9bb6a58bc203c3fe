"""Rows that decode together, with their steps booked for all of them at once.

A simulation asks a scheduler for millions of steps, in most of which each decoding row does the same:
one more token. This keeps such rows in order of admission with one common count of steps, a heap of
the counts at which their budgets end, and the sum of their lengths. What a row has done is written to
it when somebody looks. Only for a scheduler that looks ahead: tokens are placeholders (0), no stop ids.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import overload

from interleave.schedule.plan import Piece
from interleave.schedule.row import Row


class Lockstep(Sequence[Row]):
    """The decoding rows of a scheduler, as policies see them: a sequence, up to date when iterated."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self._rows: list[Row] = []
        self._numbers: list[int] = []
        self.steps = 0  # taken by the whole group since it was made
        self._written: dict[int, int] = {}  # row number -> steps already written to it
        # A heap of (steps at which the budget is spent, row number); of rows that have left, too.
        self._ends: list[tuple[int, int]] = []
        self.computed = 0  # positions computed, over all rows
        self._last_step = -1

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        self.write_all()
        return iter(self._rows)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        self.write_all()
        return self._rows[index]

    @property
    def widest(self) -> int:
        return max((row.num_computed + 1 for row in self), default=0)

    def until_end(self) -> int:
        """Steps until the first budget is spent."""
        ends = self._ends
        while ends[0][1] not in self._written:
            heapq.heappop(ends)
        return ends[0][0] - self.steps

    def holds(self, row: Row) -> bool:
        return row.number in self._written

    def add(self, row: Row) -> None:
        """A row that decodes from the next step on."""
        at = bisect_left(self._numbers, row.number)
        self._written[row.number] = self.steps  # first, so that every row here can be written at any time
        self._rows.insert(at, row)
        self._numbers.insert(at, row.number)
        self.ids.insert(at, row.request_id)
        self.computed += row.num_computed
        left = row.request.max_new_tokens - len(row.emitted)
        heapq.heappush(self._ends, (self.steps + left, row.number))

    def discard(self, row: Row) -> None:
        """Write what the row has done and forget it; nothing for a row that is not here."""
        if row.number not in self._written:
            return
        self._write(row)
        at = bisect_left(self._numbers, row.number)
        del self._rows[at], self._numbers[at], self.ids[at], self._written[row.number]
        self.computed -= row.num_computed

    def advance(self, steps: int, last_step: int) -> list[Row]:
        """All rows take `steps` steps. Returns, in order, those whose budget is now spent, up to date."""
        self.steps += steps
        self.computed += steps * len(self._rows)
        self._last_step = last_step
        ends = self._ends
        if not ends or ends[0][0] > self.steps:
            return []
        spent = []
        while ends and ends[0][0] <= self.steps:
            number = heapq.heappop(ends)[1]
            if number in self._written:
                spent.append(number)
        rows = [self._rows[bisect_left(self._numbers, number)] for number in sorted(spent)]
        for row in rows:
            self._write(row)
        return rows

    def reload(self) -> None:
        """Take the rows as they are: some of them were served one by one."""
        rows = self._rows
        self.computed = sum(row.num_computed for row in rows)
        self._written = {row.number: self.steps for row in rows}
        self._ends = [
            (self.steps + row.request.max_new_tokens - len(row.emitted), row.number) for row in rows
        ]
        heapq.heapify(self._ends)

    def write_all(self) -> None:
        """Bring every row up to date."""
        for row in self._rows:
            self._write(row)

    def _write(self, row: Row) -> None:
        steps = self.steps - self._written[row.number]
        if steps:
            row.num_computed += steps
            row.emit(0, steps)
            row.last_served_step = self._last_step
            self._written[row.number] = self.steps


class LockstepTokens(Sequence[tuple[str, int]]):
    """The tokens of a step in which a group decoded: those of other rows, then one for each of `ids`."""

    __slots__ = ("before", "ids", "size")

    def __init__(self, before: list[tuple[str, int]], ids: list[str]) -> None:
        self.before = before
        self.ids = ids
        self.size = len(before) + len(ids)

    def __len__(self) -> int:
        return self.size

    @overload
    def __getitem__(self, index: int) -> tuple[str, int]: ...
    @overload
    def __getitem__(self, index: slice) -> list[tuple[str, int]]: ...
    def __getitem__(self, index: int | slice) -> tuple[str, int] | list[tuple[str, int]]:
        return [*self.before, *((request_id, 0) for request_id in self.ids)][index]


class LockstepForward(Sequence[Piece]):
    """A decode of every row of a group, made into pieces only when somebody looks at them.

    size, attended: its rows, and the positions that they see (each its computed ones and its newest), when it was planned.
    """

    __slots__ = ("_pieces", "_steps", "attended", "rows", "size")

    def __init__(self, rows: Lockstep) -> None:
        self.rows = rows
        self.size = len(rows.ids)
        self.attended = rows.computed + self.size
        self._steps = rows.steps
        self._pieces: tuple[Piece, ...] | None = None

    def __len__(self) -> int:
        return self.size

    @overload
    def __getitem__(self, index: int) -> Piece: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Piece, ...]: ...
    def __getitem__(self, index: int | slice) -> Piece | tuple[Piece, ...]:
        return self.pieces[index]

    def __iter__(self) -> Iterator[Piece]:
        return iter(self.pieces)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """RuntimeError for a first look after the step is committed, when the rows have moved on."""
        if self._pieces is None:
            if self.rows.steps != self._steps:
                raise RuntimeError("these pieces were not looked at before their step was committed")
            self._pieces = tuple([Piece(row, row.num_computed, 1) for row in self.rows])
        return self._pieces
