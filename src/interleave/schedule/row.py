"""A request once admitted: what is computed, what is emitted, which blocks are its own.

One invariant, asserted after every change: `num_computed <= known_len <= total_len`, where
`known_len` counts the prompt and the tokens emitted so far. The newest token is always known and
not yet computed, so a decoding row computes position `known_len - 1`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from interleave.schedule.request import Request


@dataclass(slots=True, eq=False)
class Row:
    """A request that runs, or that was preempted and waits to run again.

    prefill_target: positions that count as prefill. It is stored and never inferred from a length,
        because lengths grow as tokens are emitted. The prompt at first; after a preemption the prompt and
        the emitted tokens less the newest, whose decode chooses the next one.
    computed_before: positions that were computed when a preemption last took its blocks, 0 without one.
    last_served_step: the last step that computed anything for this row (-1: none yet); under
        prefill-first order the least recently served decode goes first.
    number: how many were admitted before it.
    finish_reason: set at the last token. A row of a static batch is held after that until the
        whole batch has ended.
    """

    request: Request
    blocks: list[int]
    admit_step: int
    prefill_target: int
    num_computed: int = 0
    computed_before: int = 0
    emitted: list[int] = field(default_factory=list)
    last_served_step: int = -1
    finish_reason: str | None = None
    number: int = 0
    # Stored, since every step asks every row for them.
    request_id: str = field(init=False)
    known_len: int = field(init=False)

    def __post_init__(self) -> None:
        self.request_id = self.request.request_id
        self.known_len = len(self.request.prompt) + len(self.emitted)

    def emit(self, token: int, times: int = 1) -> None:
        """Append a sampled token, `times` over where a recurring step is booked at once."""
        if times == 1:
            self.emitted.append(token)
        else:
            self.emitted.extend([token] * times)
        self.known_len += times

    def restart(self) -> None:
        """Its keys and values are gone: what is known must be computed again, and no token is sampled twice."""
        self.computed_before = max(self.computed_before, self.num_computed)
        self.num_computed = 0
        self.prefill_target = self.known_len - 1 if self.emitted else self.known_len

    @property
    def is_prefilling(self) -> bool:
        return self.num_computed < self.prefill_target

    @property
    def remaining_prefill(self) -> int:
        return max(0, self.prefill_target - self.num_computed)

    def token_at(self, position: int) -> int:
        prompt = self.request.prompt
        return prompt[position] if position < len(prompt) else self.emitted[position - len(prompt)]

    def tokens_between(self, start: int, stop: int) -> list[int]:
        """Known token ids at positions start..stop."""
        prompt = self.request.prompt
        if stop <= len(prompt):
            return list(prompt[start:stop])
        if start >= len(prompt):
            return self.emitted[start - len(prompt) : stop - len(prompt)]
        return [*prompt[start:], *self.emitted[: stop - len(prompt)]]

    def check(self) -> None:
        if self.known_len != len(self.request.prompt) + len(self.emitted):
            raise AssertionError(f"{self.request_id!r}: known_len {self.known_len} is stale")
        if not 0 <= self.num_computed <= self.known_len <= self.request.total_len:
            raise AssertionError(
                f"{self.request_id!r}: computed {self.num_computed}, known {self.known_len}, "
                f"total {self.request.total_len}"
            )
