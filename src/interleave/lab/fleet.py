"""Replicas behind a router, on one time line: each the plain simulation's engine, loop and executor.

Event by event: the replica whose latest step ended first moves next, and a request is routed as soon as
no replica is at work before its due time. Ties go to the request, as in the serving loop, then to the
lower replica. Torch-free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from interleave.lab.latency_model import LatencyModel
from interleave.lab.replica import OnStep, Replica
from interleave.lab.request_table import RequestTable
from interleave.lab.routing import ROUTINGS, Router
from interleave.lab.simulated_executor import SimulatedExecutor
from interleave.lab.simulator import Served, requests_of
from interleave.lab.trace import TraceRow
from interleave.lab.virtual_clock import Arrivals
from interleave.schedule.names import nearest
from interleave.schedule.request import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """`num_replicas` of the same engine, and how requests are spread over them. ValueError for a wrong value."""

    served: Served
    num_replicas: int = 1
    routing: str = "round_robin"

    def __post_init__(self) -> None:
        checked_count("num_replicas", self.num_replicas)
        if self.routing not in ROUTINGS:
            raise ValueError(nearest("routing", self.routing, ROUTINGS))

    @property
    def num_machines(self) -> int:
        return self.num_replicas

    def run(
        self, rows: Iterable[TraceRow], num_requests: int, model: LatencyModel, *, leap: bool = True
    ) -> FleetRun:
        """Serve `rows`, drawn one by one. leap: as in `simulate_table`; the result is the same, sooner."""
        replicas = self.serve(requests_of(rows), RequestTable(num_requests), model, leap=leap)
        tables = [replica.table for replica in replicas]
        return FleetRun(
            RequestTable.total(tables), {"replica": tables}, [replica.executor for replica in replicas]
        )

    def serve(
        self,
        requests: Iterable[Request],
        table: RequestTable,
        model: LatencyModel,
        *,
        leap: bool = True,
        watch: Callable[[Replica], OnStep] | None = None,
    ) -> list[Replica]:
        """Serve requests in order of due time and return the replicas, idle again.

        table: the first replica's; the others write the same arrays. watch: makes what each replica tells
        its outcomes to.
        """
        arrivals = Arrivals(requests)
        replicas: list[Replica] = []
        for index in range(self.num_replicas):
            own = RequestTable(table.num_requests, replica=index, beside=table) if index else table
            engine, executor = self.served.machine(model, arrivals if leap else None)
            replicas.append(Replica(index, engine, executor, own, watch))
        serve_fleet(replicas, arrivals, ROUTINGS[self.routing](replicas))
        return replicas


@dataclass(frozen=True, slots=True)
class FleetRun:
    """What serving left: one table of all requests, the tables of the machines by role, their executors."""

    table: RequestTable
    machines: dict[str, list[RequestTable]]
    executors: list[SimulatedExecutor]


def checked_count(name: str, value: object) -> None:
    """ValueError for anything but an integer of at least 1."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")


def serve_fleet(replicas: Sequence[Replica], arrivals: Iterator[Request], route: Router[Replica]) -> None:
    """Serve a stream of requests, sorted by due time, to the end. Whatever goes wrong, nothing stays live."""
    upcoming = next(arrivals, None)
    try:
        while True:
            first = None
            for replica in replicas:
                if replica.num_live and (first is None or replica.now_s < first.now_s):
                    first = replica
            if upcoming is not None and (first is None or upcoming.due_s <= first.now_s):
                route(upcoming.due_s).take(upcoming)
                upcoming = next(arrivals, None)
            elif first is not None:
                first.step()
            else:
                break
    except BaseException:
        for replica in replicas:
            replica.server.fail()
        raise
    for replica in replicas:
        replica.check()
