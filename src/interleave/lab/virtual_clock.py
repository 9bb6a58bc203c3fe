"""A clock that moves only when told, in whole femtoseconds. Knows no engine."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from interleave.lab.latency_model import TICKS_PER_S
from interleave.schedule.request import Request


class VirtualClock:
    """Call it for the time in seconds; `sleep` and `advance` move it."""

    def __init__(self) -> None:
        self.ticks = 0
        self._now_s = 0.0  # read several times a step

    def __call__(self) -> float:
        return self._now_s

    def advance(self, ticks: int) -> None:
        self.ticks += ticks
        self._now_s = self.ticks / TICKS_PER_S

    def sleep(self, seconds: float) -> None:
        self.advance(round(seconds * TICKS_PER_S))


class Arrivals(Iterator[Request]):
    """Requests in order of due time, of which the serving loop draws one ahead.

    next_due_s: when the request drawn last is due, infinite once there is none: until then nobody
    arrives. Raises ValueError for a request that is due before the one in front of it.
    """

    def __init__(self, requests: Iterable[Request]) -> None:
        self._requests = iter(requests)
        self.next_due_s = 0.0

    def __next__(self) -> Request:
        request = next(self._requests, None)
        if request is None:
            self.next_due_s = math.inf
            raise StopIteration
        if request.due_s < self.next_due_s:
            raise ValueError(
                f"request {request.request_id!r} is due at {request.due_s!r} s, before the one in front of "
                f"it ({self.next_due_s!r} s); sort by due time"
            )
        self.next_due_s = request.due_s
        return request
