"""The work model of the attention layouts, by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interleave.lab.layout_model import (
    A10_PROCESSORS,
    QWEN_1_5B,
    AttentionShape,
    LayoutWork,
    finish,
    finish_bounds,
    mid_run_contexts,
    segments,
    separate_rows,
    slowdown_range,
    spread_contexts,
    union_tiles,
)
from interleave.lab.reference import load_published

TINY = AttentionShape(heads=4, kv_heads=2, head_dim=8)


def test_by_hand() -> None:
    """Rows of 100 and 30 positions; a position and KV head is 2 x 8 x 2 = 32 bytes."""
    contexts = [100, 30]
    apart = separate_rows(TINY, contexts, query_tile=32, walk_tile=64)
    assert apart.walks == (100, 100, 100, 100, 30, 30, 30, 30)
    assert apart.distinct_bytes == 130 * 2 * 32
    assert apart.requested_bytes == 130 * 4 * 32
    assert apart.flops == 4 * 32 * 8 * 4 * (128 + 64)
    assert apart.useful_flops == 4 * 4 * 8 * 130
    union = union_tiles(TINY, contexts, query_tile=32, walk_tile=64)
    assert union.walks == (192, 192, 192, 192)
    assert (union.flops, union.requested_bytes) == (apart.flops, apart.requested_bytes)
    cut = segments(TINY, contexts, tile_rows=16, walk_tile=64, split_tokens=64)
    assert cut.walks == (64, 64, 36, 36, 30, 30)
    assert cut.requested_bytes == cut.distinct_bytes == 130 * 2 * 32
    assert cut.flops == 4 * 16 * 8 * 2 * (64 + 64 + 64)


def test_a_second_tile_starts_after_32_rows() -> None:
    union = union_tiles(TINY, [10] * 33, walk_tile=16)
    assert union.walks == (512,) * 4 + (16,) * 4


def test_list_scheduling_by_hand() -> None:
    work = LayoutWork(0, 0, 0, 0, (3, 3, 2, 2, 2))
    assert finish(work, 2) == 7  # 3 + 2 + 2 beside 3 + 2; the best is 6
    assert finish_bounds(work, 2) == (6.0, 7.5)
    assert finish(work, 5) == 3
    assert finish_bounds(work, 9) == (3.0, 3.0)


def test_equal_rows_pay_for_idle_processors_only() -> None:
    """8 rows x 4 heads on 32 slots: separate takes one walk, the union takes eight."""
    contexts = [128] * 8
    assert slowdown_range(union_tiles(TINY, contexts), separate_rows(TINY, contexts), 32) == (8.0, 8.0)
    assert slowdown_range(union_tiles(TINY, contexts), separate_rows(TINY, contexts), 1)[0] <= 1.0


@settings(max_examples=50)
@given(
    contexts=st.lists(st.integers(1, 3000), min_size=1, max_size=40),
    slots=st.integers(1, 200),
    layout=st.sampled_from([separate_rows, union_tiles, segments]),
)
def test_any_order_lies_within_the_bounds(contexts: list[int], slots: int, layout: object) -> None:
    work = layout(TINY, contexts)  # type: ignore[operator]
    least, most = finish_bounds(work, slots)
    assert least <= finish(work, slots) <= most + 1e-9
    assert work.useful_flops <= work.flops
    assert work.distinct_bytes <= work.requested_bytes


def test_spread_keeps_the_mean() -> None:
    assert spread_contexts(3, 100, 0.5) == [50, 100, 150]
    assert spread_contexts(4, 300, 0.0) == [300] * 4
    assert spread_contexts(2, 10, 1.0) == [1, 20]
    assert spread_contexts(1, 7, 0.3) == [7]


def test_the_assumed_shape() -> None:
    contexts = mid_run_contexts()
    assert len(contexts) == 32
    assert sum(contexts) == 44_048 + 32 * 32
    assert max(contexts) == 4096 + 32


def test_the_published_ratio_lies_in_the_range() -> None:
    """Bytes and FLOPs of the two are the same: the whole factor is programs that wait for each other."""
    contexts = mid_run_contexts()
    apart, union = separate_rows(QWEN_1_5B, contexts), union_tiles(QWEN_1_5B, contexts)
    assert union.requested_bytes == apart.requested_bytes
    assert union.flops == apart.flops
    took_ms = {row.id: row.value for row in load_published() if row.id in ("c12", "c13")}
    ratio = took_ms["c13"] / took_ms["c12"]
    assert ratio == pytest.approx(5.04, abs=0.005)
    low, high = slowdown_range(union, apart, A10_PROCESSORS)
    assert low < ratio < high
    # 12 programs on 72 processors: never more than six times, however the rows are dealt out.
    assert high == pytest.approx(6.0, rel=0.03)
    assert low == pytest.approx(4.0, rel=0.05)


def test_segments_take_what_the_union_wastes() -> None:
    """Against separate rows the longest walk shrinks to a split and the heads share their reads."""
    contexts = mid_run_contexts()
    cut, apart = segments(QWEN_1_5B, contexts), separate_rows(QWEN_1_5B, contexts)
    assert cut.longest_walk == 512
    assert apart.requested_bytes == 6 * cut.requested_bytes
    assert finish(cut, A10_PROCESSORS) < finish(apart, A10_PROCESSORS) / 3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: separate_rows(TINY, []), "contexts"),
        (lambda: segments(TINY, [4, 0]), "contexts"),
        (lambda: segments(TINY, [4], split_tokens=0), "split_tokens"),
        (lambda: union_tiles(TINY, [4], query_tile=0), "tile|range"),
        (lambda: AttentionShape(5, 2, 8), "5 heads cannot share 2"),
        (lambda: AttentionShape(0, 2, 8), "heads must be at least 1"),
        (lambda: finish(separate_rows(TINY, [3]), 0), "slots"),
        (lambda: spread_contexts(2, 10, 1.5), "spread"),
    ],
)
def test_bad_input_is_named(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]
