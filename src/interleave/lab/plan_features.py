"""What a forward costs, in countable things of its plan: integers, no seconds. Torch-free.

The definitions, per forward:

    forwards          1
    positions         query positions, padding included
    prefill_attended  positions seen by packed prompt queries: n s + n (n+1)/2 for n from position s
    dense_attended    pairs that a dense group computes: rows x widest^2 under a padding mask, half of
                      that (rows x widest (widest+1)/2) where there is no padding and it runs causally
    decode_rows       rows that decode
    decode_attended   positions that they see, each row its own
    slot_attended     positions that they walk where rows lie in slots: rows x widest
    copied_rows       rows of a group whose K and V are copied to their blocks afterwards
    copied_tokens     positions copied so

A plan that recurs grows by the same amount each time; the growth is the second vector.
"""

from __future__ import annotations

from typing import NamedTuple

from interleave.schedule.lockstep import LockstepForward
from interleave.schedule.plan import Forward


class Features(NamedTuple):
    """Counts of one forward, or their growth from one recurrence to the next."""

    forwards: int = 0
    positions: int = 0
    prefill_attended: int = 0
    dense_attended: int = 0
    decode_rows: int = 0
    decode_attended: int = 0
    slot_attended: int = 0
    copied_rows: int = 0
    copied_tokens: int = 0


FEATURES = Features._fields


def padded_features(group: Forward) -> Features:
    """A left-padded dense group, whose K and V are copied to where decode reads them."""
    rows = len(group)
    widest = max(piece.num_tokens for piece in group)
    tokens = sum(piece.num_tokens for piece in group)
    causal = tokens == rows * widest
    return Features(
        forwards=1,
        positions=rows * widest,
        dense_attended=rows * (widest * (widest + 1) // 2 if causal else widest * widest),
        copied_rows=rows,
        copied_tokens=tokens,
    )


def packed_counts(forward: Forward) -> tuple[int, int, int, int, int, int]:
    """Of chunks and decodes in one forward: (positions, prefill_attended and its growth when the plan
    recurs, decode_rows, decode_attended, widest decode)."""
    if type(forward) is LockstepForward:
        rows = forward.size
        return rows, 0, 0, rows, forward.attended, 0
    positions = attended = growth = rows = seen = widest = 0
    for row, start, count in forward:
        positions += count
        if start < row.prefill_target:
            attended += count * start + count * (count + 1) // 2
            growth += count * count
        else:
            rows += 1
            seen += start + 1
            if start >= widest:
                widest = start + 1
    return positions, attended, growth, rows, seen, widest


def packed_features(forward: Forward, slots: bool) -> tuple[Features, Features]:
    """`packed_counts` as (counts, growth when the plan recurs)."""
    positions, attended, growth, rows, seen, widest = packed_counts(forward)
    if slots and type(forward) is LockstepForward:
        widest = forward.rows.widest
    own, walked = (0, rows * widest) if slots else (seen, 0)
    return (
        Features(1, positions, attended, 0, rows, own, walked),
        Features(0, 0, growth, 0, 0, 0 if slots else rows, rows if slots else 0),
    )


def total(features: list[Features]) -> Features:
    """The counts of a step: the sum over its forwards."""
    return features[0] if len(features) == 1 else Features(*map(sum, zip(*features, strict=True)))
