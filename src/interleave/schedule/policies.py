"""Which positions run in the next step: pure functions from rows and limits to forwards.

A policy sees rows, never blocks, clocks or the waiting queue; admission is the scheduler's. Rows
arrive in FCFS order, so in-progress prefills stand before new admissions. The token budget T caps
a step's query positions, the chunk budget C its prompt positions, and `order` says who takes T
first. Sources: `whole` is iteration-level scheduling as in Orca (Yu et al., 2022); `chunked` and
`mixed` follow SARATHI (Agrawal et al., 2023) in two forwards and in one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from interleave.schedule.lockstep import Lockstep, LockstepForward
from interleave.schedule.plan import Forward, Piece
from interleave.schedule.row import Row

ORDERS = ("decode_first", "prefill_first")
UNBOUNDED = 1 << 62


@dataclass(frozen=True, slots=True)
class StepLimits:
    """C, kappa and T of one engine, with `UNBOUNDED` where there is none."""

    chunk_budget: int
    max_chunk: int
    token_budget: int
    prefill_first: bool


Policy = Callable[[Sequence[Row], Sequence[Row], StepLimits], tuple[Forward, ...]]
"""(prefilling rows, decoding rows, limits) -> forwards, none of them empty."""


def chunk_len(
    remaining: int, budget: int, alone: bool = False, *, whole: bool = False, max_chunk: int = UNBOUNDED
) -> int:
    """Prompt positions to take of one prompt when `budget` is left in the step.

    Chunked: as many as fit. Whole: all of them if they fit or nothing else runs in the step
    (`alone`), else none.
    """
    if whole:
        return remaining if alone or remaining <= budget else 0
    most = budget if budget < max_chunk else max_chunk  # a step asks for every prompt: `min` would cost more
    if most < 0:
        return 0
    return remaining if remaining < most else most


def split(num_tokens: int, size: int) -> list[tuple[int, int]]:
    """(start, count) pieces of at most `size` tokens; a size below 1 counts as 1."""
    size = max(1, size)
    return [(start, min(size, num_tokens - start)) for start in range(0, num_tokens, size)]


def _decodes(rows: Sequence[Row]) -> Forward:
    """The newest token of each row: all before it is computed, so it stands at `num_computed`.

    A step makes a piece for every row; `tuple.__new__` makes them in half the time that `Piece` takes,
    and rows in lockstep leave it to whoever looks at the pieces.
    """
    if type(rows) is Lockstep:
        return LockstepForward(rows)
    new = tuple.__new__
    return tuple([new(Piece, (row, row.num_computed, 1)) for row in rows])


def _chunks(prefilling: Sequence[Row], budget: int, limits: StepLimits) -> Forward:
    """Share `budget` over the prompts, first come first served."""
    pieces: list[Piece] = []
    new = tuple.__new__
    for row in prefilling:
        if budget <= 0:
            break
        start = row.num_computed
        count = chunk_len(row.prefill_target - start, budget, max_chunk=limits.max_chunk)
        pieces.append(new(Piece, (row, start, count)))
        budget -= count
    return tuple(pieces)


def _whole_prompts(prefilling: Sequence[Row], budget: int, alone: bool) -> Forward:
    """Whole prompts in FCFS order; the first that does not fit holds back those behind it."""
    pieces: list[Piece] = []
    for row in prefilling:
        count = chunk_len(row.remaining_prefill, budget, alone and not pieces, whole=True)
        if count == 0:
            break
        pieces.append(Piece(row, row.num_computed, count))
        budget -= count
    return tuple(pieces)


def _non_empty(*forwards: Forward) -> tuple[Forward, ...]:
    return tuple([forward for forward in forwards if forward])


def _chunks_and_decodes(
    prefilling: Sequence[Row], decoding: Sequence[Row], limits: StepLimits
) -> tuple[Forward, Forward]:
    if not prefilling:
        return (), _decodes(decoding)  # T leaves room for every row
    if not limits.prefill_first:
        budget = min(limits.chunk_budget, limits.token_budget - len(decoding))
        return _chunks(prefilling, budget, limits), _decodes(decoding)
    chunks = _chunks(prefilling, min(limits.chunk_budget, limits.token_budget), limits)
    room = limits.token_budget - sum(piece.num_tokens for piece in chunks)
    if room >= len(decoding):
        return chunks, _decodes(decoding)
    # Python's sort is stable, so equally stale rows keep their FCFS order.
    return chunks, _decodes(sorted(decoding, key=lambda row: row.last_served_step)[: max(0, room)])


def whole(prefilling: Sequence[Row], decoding: Sequence[Row], limits: StepLimits) -> tuple[Forward, ...]:
    """Each prompt in one piece. A prompt longer than the budget runs in a step of its own.

    Prefill-first (the classic server): prompts run while every decode waits. Decode-first: the
    decodes take T, prompts that fit what is left join them, and an oversized one waits until
    nothing decodes.
    """
    if limits.prefill_first:
        prompts = _whole_prompts(prefilling, min(limits.chunk_budget, limits.token_budget), alone=True)
        return _non_empty(prompts) or _non_empty(_decodes(decoding))
    budget = min(limits.chunk_budget, limits.token_budget - len(decoding))
    return _non_empty(_whole_prompts(prefilling, budget, alone=not decoding), _decodes(decoding))


def group(prefilling: Sequence[Row], decoding: Sequence[Row], limits: StepLimits) -> tuple[Forward, ...]:
    """All prompts just admitted as one group, else one decode forward; serves `padded` and `static`.

    No budget limits the group: it is as wide as its widest prompt and as tall as admission made it.
    """
    prompts = tuple(Piece(row, row.num_computed, row.remaining_prefill) for row in prefilling)
    return _non_empty(prompts) or _non_empty(_decodes(decoding))


def chunked(prefilling: Sequence[Row], decoding: Sequence[Row], limits: StepLimits) -> tuple[Forward, ...]:
    """A forward of chunks, then a forward of decodes."""
    if not prefilling:  # most steps
        return (_decodes(decoding),) if decoding else ()
    return _non_empty(*_chunks_and_decodes(prefilling, decoding, limits))


def mixed(prefilling: Sequence[Row], decoding: Sequence[Row], limits: StepLimits) -> tuple[Forward, ...]:
    """Decodes and chunks in one forward."""
    chunks, decodes = _chunks_and_decodes(prefilling, decoding, limits)
    return _non_empty((*decodes, *chunks))


POLICIES: dict[str, Policy] = {
    "whole": whole,
    "padded": group,
    "static": group,
    "chunked": chunked,
    "mixed": mixed,
}
DEFAULT_ORDER = {
    "whole": "prefill_first",
    "padded": "prefill_first",
    "static": "prefill_first",
    "chunked": "decode_first",
    "mixed": "decode_first",
}
"""Group policies know one order only: the group runs and everything else waits."""
