"""The segmented and union kernels, and the backend that chooses, against attention in float64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("triton", reason="triton has wheels for Linux only")
from cases import by_backend, by_segments, by_union, make

from interleave.model.attention import triton as backend

FEW = settings(deadline=None, max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
FLOATS = [torch.float32, torch.float16]
MIXED = [(1, 1), (64, 1), (65, 1), (40, 40), (100, 33), (530, 1), (17, 16), (90, 2)]
DECODES = [(context, 1) for context in (1, 15, 16, 17, 63, 64, 65, 127, 128, 129)]
CHUNKS = [(2, 2), (63, 63), (64, 10), (130, 11), (70, 65)]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    ("group", "head_dim", "block_tokens"), [(1, 64, 16), (6, 128, 64), (3, 64, 128), (8, 128, 16)]
)
@pytest.mark.parametrize("rows", [MIXED, DECODES, CHUNKS], ids=["mixed", "decodes", "chunks"])
def test_segments(
    rows: list[tuple[int, int]], group: int, head_dim: int, block_tokens: int, dtype: torch.dtype, device: str
) -> None:
    case = make(
        rows,
        group=group,
        kv_heads=1,
        head_dim=head_dim,
        block_tokens=block_tokens,
        dtype=dtype,
        device=device,
    )
    case.check(by_segments(case), dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("block_tokens", [16, 24, 64, 128])
def test_union_tiles(block_tokens: int, dtype: torch.dtype, device: str) -> None:
    """Two tiles, the second of one row."""
    rows = [(1 + 7 * index % 70, 1) for index in range(32)] + [(130, 1)]
    case = make(rows, kv_heads=1, head_dim=64, block_tokens=block_tokens, dtype=dtype, device=device)
    case.check(by_union(case), dtype)


def edges(most: int) -> st.SearchStrategy[int]:
    """Lengths of any kind, and those beside the edge of a block or tile."""
    beside = st.builds(lambda n, by: max(1, n + by), st.sampled_from([16, 32, 64]), st.integers(-1, 1))
    return st.one_of(st.integers(1, most), beside)


SHAPES = {
    "group": st.integers(1, 8),
    "kv_heads": st.integers(1, 3),
    "head_dim": st.sampled_from([16, 32]),
    "block_tokens": st.sampled_from([16, 24, 64, 128]),
    "dtype": st.sampled_from(FLOATS),
}


@FEW
@given(
    rows=st.lists(
        edges(90).flatmap(lambda n: st.tuples(st.just(n), st.one_of(st.just(1), st.integers(1, n)))),
        min_size=1,
        max_size=5,
    ),
    split_tokens=st.sampled_from([64, 128, 512]),
    shape=st.fixed_dictionaries(SHAPES),
)
def test_segments_of_any_shape(
    rows: list[tuple[int, int]], split_tokens: int, shape: dict, device: str
) -> None:
    case = make(rows, device=device, **shape)
    case.check(by_segments(case, split_tokens), shape["dtype"])


@FEW
@given(
    contexts=st.lists(edges(70), min_size=1, max_size=33),
    shape=st.fixed_dictionaries({**SHAPES, "kv_heads": st.just(1), "group": st.integers(1, 3)}),
)
def test_union_tiles_of_any_shape(contexts: list[int], shape: dict, device: str) -> None:
    case = make([(context, 1) for context in contexts], device=device, **shape)
    case.check(by_union(case), shape["dtype"])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_long_rows_are_split_and_merged(dtype: torch.dtype, device: str) -> None:
    """Splits that end before, at and after the context, with few and with several queries each."""
    rows = [(511, 1), (512, 1), (513, 1), (1030, 1), (1025, 4), (515, 4)]
    case = make(rows, kv_heads=2, head_dim=64, block_tokens=64, dtype=dtype, device=device)
    case.check(by_segments(case), dtype)


@pytest.mark.parametrize(
    ("rows", "called"),
    [
        ([(20, 1), (40, 1)], {"paged_decode"}),
        ([(20, 2), (40, 30)], {"packed_prefill"}),
        ([(20, 1), (40, 30)], {"segmented"}),
        ([(1, 1), (40, 2), (50, 1)], {"segmented"}),
    ],
)
def test_a_forward_of_decodes_and_chunks_is_one_launch(
    rows: list[tuple[int, int]], called: set[str], monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    seen = set()

    def noted(name: str) -> object:
        kernel = getattr(backend, name)
        return lambda *arguments: (seen.add(name), kernel(*arguments))[1]

    for name in ("paged_decode", "packed_prefill", "segmented"):
        monkeypatch.setattr(backend, name, noted(name))
    case = make(rows, device=device)
    case.check(by_backend(case), torch.float32)
    assert seen == called


@pytest.mark.parametrize("count", [1, 33])
def test_as_many_rows_as_there_are(count: int, device: str) -> None:
    """33 decodes take a second union tile, and fill segments that no power of two counts."""
    case = make([(1 + 5 * row % 40, 1) for row in range(count)], kv_heads=1, device=device)
    for way in (by_backend, by_segments, by_union):
        case.check(way(case), torch.float32)
