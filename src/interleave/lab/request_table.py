"""What a long simulation keeps: a few numbers a request, and the gaps as a histogram.

It hears the serving loop like the full log does, but stores no token and no step, so that memory is
fixed by the number of requests.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from interleave.engine.batched import Engine, StepOutcome
from interleave.lab.token_times import TokenTimes
from interleave.schedule.lockstep import LockstepForward, LockstepTokens
from interleave.schedule.request import Request

COLUMNS = ("due_s", "admit_s", "first_chunk_s", "first_token_s", "last_token_s", "max_gap_s")
TOKEN_COLUMNS = {"first_token_s": "first_s", "last_token_s": "last_s", "max_gap_s": "max_gap_s"}
COUNTS = ("prompt_tokens", "new_tokens", "admit_step", "replica")
TOTALS = ("num_arrived", "num_completed", "num_steps", "num_events", "num_preemptions", "row_steps",
          "prefill_tokens", "padded_tokens", "recomputed_tokens", "new_tokens")  # fmt: skip


def name_of(number: int) -> str:
    """The id of a simulated request: r0000, r0001, ... in order of arrival."""
    return f"r{number:04d}"


def number_of(request_id: str) -> int:
    return int(request_id[1:])


class RequestTable:
    """Arrays by request number (`name_of`); NaN and -1 for what did not happen.

    gaps: all gaps between consecutive tokens of a request. groups: how often a step admitted so many.
    prefill_tokens, padded_tokens, recomputed_tokens, new_tokens: of the run, the third computed before a
    preemption; num_steps and num_events (leaps) likewise; row_steps: rows that ran, summed over steps.
    replica: the engine that this is the table of, where several serve one stream. beside: the table of
    another of them, whose arrays both write. after: the table of engines that gave the first tokens;
    the token times go on from there, the rest is this table's own.
    """

    def __init__(
        self,
        num_requests: int,
        *,
        replica: int = 0,
        beside: RequestTable | None = None,
        after: RequestTable | None = None,
    ) -> None:
        shared = after if beside is None else beside
        self._token_times: TokenTimes = TokenTimes(
            num_requests, None if shared is None else shared._token_times
        )
        if beside is None:
            nan = array("d", [float("nan")])
            self._times = {
                name: getattr(self._token_times, TOKEN_COLUMNS[name])
                if name in TOKEN_COLUMNS
                else nan * num_requests
                for name in COLUMNS
            }
            self._counts = {name: array("q", [-1]) * num_requests for name in COUNTS}
        else:
            self._times, self._counts = beside._times, beside._counts
        # Written for every request; looking them up by name would take as long as writing.
        self._due_s, self._admit_s, self._first_chunk_s = (
            self._times[name] for name in ("due_s", "admit_s", "first_chunk_s")
        )
        self._replica = replica
        self._index: dict[str, int] = {}
        self.gaps = self._token_times.gaps
        self.groups: dict[int, int] = {}
        self.num_requests = num_requests
        self.num_arrived = self.num_completed = 0
        self.num_steps = self.num_events = 0
        self.prefill_tokens = self.padded_tokens = self.new_tokens = 0
        self.num_preemptions = self.recomputed_tokens = self.row_steps = 0

    @classmethod
    def total(cls, tables: Sequence[RequestTable]) -> RequestTable:
        """The tables of one stream as one: their arrays, and the sums of their counts."""
        total = cls(tables[0].num_requests, beside=tables[0])
        for name in TOTALS:
            setattr(total, name, sum(getattr(table, name) for table in tables))
        for table in tables:
            for size, times in table.groups.items():
                total.groups[size] = total.groups.get(size, 0) + times
        return total

    def column(self, name: str) -> NDArray[np.float64] | NDArray[np.int64]:
        """One array over requests."""
        if name in self._times:
            return np.frombuffer(self._times[name])
        return np.frombuffer(self._counts[name], dtype=np.int64)

    def set_counts(self, name: str, values: array[int]) -> None:
        """One of the integer columns as a whole."""
        self._counts[name][:] = values

    def arrived(self, request: Request) -> None:
        index = self._index[request.request_id] = number_of(request.request_id)
        self.num_arrived += 1
        self._counts["replica"][index] = self._replica
        self._due_s[index] = request.due_s
        self._counts["prompt_tokens"][index] = len(request.prompt)
        self._counts["new_tokens"][index] = request.max_new_tokens

    def stepped(self, outcome: StepOutcome, start_s: float, end_s: float, engine: Engine) -> None:
        plan, repeats = outcome.plan, outcome.executed.repeats
        self.num_events += 1
        self.num_steps += repeats
        self.row_steps += outcome.num_rows * repeats
        if plan.preempted:
            self.num_preemptions += len(plan.preempted)
        if plan.padded:
            self.padded_tokens += plan.num_padded_tokens
        if plan.admitted:
            self._admit(outcome, start_s)
        if outcome.prefill_tokens:
            self.prefill_tokens += outcome.prefill_tokens * repeats
            self._chunks(outcome, repeats, start_s)
        self._tokens(outcome, repeats, start_s, end_s)
        for finished in outcome.finished:
            self._token_times.leave(self._index.pop(finished.request_id))
            self.num_completed += 1

    def _admit(self, outcome: StepOutcome, start_s: float) -> None:
        admitted = outcome.plan.admitted
        self.groups[len(admitted)] = self.groups.get(len(admitted), 0) + 1
        admit_s, admit_step = self._admit_s, self._counts["admit_step"]
        for row in admitted:
            index = self._index[row.request_id]
            admit_s[index] = start_s
            admit_step[index] = outcome.plan.step
            if row.request.num_computed:
                self._token_times.resume(index)

    def _chunks(self, outcome: StepOutcome, repeats: int, start_s: float) -> None:
        for forward in outcome.plan.forwards:
            if type(forward) is LockstepForward:
                continue
            for piece in forward:
                row, start, _ = piece
                if row.computed_before:
                    self.recomputed_tokens += piece.num_recomputed_tokens(repeats)
                elif start == 0:
                    self._first_chunk_s[self._index[row.request_id]] = start_s

    def _tokens(self, outcome: StepOutcome, repeats: int, start_s: float, end_s: float) -> None:
        """Every row that yields here yields in each recurrence: one gap to the first, then the steps' own."""
        index_of, times, tokens = self._index, self._token_times, outcome.tokens
        together: Sequence[str] = ()
        number = len(tokens)
        if not number:
            return
        if type(tokens) is LockstepTokens:
            together, tokens = tokens.ids, tokens.before
        span = outcome.executed.span_s
        begins_s, inside_s = end_s, 0.0
        if repeats > 1 and span is not None:
            first_s, last_s = span
            begins_s = start_s + first_s
            second_s = first_s + (last_s - first_s) / (repeats - 1)
            inside_s = second_s if second_s > last_s else last_s
            self.gaps.add_run(second_s, last_s, repeats - 1, number)
        self.new_tokens += number * repeats
        if together and not times.together(len(together), begins_s, end_s, inside_s):
            indices = [index_of[request_id] for request_id in together]
            for index in indices:
                times.one(index, begins_s, end_s, inside_s)
            times.regroup(indices)
        for request_id, _ in tokens:
            times.one(index_of[request_id], begins_s, end_s, inside_s)

    def aborted(self, engine: Engine, now_s: float) -> None:
        """A simulation aborts nobody."""

    def failed(self, engine: Engine, now: Callable[[], float]) -> None:
        engine.end_all("error")
