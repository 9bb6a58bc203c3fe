"""Batches cut into segments and united into tiles: by hand, and that nothing is left out."""

from __future__ import annotations

import numpy as np
from attention_cases import Shape, build
from hypothesis import given, settings
from hypothesis import strategies as st

from interleave.model.attention.tiles import Segments, cut_segments, unite_blocks


def cut(rows: list[tuple[int, int]], group: int = 3, split_tokens: int = 64) -> Segments:
    return cut_segments(build(Shape(tuple(rows), group=group, head_dim=4)).batch, group, 64, 16, split_tokens)


def test_segments_by_hand() -> None:
    """Group 3: wide runs of 21 queries, narrow ones of up to 5; splits of 64 positions."""
    found = cut([(150, 1), (50, 47), (9, 1)])
    assert found.num_parts == 3
    assert found.segments.tolist() == [
        # row, first, queries, position, begin, end, part
        [0, 0, 1, 149, 0, 64, 0],
        [0, 0, 1, 149, 64, 128, 1],
        [1, 43, 5, 45, 0, 50, -1],
        [0, 0, 1, 149, 128, 150, 2],
        [2, 48, 1, 8, 0, 9, -1],
        [1, 22, 21, 24, 0, 45, -1],
        [1, 1, 21, 3, 0, 24, -1],
    ]
    assert found.merges.tolist() == [[0, 3, 0, 1]]


@settings(max_examples=60)
@given(
    rows=st.lists(
        st.integers(1, 120).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n))),
        min_size=1,
        max_size=5,
    ),
    group=st.integers(1, 8),
    split_tokens=st.sampled_from([16, 64, 512]),
)
def test_every_query_meets_each_position_that_it_may_see_once(
    rows: list[tuple[int, int]], group: int, split_tokens: int
) -> None:
    found = cut(rows, group, split_tokens)
    starts = np.concatenate(([0], np.cumsum([queries for _, queries in rows])))
    met = [np.zeros((queries, context), dtype=int) for context, queries in rows]
    for row, first, queries, position, begin, end, part in found.segments.tolist():
        local = first - starts[row]
        assert position == rows[row][0] - rows[row][1] + local
        assert 1 <= queries * group <= 64
        assert begin % split_tokens == 0 or begin == 0
        assert (part < 0) or (queries * group <= 16 and end - begin <= split_tokens)
        met[row][local : local + queries, begin:end] += 1
    for (context, queries), count in zip(rows, met, strict=True):
        seen = np.arange(context) <= np.arange(context - queries, context)[:, None]
        assert (count[seen] == 1).all()
    parts = sorted(part for *_, part in found.segments.tolist() if part >= 0)
    assert parts == list(range(found.num_parts))
    # A merge finds its own parts, in a row: those of the segments that start at its first query.
    for first_part, num_parts, first, queries in found.merges.tolist():
        own = [s for s in found.segments.tolist() if s[6] in range(first_part, first_part + num_parts)]
        assert len(own) == num_parts
        assert {(s[1], s[2]) for s in own} == {(first, queries)}
        assert sum(s[5] - s[4] for s in own) == max(s[5] for s in own)


def test_united_blocks_by_hand() -> None:
    tables = np.array([[7, 3, 0], [5, 0, 0], [1, 2, 9]])
    found = unite_blocks(tables, np.array([17, 16, 33]), 16, 2)
    assert found.tile_starts.tolist() == [0, 3, 6]
    assert found.blocks.tolist() == [7, 3, 5, 1, 2, 9]
    assert found.owners.tolist() == [0, 0, 1, 2, 2, 2]
    assert found.block_starts.tolist() == [0, 16, 0, 0, 16, 32]
    assert unite_blocks(tables[:2], np.array([17, 16]), 16, 2).tile_starts.tolist() == [0, 3]
