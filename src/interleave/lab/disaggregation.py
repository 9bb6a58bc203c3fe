"""Prefill and decode on machines of their own, with the keys and values sent from one kind to the other.

A prefill machine serves a request of one token, and its decode machine a request whose prompt, with that
token, has all but its newest position computed: two requests to the same scheduler, one to its user.
Nothing that happens on a decode machine reaches a prefill machine, so the prefill fleet is served to its
end first and its deliveries are the decode fleet's arrivals; on the common time line this is exact.
As in Splitwise (Patel et al., 2024) and DistServe (Zhong et al., 2024). Torch-free.

What is simple here: keys and values leave when the prompt is done, not layer by layer; a prefill machine
sends one request at a time and frees its blocks when the prompt is done; receivers have room to receive.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from interleave.engine.batched import StepOutcome
from interleave.lab.fleet import Fleet, FleetRun
from interleave.lab.latency_model import TICKS_PER_S, LatencyModel
from interleave.lab.replica import OnStep, Replica
from interleave.lab.request_table import RequestTable, name_of, number_of
from interleave.lab.trace import TraceRow
from interleave.schedule.request import Request

LEAST_GBPS = 1e-6
"""Below a kilobit a second a transfer takes longer than anybody waits, and its time no longer fits a number."""
MOST_LATENCY_S = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What carries keys and values away from a prefill machine. ValueError for a number that cannot be.

    gbps: 10^9 bits a second, inf for a transfer that takes no time; latency_s: on top, for each request.
    """

    gbps: float
    latency_s: float
    kv_bytes_per_token: int

    def __post_init__(self) -> None:
        if not (isinstance(self.gbps, (int, float)) and self.gbps >= LEAST_GBPS):
            raise ValueError(f"gbps must be at least {LEAST_GBPS} (inf: no time at all), got {self.gbps!r}")
        if not (isinstance(self.latency_s, (int, float)) and 0 <= self.latency_s <= MOST_LATENCY_S):
            raise ValueError(
                f"latency_s must lie between 0 and {MOST_LATENCY_S} seconds, got {self.latency_s!r}"
            )
        if not isinstance(self.kv_bytes_per_token, int) or self.kv_bytes_per_token < 1:
            raise ValueError(
                f"kv_bytes_per_token must be an integer of at least 1, got {self.kv_bytes_per_token!r}"
            )

    def busy_ticks(self, num_tokens: int) -> int:
        """How long the sender is at it."""
        return round(num_tokens * self.kv_bytes_per_token * 8 / (self.gbps * 1e9) * TICKS_PER_S)

    @property
    def latency_ticks(self) -> int:
        return round(self.latency_s * TICKS_PER_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Disaggregated:
    """A fleet that computes prompts, one that decodes, and the link between them."""

    prefill: Fleet
    decode: Fleet
    link: Link

    @property
    def num_machines(self) -> int:
        return self.prefill.num_machines + self.decode.num_machines

    def run(
        self, rows: Iterable[TraceRow], num_requests: int, model: LatencyModel, *, leap: bool = True
    ) -> FleetRun:
        """As `Fleet.run`. The table's due, admission and first chunk are those of the prefill machine."""
        prompts = RequestTable(num_requests)
        deliveries = Deliveries(self.link, num_requests)
        first = self.prefill.serve(
            deliveries.prompts_of(rows), prompts, model, leap=leap, watch=deliveries.watch
        )
        rest = RequestTable(num_requests, after=prompts)
        second = self.decode.serve(deliveries.requests(), rest, model, leap=leap)
        machines = {"prefill": [r.table for r in first], "decode": [r.table for r in second]}
        return FleetRun(
            _joined(machines, deliveries), machines, [replica.executor for replica in (*first, *second)]
        )


class Deliveries:
    """Who sends what when: filled while the prefill machines run, read by the decode machines.

    budgets: tokens of each request, by number.
    """

    def __init__(self, link: Link, num_requests: int) -> None:
        self._link = link
        self.budgets = array("q", [0]) * num_requests
        self._prompts = array("q", [0]) * num_requests
        self._sent: list[tuple[int, int]] = []  # ticks of arrival, request number

    def prompts_of(self, rows: Iterable[TraceRow]) -> Iterator[Request]:
        """What the prefill machines serve: each prompt, and its first token."""
        for number, row in enumerate(rows):
            self._prompts[number], self.budgets[number] = row.prompt_tokens, row.new_tokens
            yield Request(name_of(number), range(row.prompt_tokens), 1, due_s=row.due_s)

    def watch(self, sender: Replica) -> OnStep:
        """What a prefill machine does with a finished prompt: send it as soon as the link is free."""
        clock, link, free_at = sender.executor.clock, self._link, 0

        def sends(outcome: StepOutcome, _end_s: float) -> None:
            nonlocal free_at
            for finished in outcome.finished:
                number = number_of(finished.request_id)
                if self.budgets[number] > 1:
                    free_at = max(free_at, clock.ticks) + link.busy_ticks(self._prompts[number])
                    self._sent.append((free_at + link.latency_ticks, number))

        return sends

    def requests(self) -> Iterator[Request]:
        """What the decode machines serve, as it arrives: all but the newest position is computed."""
        for ticks, number in sorted(self._sent):
            prompt = self._prompts[number]
            yield Request(
                name_of(number),
                range(prompt + 1),
                self.budgets[number] - 1,
                due_s=ticks / TICKS_PER_S,
                num_computed=prompt,
            )

    @property
    def num_sent(self) -> int:
        return len(self._sent)


def _joined(machines: dict[str, list[RequestTable]], deliveries: Deliveries) -> RequestTable:
    """Both halves of each request as one. Asserts that every request ended, and none twice."""
    prompts, rest = RequestTable.total(machines["prefill"]), RequestTable.total(machines["decode"])
    joined = RequestTable.total([*machines["prefill"], *machines["decode"]])
    if not prompts.num_completed == prompts.num_arrived == joined.num_requests:
        raise AssertionError(f"{prompts.num_completed} of {joined.num_requests} prompts were computed")
    if not rest.num_completed == rest.num_arrived == deliveries.num_sent:
        raise AssertionError(f"{rest.num_completed} of {deliveries.num_sent} sent requests were decoded")
    joined.num_arrived = joined.num_completed = prompts.num_completed
    joined.set_counts("new_tokens", deliveries.budgets)
    return joined
