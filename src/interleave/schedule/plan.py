"""A step as data: one or two forwards, each a list of (row, start, num_tokens).

Whether a piece is a chunk or a decode is read off its position, never stored as a flag. A plan
does not know how it will be executed, by which kernels, or how long that takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from interleave.schedule.row import Row


class Piece(NamedTuple):
    """Positions start .. start + num_tokens of one row, computed in one forward."""

    row: Row
    start: int
    num_tokens: int

    @property
    def stop(self) -> int:
        return self.start + self.num_tokens

    @property
    def is_decode(self) -> bool:
        return self.start >= self.row.prefill_target

    @property
    def yields_token(self) -> bool:
        """True when this piece reaches the newest known token: its logits choose the next one.

        Ask before the step is committed; afterwards the row knows one token more.
        """
        return self.stop == self.row.known_len

    def num_recomputed_tokens(self, repeats: int = 1) -> int:
        """Positions that had been computed before a preemption, over so many recurrences of the piece."""
        return max(0, min(self.start + repeats * self.num_tokens, self.row.computed_before) - self.start)


Forward = Sequence[Piece]


class Preemption(NamedTuple):
    """A row that gave way, with the blocks that it held and the positions they kept."""

    row: Row
    blocks: list[int]
    num_computed: int


@dataclass(slots=True)
class StepPlan:
    """What one step computes. `padded` asks for the prefill as one left-padded dense group.

    admitted: rows that run for the first time; resumed: rows that run again after a preemption;
    preempted: rows that gave way before this step, youngest first. Their blocks may be others' already.
    repeats: steps in a row for which the scheduler would plan the same, each piece moved on by its
    own length, unless a request arrives or is aborted meanwhile. 1 unless the scheduler looks ahead.
    full: an arrival would change nothing either, since every row is taken or somebody waits already.
    """

    step: int
    admitted: tuple[Row, ...]
    forwards: tuple[Forward, ...]
    padded: bool = False
    repeats: int = 1
    full: bool = False
    resumed: tuple[Row, ...] = ()
    preempted: tuple[Preemption, ...] = ()

    @property
    def num_padded_tokens(self) -> int:
        """Positions of a padded group that belong to no prompt: group size x widest - prompts."""
        if not self.padded:
            return 0
        (group,) = self.forwards
        return len(group) * max(p.num_tokens for p in group) - sum(p.num_tokens for p in group)

    def composition(self) -> tuple[tuple[tuple[str, int, int], ...], ...]:
        """The plan as plain (request id, start, num_tokens) tuples, to compare two runs."""
        return tuple(
            tuple((piece.row.request_id, piece.start, piece.num_tokens) for piece in forward)
            for forward in self.forwards
        )
