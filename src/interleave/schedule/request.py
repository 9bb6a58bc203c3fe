"""What a caller asks for: a prompt, a generation budget, and when it is due.

This module does not know about models, clocks or memory. A `Request` never changes after it is
made; everything that moves while it is served lives in `row.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral, Real


def _is_int(value: object) -> bool:
    return type(value) is int or (not isinstance(value, bool) and isinstance(value, Integral))


def _is_finite(value: object) -> bool:
    is_real = type(value) is float or (not isinstance(value, bool) and isinstance(value, Real))
    return is_real and math.isfinite(value)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How a request turns logits into a token; the default is greedy.

    temperature: 0 is greedy (ties go to the lowest id), otherwise > 0.
    top_p: nucleus mass in (0, 1].
    seed: of the request's own generator, 0 .. 2**64 - 1, so that a batch's company never changes
        its tokens.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not (_is_finite(self.temperature) and self.temperature >= 0.0):
            raise ValueError(f"temperature must be 0 (greedy) or more, got {self.temperature!r}")
        if not (_is_finite(self.top_p) and 0.0 < self.top_p <= 1.0):
            raise ValueError(f"top_p must lie in (0, 1], got {self.top_p!r}")
        if not (_is_int(self.seed) and 0 <= self.seed < 2**64):
            raise ValueError(f"seed must be an integer from 0 to 2**64 - 1, got {self.seed!r}")

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
    num_computed: leading positions of the prompt whose keys and values another machine has computed and
        delivered, fewer than the prompt has: 0, unless prefill and decode run on machines of their own.
    Raises ValueError for an empty prompt, a token id that is negative or no integer, a budget below
    1, a due time that is not a finite number of at least 0 or a wrong number of computed positions.
    """

    request_id: str
    prompt: Sequence[int]
    max_new_tokens: int
    stop_ids: frozenset[int] = frozenset()
    due_s: float = 0.0
    sampling: SamplingParams = GREEDY
    num_computed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.prompt, range):
            object.__setattr__(self, "prompt", self._ids("prompt", self.prompt))
        if self.stop_ids or not isinstance(self.stop_ids, frozenset):
            object.__setattr__(self, "stop_ids", frozenset(self._ids("stop_ids", self.stop_ids)))
        if not self.prompt:
            raise self._refusal("the prompt is empty; it needs at least one token")
        # The ends of a range bound it; a simulated prompt is never walked.
        ends = (self.prompt[0], self.prompt[-1]) if isinstance(self.prompt, range) else self.prompt
        if min(ends) < 0:
            raise self._refusal(f"token id {min(ends)} in the prompt; ids start at 0")
        if not _is_int(self.max_new_tokens) or self.max_new_tokens < 1:
            raise self._refusal(
                f"max_new_tokens must be an integer of at least 1, got {self.max_new_tokens!r}"
            )
        if not (_is_finite(self.due_s) and self.due_s >= 0.0):
            raise self._refusal(f"due_s must be a finite number of seconds >= 0, got {self.due_s!r}")
        if not (_is_int(self.num_computed) and 0 <= self.num_computed < len(self.prompt)):
            raise self._refusal(
                f"num_computed must lie between 0 and {len(self.prompt) - 1}, one less than its prompt has "
                f"tokens, got {self.num_computed!r}"
            )

    def _ids(self, name: str, values: object) -> tuple[int, ...]:
        if not isinstance(values, Iterable):
            raise self._refusal(f"{name} must hold token ids, got {values!r}")
        ids = tuple(values)
        for token in ids:
            if not _is_int(token):
                where = "in the prompt" if name == "prompt" else f"in {name}"
                raise self._refusal(f"token id {token!r} {where} is not an integer")
        return ids

    def _refusal(self, reason: str) -> ValueError:
        return ValueError(f"request {self.request_id!r}: {reason}")

    @property
    def prompt_len(self) -> int:
        return len(self.prompt)

    @property
    def prefill_target(self) -> int:
        """Positions that count as prefill: the prompt, or what was delivered if all but its newest token was.

        Such a request decodes at once, like any row whose newest token is known and not yet computed.
        """
        delivered = self.num_computed
        return delivered if delivered and delivered == len(self.prompt) - 1 else len(self.prompt)

    @property
    def total_len(self) -> int:
        """Positions that the request can ever need: prompt plus generation budget."""
        return len(self.prompt) + self.max_new_tokens
