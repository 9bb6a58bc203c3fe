"""What a run leaves behind: one record per request and one per step. Torch-free.

Times are seconds since the start of the run, on the clock of the serving loop. `None` stands for
"did not happen", never 0. `lab.metrics` turns these into TTFT, gaps and rates.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class RequestRecord:
    """The life of one request.

    due_s <= admit_s <= first_chunk_s <= first_token_s <= last_token_s <= finish_s, each where it
    happened. `finish_reason` is one of length, stop, abort, error.
    """

    request_id: str
    prompt_tokens: int
    max_new_tokens: int
    due_s: float
    admit_s: float | None = None
    admit_step: int | None = None
    first_chunk_s: float | None = None
    finish_s: float | None = None
    finish_reason: str | None = None
    tokens: list[int] = field(default_factory=list)
    token_times_s: list[float] = field(default_factory=list)

    @property
    def first_token_s(self) -> float | None:
        return self.token_times_s[0] if self.token_times_s else None

    @property
    def last_token_s(self) -> float | None:
        return self.token_times_s[-1] if self.token_times_s else None


@dataclass(slots=True)
class StepRecord:
    """One scheduler iteration: what it computed and where its time went.

    prefill_tokens: prompt positions computed; padded_tokens: positions computed that no request
    asked for (padding of a group, or rows held after they ended); copied_tokens: positions whose
    K and V were moved, out of a throwaway cache or to close a gap between slots; forwards: passes of the model.
    attended_tokens: keys that the asked-for positions looked at, summed over positions; context_tokens:
    positions whose K and V those needed, once a row; sampled_rows: tokens chosen. A row that had ended
    counts in none of the three.
    rows: rows that ran in the step, with a part in its forwards or not; running: those left at its end.
    preempted, resumed: rows that gave their blocks back before the step, and rows that came back after such a
    preemption; recomputed_tokens: of prefill_tokens, those that had been computed before one.
    owned_blocks: blocks that rows held during the step; used_blocks: those of them that keep a computed
    position at its end; cached_tokens: those positions. With blocks of B positions, owned_blocks x B are
    reserved and used_blocks x B - cached_tokens are lost to rounding.
    parts_s: seconds by kind (prefill, decode, mixed for a forward with both, copy, sample, host); they sum to
    end_s - start_s.
    """

    step: int
    start_s: float
    end_s: float
    forwards: int
    prefill_tokens: int
    decode_rows: int
    padded_tokens: int
    copied_tokens: int
    admitted: int
    running: int
    waiting: int
    parts_s: dict[str, float] = field(default_factory=dict)
    attended_tokens: int = 0
    context_tokens: int = 0
    sampled_rows: int = 0
    rows: int = 0
    preempted: int = 0
    resumed: int = 0
    recomputed_tokens: int = 0
    owned_blocks: int = 0
    used_blocks: int = 0
    cached_tokens: int = 0


@dataclass(slots=True)
class RunLog:
    """Everything that one run of the serving loop recorded, in submission and step order."""

    requests: list[RequestRecord] = field(default_factory=list)
    steps: list[StepRecord] = field(default_factory=list)
    wall_s: float = 0.0
