"""The greedy token of a row, found in explicit vectors, against torch's."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from interleave.model.ops import reference, simd
from interleave.model.ops.finite import NOT_FINITE
from interleave.model.simd import greedy

pytestmark = pytest.mark.usefixtures("one_thread")
VOCABS = st.one_of(
    st.integers(1, 70),
    st.integers(greedy.BLOCK - 17, greedy.BLOCK + 17),
    st.sampled_from([2 * greedy.BLOCK, 49_152]),
)


@given(rows=st.integers(0, 5), vocab=VOCABS, levels=st.integers(1, 1000), seed=st.integers(0, 9))
def test_ties_go_to_the_lowest_id(rows: int, vocab: int, levels: int, seed: int) -> None:
    """Few levels make ties within a vector, between vectors and between blocks."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randint(-levels, levels + 1, (rows, vocab), generator=generator).float() / 8
    assert torch.equal(simd.greedy(logits), reference.greedy(logits))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("vocab", [1, 40, greedy.BLOCK + 1])
def test_a_row_that_is_not_finite_has_none(value: float, vocab: int) -> None:
    for place in {0, vocab // 2, vocab - 1}:
        logits = torch.zeros(3, vocab)
        logits[1, place] = value
        assert simd.greedy(logits).tolist() == [0, NOT_FINITE, 0]


def test_the_largest_numbers_are_finite() -> None:
    logits = torch.full((2, 100), torch.finfo(torch.float32).min)
    logits[1, 50] = torch.finfo(torch.float32).max
    assert simd.greedy(logits).tolist() == [0, 50]


def test_rows_shared_out_over_threads_are_each_their_own() -> None:
    logits = torch.randn(33, 4096, generator=torch.Generator().manual_seed(3))
    logits[7, 5] = math.nan
    shared = torch.empty(33, dtype=torch.int64)
    greedy._greedy(logits.numpy(), NOT_FINITE, shared.numpy(), 4)
    assert torch.equal(shared, reference.greedy(logits))
