"""What a run's records say: waits, TTFT, gaps, rates. Pure functions; no clock, no engine.

With d the due time, a the admission, c the start of the first chunk and t_1 <= ... <= t_n the token
times of a request:

    queue wait              a - d
    admission to chunk      c - a
    prefill                 t_1 - c
    TTFT                    t_1 - d                    (the sum of the three above)
    gap k                   t_(k+1) - t_k              (pooled over requests, and each request's largest)
    TPOT                    (t_n - t_1) / (n - 1)      (None for n = 1)
    served rate             completed requests / (last completion - first due time)
    goodput                 completed requests within every stated limit / the same span

All in seconds or per second. None stands for "did not happen" or "the sample does not say", never 0.
"""

from __future__ import annotations

import bisect
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from interleave.engine.records import RequestRecord, RunLog

COMPLETED = ("length", "stop")
SPIKE_FACTOR = 3.0


class RecordError(RuntimeError):
    """A record that no correct run can leave; the message names the request and the two instants."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a request must meet to count as good; seconds, None for no limit, at least one stated.

    A request with one token has no TPOT and no gap and meets those limits. Raises ValueError for a
    limit that is not a finite number above 0, or for none at all.
    """

    ttft_s: float | None = None
    tpot_s: float | None = None
    max_gap_s: float | None = None

    def __post_init__(self) -> None:
        stated = {"ttft_s": self.ttft_s, "tpot_s": self.tpot_s, "max_gap_s": self.max_gap_s}
        if all(value is None for value in stated.values()):
            raise ValueError("goodput needs at least one limit: ttft_s, tpot_s or max_gap_s")
        for name, value in stated.items():
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ValueError(f"limit {name} must be a finite number of seconds above 0, got {value!r}")

    def met_by(self, record: RequestRecord) -> bool:
        measured = (ttft_s(record), tpot_s(record), max_gap_s(record))
        limits = (self.ttft_s, self.tpot_s, self.max_gap_s)
        within = all(
            limit is None or value is None or value <= limit
            for limit, value in zip(limits, measured, strict=True)
        )
        return is_completed(record) and within


class IncumbentGap(NamedTuple):
    """A gap that closed in a step (its index) which began when the request was already decoding."""

    step: int
    request_id: str
    gap_s: float


def is_completed(record: RequestRecord) -> bool:
    """Ended by its budget or a stop id; an abort or an error is no completion."""
    return record.finish_reason in COMPLETED


def queue_wait_s(record: RequestRecord) -> float | None:
    return _difference(record.admit_s, record.due_s)


def admit_to_first_chunk_s(record: RequestRecord) -> float | None:
    return _difference(record.first_chunk_s, record.admit_s)


def prefill_s(record: RequestRecord) -> float | None:
    return _difference(record.first_token_s, record.first_chunk_s)


def ttft_s(record: RequestRecord) -> float | None:
    return _difference(record.first_token_s, record.due_s)


def gaps_s(record: RequestRecord) -> list[float]:
    return [later - earlier for earlier, later in pairwise(record.token_times_s)]


def max_gap_s(record: RequestRecord) -> float | None:
    return max(gaps_s(record), default=None)


def tpot_s(record: RequestRecord) -> float | None:
    """Mean time per token after the first; None below two tokens."""
    times_s = record.token_times_s
    return (times_s[-1] - times_s[0]) / (len(times_s) - 1) if len(times_s) > 1 else None


def incumbent_gaps(log: RunLog) -> list[IncumbentGap]:
    """Gaps of requests that were already decoding when the step that closed the gap began.

    A token belongs to the last step that began before it. Two tokens within one step (an engine that
    serves a request start to end in one step) leave no incumbent gap.
    """
    starts_s = [step.start_s for step in log.steps]
    found = []
    for record in log.requests:
        for earlier_s, later_s in pairwise(record.token_times_s):
            index = bisect.bisect_left(starts_s, later_s) - 1
            if index >= 0 and earlier_s <= starts_s[index]:
                found.append(IncumbentGap(log.steps[index].step, record.request_id, later_s - earlier_s))
    return found


def spikes(gaps: Sequence[IncumbentGap]) -> list[IncumbentGap]:
    """The gaps above three times the baseline, which is their median."""
    if not gaps:
        return []
    limit_s = SPIKE_FACTOR * statistics.median(gap.gap_s for gap in gaps)
    return [gap for gap in gaps if gap.gap_s > limit_s]


def admission_groups(log: RunLog) -> list[int]:
    """Sizes of the groups of requests admitted in one step, in step order."""
    groups = Counter(record.admit_step for record in log.requests if record.admit_step is not None)
    return [groups[step] for step in sorted(groups)]


def span_s(log: RunLog) -> float | None:
    """First due time to last completion; None without a completion or where no time passed."""
    finished_s = [record.finish_s for record in log.requests if is_completed(record)]
    ends_s = [end for end in finished_s if end is not None]
    span = max(ends_s) - min(record.due_s for record in log.requests) if ends_s else 0.0
    return span if span > 0 else None


def served_rate(log: RunLog) -> float | None:
    """Completed requests per second of the span."""
    return _rate(sum(map(is_completed, log.requests)), span_s(log))


def goodput(log: RunLog, limits: Limits) -> float | None:
    """Requests per second of the span that completed within every limit; 0 if none of them did."""
    return _rate(sum(map(limits.met_by, log.requests)), span_s(log))


def check_order(record: RequestRecord) -> None:
    """Raise RecordError unless due <= admit <= first chunk <= first <= last token <= finish.

    Instants that did not happen are skipped, except that a completed request has all of them. Token
    times are as many as tokens and never decrease.
    """
    instants = {
        "due_s": record.due_s,
        "admit_s": record.admit_s,
        "first_chunk_s": record.first_chunk_s,
        "first_token_s": record.first_token_s,
        "last_token_s": record.last_token_s,
        "finish_s": record.finish_s,
    }
    happened = [(name, time_s) for name, time_s in instants.items() if time_s is not None]
    if is_completed(record) and len(happened) < len(instants):
        missing = ", ".join(name for name, time_s in instants.items() if time_s is None)
        raise RecordError(f"request {record.request_id!r} completed without {missing}")
    if len(record.tokens) != len(record.token_times_s):
        raise RecordError(
            f"request {record.request_id!r}: {len(record.tokens)} tokens, {len(record.token_times_s)} times"
        )
    tokens = [(f"token {number}", time_s) for number, time_s in enumerate(record.token_times_s, 1)]
    for sequence in (happened, tokens):
        for (earlier, earlier_s), (later, later_s) in pairwise(sequence):
            if not earlier_s <= later_s:
                raise RecordError(
                    f"request {record.request_id!r}: {later} at {later_s!r} precedes {earlier} at {earlier_s!r}"
                )


def check_budget(record: RequestRecord) -> None:
    """Raise RecordError unless the request generated exactly its budget, as one without stop ids must."""
    if record.finish_reason != "length" or len(record.tokens) != record.max_new_tokens:
        raise RecordError(
            f"request {record.request_id!r} ended by {record.finish_reason} after {len(record.tokens)} of its "
            f"{record.max_new_tokens} tokens"
        )


def _difference(later: float | None, earlier: float | None) -> float | None:
    return None if later is None or earlier is None else later - earlier


def _rate(count: int, span: float | None) -> float | None:
    return None if span is None else count / span
