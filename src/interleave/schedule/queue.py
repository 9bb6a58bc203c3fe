"""Who waits, and who of them comes in: strict first come first served, the head blocks those behind it.

Rows that were preempted stand before requests that were never admitted, in order of their first
admission. Does not know what runs in a step, nor which blocks anybody gets.
"""

from __future__ import annotations

from collections import deque

from interleave.schedule.allocation import Allocation
from interleave.schedule.config import SchedulerConfig
from interleave.schedule.request import Request
from interleave.schedule.row import Row


class Queue:
    """preempted: rows to be computed again; waiting: requests never admitted."""

    def __init__(self, config: SchedulerConfig, allocation: Allocation) -> None:
        self._allocation = allocation
        self._max_rows = config.max_rows
        # A static batch takes nobody aboard on its way.
        self._only_into_empty = config.policy == "static"
        self._num_admitted = 0
        self.preempted: deque[Row] = deque()
        self.waiting: deque[Request] = deque()

    def __len__(self) -> int:
        return len(self.preempted) + len(self.waiting)

    @property
    def ids(self) -> list[str]:
        """In order of admission."""
        return [row.request_id for row in self.preempted] + [request.request_id for request in self.waiting]

    def resume(self, rows: list[Row]) -> tuple[Row, ...]:
        """Rows that fit again join `rows`, and are returned."""
        resumed = []
        while self.preempted and self._fits(self.preempted[0].known_len, self.preempted[0].request, rows):
            resumed.append(self._enter(self.preempted[0], rows))
            self.preempted.popleft()
        return tuple(resumed)

    def admit(self, rows: list[Row], step: int) -> tuple[Row, ...]:
        """Requests that fit become rows, join `rows`, and are returned. Nobody overtakes a preempted row."""
        if self.preempted or (self._only_into_empty and rows):
            return ()
        admitted = []
        while self.waiting and self._fits(self.waiting[0].prompt_len, self.waiting[0], rows):
            request = self.waiting[0]
            target, computed = request.prefill_target, request.num_computed
            row = Row(request, [], step, target, computed, number=self._num_admitted)
            self._num_admitted += 1
            admitted.append(self._enter(row, rows))
            self.waiting.popleft()
        return tuple(admitted)

    def _fits(self, known_len: int, request: Request, rows: list[Row]) -> bool:
        return len(rows) < self._max_rows and self._allocation.fits(known_len, request.total_len, rows)

    def _enter(self, row: Row, rows: list[Row]) -> Row:
        """Before it leaves the queue, so that an exception in between loses nobody."""
        self._allocation.admit(row)
        rows.append(row)
        return row

    def put_back(self, row: Row) -> None:
        """A row that has just been preempted, the youngest of those that ran: older than all that wait."""
        self.preempted.appendleft(row)

    def remove(self, request_id: str) -> Row | Request | None:
        """Take somebody out; None for an id that does not wait."""
        for row in self.preempted:
            if row.request_id == request_id:
                self.preempted.remove(row)
                return row
        for request in self.waiting:
            if request.request_id == request_id:
                self.waiting.remove(request)
                return request
        return None

    def clear(self) -> None:
        """Nobody waits any more."""
        self.preempted.clear()
        self.waiting.clear()

    def check(self, rows: list[Row]) -> None:
        """Assert the order of first admission, and that nobody who waits has computed anything."""
        numbers = [row.number for row in (*rows, *self.preempted)]
        if numbers != sorted(numbers):
            raise AssertionError(f"rows and preempted rows are out of order: {numbers}")
        if any(row.blocks or row.num_computed for row in self.preempted):
            raise AssertionError("a preempted row holds blocks or computed positions")
