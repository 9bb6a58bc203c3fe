"""What a caller asks for: a prompt, a generation budget, and when it is due.

This module does not know about models, clocks or memory. A `Request` never changes after it is
made; everything that moves while it is served lives in `row.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How a request turns logits into a token; the default is greedy.

    temperature: 0 is greedy (ties go to the lowest id), otherwise > 0.
    top_p: nucleus mass in (0, 1].
    seed: of the request's own generator, so that a batch's company never changes its tokens.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0.0):
            raise ValueError(f"temperature must be 0 (greedy) or more, got {self.temperature!r}")
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p must lie in (0, 1], got {self.top_p!r}")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0


GREEDY = SamplingParams()


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One prompt and its generation budget.

    prompt: token ids; a list is copied, so a caller who changes it later changes nothing here.
        A `range` is kept as it is: the simulator needs a length, not tokens.
    max_new_tokens: tokens generated unless a stop id comes first (>= 1).
    due_s: when the request arrives, in seconds from the start of the run.
    Raises ValueError for an empty prompt, a negative token id, a budget below 1 or a due time
    that is not a finite number of at least 0.
    """

    request_id: str
    prompt: Sequence[int]
    max_new_tokens: int
    stop_ids: frozenset[int] = frozenset()
    due_s: float = 0.0
    sampling: SamplingParams = GREEDY

    def __post_init__(self) -> None:
        if not isinstance(self.prompt, (tuple, range)):
            object.__setattr__(self, "prompt", _token_ids(self.request_id, self.prompt))
        object.__setattr__(self, "stop_ids", frozenset(self.stop_ids))
        if not self.prompt:
            raise ValueError(f"request {self.request_id!r}: the prompt is empty; it needs at least one token")
        if min(self.prompt[0], self.prompt[-1]) < 0 or min(self.prompt) < 0:
            raise ValueError(
                f"request {self.request_id!r}: token id {min(self.prompt)} in the prompt; ids start at 0"
            )
        if not _is_int(self.max_new_tokens) or self.max_new_tokens < 1:
            raise ValueError(
                f"request {self.request_id!r}: max_new_tokens must be an integer of at least 1, "
                f"got {self.max_new_tokens!r}"
            )
        if not (math.isfinite(self.due_s) and self.due_s >= 0.0):
            raise ValueError(
                f"request {self.request_id!r}: due_s must be a finite number of seconds >= 0, got {self.due_s!r}"
            )

    @property
    def prompt_len(self) -> int:
        return len(self.prompt)

    @property
    def total_len(self) -> int:
        """Positions that the request can ever need: prompt plus generation budget."""
        return len(self.prompt) + self.max_new_tokens


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _token_ids(request_id: str, prompt: Iterable[int]) -> tuple[int, ...]:
    ids = tuple(prompt)
    for token in ids:
        if not _is_int(token):
            raise ValueError(f"request {request_id!r}: token id {token!r} in the prompt is not an integer")
    return ids
