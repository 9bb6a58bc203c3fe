"""Which replica a request goes to, decided at the moment it is due. Knows loads, no engine.

A router sees what a dispatcher in front of the replicas could: steps that have ended, not the one in
flight. Its one privilege is a request's generation budget, which here is generated in full; a dispatcher
of chat traffic would have to guess it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar


class Loaded(Protocol):
    """What a router may ask of a replica about the time `at_s`, seconds on the common time line."""

    def num_requests(self, at_s: float) -> int:
        """Requests that wait or run."""
        ...

    def outstanding_tokens(self, at_s: float) -> int:
        """Prompt positions not computed and tokens not generated, over those requests."""
        ...


AnyReplica = TypeVar("AnyReplica", bound=Loaded)
Router = Callable[[float], AnyReplica]
"""Due time of a request, later than all before -> its replica; of equals, the first."""


def _round_robin(replicas: Sequence[AnyReplica]) -> Router[AnyReplica]:
    turns = itertools.cycle(replicas)
    return lambda at_s: next(turns)


def _least_loaded(replicas: Sequence[AnyReplica]) -> Router[AnyReplica]:
    return lambda at_s: min(replicas, key=lambda replica: replica.outstanding_tokens(at_s))


def _shortest_queue(replicas: Sequence[AnyReplica]) -> Router[AnyReplica]:
    return lambda at_s: min(replicas, key=lambda replica: replica.num_requests(at_s))


ROUTINGS: dict[str, Callable[[Sequence[AnyReplica]], Router[AnyReplica]]] = {
    "round_robin": _round_robin,
    "least_loaded": _least_loaded,
    "shortest_queue": _shortest_queue,
}
