"""`cpu`, its portable form and `reference` against attention written out in float64, on batches of every kind."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from attention_cases import LAYER, LAYERS, Shape, build, make, ragged, run
from hypothesis import given, settings
from hypothesis import strategies as st

from interleave.model.attention.cpu import contiguous_runs

EVERY_BACKEND = pytest.mark.parametrize("backend", ["cpu", "portable", "reference"])
TOLERANCE = 2e-5
"""On values of order one, over contexts of a few hundred positions."""


def assert_right(backend: str, shape: Shape, seed: int = 0) -> None:
    """The context, the K and V written, and that nothing else in the cache changed."""
    built = build(shape, seed)
    before_k, before_v = built.cache.k.clone(), built.cache.v.clone()
    out = run(backend, built)
    assert out.shape == built.expected.shape
    assert out.dtype == torch.float32
    assert (out - built.expected).abs().max() < TOLERANCE
    before_k[LAYER][:, built.batch.slots] = built.k.transpose(0, 1)
    before_v[LAYER][:, built.batch.slots] = built.v.transpose(0, 1)
    assert torch.equal(built.cache.k.nan_to_num(7.0), before_k.nan_to_num(7.0))
    assert torch.equal(built.cache.v.nan_to_num(7.0), before_v.nan_to_num(7.0))
    assert set(built.history.tolist()).isdisjoint(built.batch.slots.tolist())


@EVERY_BACKEND
@pytest.mark.parametrize("head_dim", [16, 64, 80, 128])
@pytest.mark.parametrize("group", range(1, 9))
def test_query_heads_per_kv_head(backend: str, group: int, head_dim: int) -> None:
    rows = ((40, 1), (33, 9), (7, 7), (17, 1))
    assert_right(backend, Shape(rows, kv_heads=2, group=group, head_dim=head_dim))


@EVERY_BACKEND
@pytest.mark.parametrize("block_tokens", [1, 2, 3, 7, 16, 64, 128])
def test_block_sizes(backend: str, block_tokens: int) -> None:
    assert_right(backend, Shape(((130, 1), (129, 40), (65, 65), (1, 1)), block_tokens=block_tokens))


@EVERY_BACKEND
@pytest.mark.parametrize("context", [1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129])
def test_lengths_around_block_edges(backend: str, context: int) -> None:
    """A decode, a whole prompt, and chunks that begin or end next to an edge."""
    queries = sorted(
        {1, context, min(2, context), max(1, context - 1), min(16, context), max(1, context // 2)}
    )
    for num_query in queries:
        assert_right(backend, Shape(((context, num_query),), block_tokens=16))


@EVERY_BACKEND
@pytest.mark.parametrize("num_rows", [1, 2, 8, 31, 32, 33])
def test_row_counts(backend: str, num_rows: int) -> None:
    contexts = [1 + 13 * n % 90 for n in range(num_rows)]
    assert_right(backend, Shape(ragged(contexts)))


@EVERY_BACKEND
@pytest.mark.parametrize("order", ["decodes first", "chunks first", "alternating"])
def test_decodes_and_chunks_in_one_forward(backend: str, order: str) -> None:
    decodes, chunks = [(30, 1), (1, 1), (64, 1)], [(70, 20), (16, 16), (90, 2)]
    rows = {
        "decodes first": decodes + chunks,
        "chunks first": chunks + decodes,
        "alternating": [row for pair in zip(decodes, chunks, strict=True) for row in pair],
    }[order]
    assert_right(backend, Shape(tuple(rows)))


@EVERY_BACKEND
def test_a_chunk_over_fragments(backend: str) -> None:
    """Thirty blocks of history in random order, so that hardly two neighbours can be read as one."""
    assert_right(backend, Shape(((140, 20),), block_tokens=4))
    assert_right(backend, Shape(((140, 20),), block_tokens=4, scattered=False))


@EVERY_BACKEND
@pytest.mark.parametrize(
    "rows", [((3, 1), (100, 1), (40, 1)), ((3, 1), (100, 60), (40, 7)), ((5, 5), (64, 1))]
)
def test_spans_wider_than_contexts(backend: str, rows: tuple[tuple[int, int], ...]) -> None:
    """Positions beyond a row's context are walked and weigh nothing, though NaN lies there."""
    assert_right(backend, Shape(rows, block_tokens=128, walk_widest=True))
    assert_right(backend, Shape(rows, block_tokens=16, walk_widest=True))
    assert_right(backend, Shape(rows, block_tokens=16, walk_widest=True, head_dim=64))


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    contexts = draw(st.lists(st.integers(1, 90), min_size=1, max_size=5))
    rows = tuple((n, draw(st.sampled_from([1, n, 1 + n // 2]) | st.integers(1, n))) for n in contexts)
    return Shape(
        rows,
        block_tokens=draw(st.integers(1, 128)),
        kv_heads=draw(st.integers(1, 3)),
        group=draw(st.integers(1, 8)),
        head_dim=draw(st.sampled_from([16, 64, 128])),
        scattered=draw(st.booleans()),
        walk_widest=draw(st.booleans()),
        spare_blocks=draw(st.integers(0, 3)),
    )


@EVERY_BACKEND
@settings(max_examples=60, deadline=None)
@given(shape=shapes(), seed=st.integers(0, 99))
def test_any_shape(backend: str, shape: Shape, seed: int) -> None:
    assert_right(backend, shape, seed)


@settings(max_examples=40, deadline=None)
@given(shape=shapes(), seed=st.integers(0, 99))
def test_the_fast_backend_is_the_twin_of_the_slow_one(shape: Shape, seed: int) -> None:
    """Closer to each other than to float64: both round in float32."""
    fast, slow = run("cpu", build(shape, seed)), run("reference", build(shape, seed))
    assert (fast - slow).abs().max() < TOLERANCE / 2


@EVERY_BACKEND
@pytest.mark.parametrize("rows", [((500, 300), (400, 1)), ((130, 1), (300, 128), (257, 129))])
def test_chunks_over_several_tiles(backend: str, rows: tuple[tuple[int, int], ...]) -> None:
    """More queries than a tile takes, more history than a tile of keys, a causal edge inside a tile."""
    assert_right(backend, Shape(rows, head_dim=64))
    assert_right(backend, Shape(rows, block_tokens=64, kv_heads=1, group=7))


@EVERY_BACKEND
def test_large_scores_do_not_overflow(backend: str) -> None:
    """Scores in the thousands: a softmax without its maximum would be infinite."""
    built = build(Shape(((60, 1), (50, 20))))
    built.q *= 1000.0
    out = run(backend, built)
    assert torch.isfinite(out).all()
    largest = torch.cat((built.v.flatten(), built.cache.v[LAYER][:, built.history].flatten())).abs().max()
    assert out.abs().max() <= largest * (1 + 1e-5)


@EVERY_BACKEND
def test_layers_are_separate_and_one_plan_serves_them_all(backend: str) -> None:
    """The same blocks hold other K and V in every layer."""
    layers = [build(Shape(((20, 1), (33, 12))), seed=5) for _ in range(LAYERS)]
    generator = torch.Generator().manual_seed(1)
    cache = layers[0].cache
    for layer, built in enumerate(layers):
        # Turning keys, values and queries about by one rotation turns the answer's values about too.
        turn = torch.linalg.qr(torch.randn(16, 16, generator=generator)).Q
        built.q, built.k, built.v = built.q @ turn, built.k @ turn, built.v @ turn
        built.expected = built.expected @ turn.double()
        cache.k[layer] = built.cache.k[LAYER] @ turn
        cache.v[layer] = built.cache.v[LAYER] @ turn
    attention = make(backend, cache)
    attention.plan(layers[0].batch)
    for layer, built in enumerate(layers):
        out = attention.run(layer, built.q, built.k, built.v)
        assert (out - built.expected).abs().max() < TOLERANCE


@EVERY_BACKEND
@pytest.mark.parametrize("rows", [((40, 1), (70, 20), (16, 16), (90, 2)), ((300, 250),), ((1, 1), (129, 1))])
@pytest.mark.parametrize("walk_widest", [False, True])
def test_queries_of_last_positions_only(
    backend: str, rows: tuple[tuple[int, int], ...], walk_widest: bool
) -> None:
    """The last layer's way: K and V of all new positions are written, each row attends from its last."""
    built = build(Shape(rows, head_dim=64, walk_widest=walk_widest))
    last = torch.tensor(built.batch.query_starts[1:] - 1)
    attention = make(backend, built.cache)
    attention.plan(built.batch)
    attention.run(0, built.q, built.k, built.v)
    attention.plan(built.batch.last_queries())
    out = attention.run(LAYER, built.q[last], built.k, built.v)
    assert (out - built.expected[last]).abs().max() < TOLERANCE
    assert torch.equal(built.cache.k[LAYER][:, built.batch.slots], built.k.transpose(0, 1))
    assert torch.equal(built.cache.v[LAYER][:, built.batch.slots], built.v.transpose(0, 1))


@given(
    st.integers(1, 9),
    st.permutations(range(12)),
    st.integers(0, 12),
    st.integers(0, 8),
)
def test_contiguous_runs_cover_each_position_once(
    block_tokens: int, ids: list[int], num_blocks: int, short: int
) -> None:
    num_tokens = max(0, num_blocks * block_tokens - short)
    table = np.array(ids)
    runs = contiguous_runs(table, num_tokens, block_tokens)
    slots = [slot for start, stop in runs for slot in range(start, stop)]
    expected = [ids[p // block_tokens] * block_tokens + p % block_tokens for p in range(num_tokens)]
    assert slots == expected
    assert all(before[1] != after[0] for before, after in itertools.pairwise(runs)), "not joined"


def test_the_kernel_leaves_torch_its_threads() -> None:
    """Numba's first launch sets the thread count of the OpenMP that both share; a fresh process shows it."""
    code = (
        "import torch\n"
        "from attention_cases import Shape, build, run\n"
        "run('cpu', build(Shape(((40, 1), (30, 1)))))\n"
        "print(torch.get_num_threads())"
    )
    here = Path(__file__).resolve()
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{here.parents[3] / 'src'}:{here.parent}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "1"
