"""The Triton attention kernels against the reference backend, over odd shapes and poisoned memory."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interleave.engine.build import build_engine
from interleave.engine.loop import serve
from interleave.lab.gate import usable_backends
from interleave.model.attention.reference import ReferenceAttention
from interleave.model.batch import PackedBatch, pack
from interleave.model.config import ModelConfig
from interleave.model.decoder import Decoder
from interleave.model.kv_cache import KVCache
from interleave.model.ops import reference
from interleave.model.sources import load_model
from interleave.model.weights import random_weights
from interleave.schedule.plan import Piece
from interleave.schedule.request import Request
from interleave.schedule.row import Row

pytest.importorskip("triton", reason="triton has wheels for Linux only")
from interleave.model.attention.triton import TritonAttention

TOLERANCE = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}
"""Largest |difference| for values of order one: rounding of the type, not more."""


def config_of(heads: int, kv_heads: int, head_dim: int) -> ModelConfig:
    return ModelConfig(97, heads * head_dim, 96, 1, heads, kv_heads, head_dim, 1e-5, 1e4, 8192, True, False)


def filled_cache(
    config: ModelConfig, rows: Sequence[tuple[int, int]], block_tokens: int, dtype: torch.dtype, device: str
) -> tuple[KVCache, list[Piece]]:
    """Rows of (context, query positions) over shuffled blocks; all that no row has written is NaN."""
    needs = [-(-context // block_tokens) for context, _ in rows]
    ids = list(range(sum(needs) + 2))
    random.Random(0).shuffle(ids)
    cache = KVCache(config, len(ids), block_tokens, dtype, device)
    cache.k.fill_(math.nan)
    cache.v.fill_(math.nan)
    pieces = []
    for index, ((context, queries), need) in enumerate(zip(rows, needs, strict=True)):
        blocks = [ids.pop() for _ in range(need)]
        row = Row(Request(str(index), range(context), 1), blocks, 0, context)
        pieces.append(Piece(row, context - queries, queries))
        for position in range(context - queries):
            slot = blocks[position // block_tokens] * block_tokens + position % block_tokens
            cache.k[:, :, slot] = torch.randn(config.num_key_value_heads, config.head_dim).to(cache.k)
            cache.v[:, :, slot] = torch.randn(config.num_key_value_heads, config.head_dim).to(cache.k)
    return cache, pieces


def both(
    config: ModelConfig, cache: KVCache, batch: PackedBatch, dtype: torch.dtype, device: str
) -> tuple[torch.Tensor, torch.Tensor]:
    n, kv_heads = len(batch.tokens), config.num_key_value_heads
    q = torch.randn(n, config.num_attention_heads, config.head_dim).to(device, dtype)
    k = torch.randn(n, kv_heads, config.head_dim).to(device, dtype)
    v = torch.randn(n, kv_heads, config.head_dim).to(device, dtype)
    outs = []
    for backend in (TritonAttention(cache), ReferenceAttention(cache)):
        backend.plan(batch)
        outs.append(backend.run(0, q, k, v).float())
    return outs[0], outs[1]


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim"), [(9, 3, 64), (12, 2, 128), (8, 1, 64), (4, 4, 64)]
)
def test_decodes_and_chunks_agree_with_the_reference(
    heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype, device: str
) -> None:
    if dtype == torch.bfloat16 and device == "cpu":
        pytest.skip("Triton's interpreter multiplies the bit patterns of bfloat16 as integers in tl.dot")
    torch.manual_seed(0)
    config = config_of(heads, kv_heads, head_dim)
    rows = [(1, 1), (64, 1), (65, 1), (40, 40), (100, 33), (90, 65), (530, 1)]
    cache, pieces = filled_cache(config, rows, 16, dtype, device)
    ours, expected = both(config, cache, pack(pieces, lambda row: row.blocks, 16, device), dtype, device)
    assert (ours - expected).abs().max() <= TOLERANCE[dtype]


@settings(deadline=None, max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    group=st.integers(1, 8),
    kv_heads=st.integers(1, 3),
    block_tokens=st.sampled_from([1, 16, 24, 128]),
    rows=st.lists(
        st.integers(1, 100).flatmap(lambda context: st.tuples(st.just(context), st.integers(1, context))),
        min_size=1,
        max_size=4,
    ),
)
def test_any_shape_agrees_with_the_reference(
    group: int, kv_heads: int, block_tokens: int, rows: list[tuple[int, int]], device: str
) -> None:
    torch.manual_seed(0)
    config = config_of(group * kv_heads, kv_heads, 16)
    cache, pieces = filled_cache(config, rows, block_tokens, torch.float32, device)
    batch = pack(pieces, lambda row: row.blocks, block_tokens, device)
    ours, expected = both(config, cache, batch, torch.float32, device)
    assert (ours - expected).abs().max() <= TOLERANCE[torch.float32]


def test_a_span_wider_than_the_context_changes_nothing(device: str) -> None:
    torch.manual_seed(0)
    config = config_of(6, 2, 64)
    cache, pieces = filled_cache(config, [(5, 1), (600, 1), (64, 1)], 608, torch.float32, device)
    batch = pack(pieces, lambda row: row.blocks, 608, device, walk_widest=True)
    ours, expected = both(config, cache, batch, torch.float32, device)
    assert (ours - expected).abs().max() <= TOLERANCE[torch.float32]


@pytest.mark.parametrize("name", ["chunked", "mixed", "continuous", "recorded"])
def test_an_engine_on_the_kernels_generates_the_tokens_of_cached(name: str, device: str) -> None:
    decoder = load_model("tiny-gqa3", device=device).decoder
    rng = random.Random(0)
    vocabulary = decoder.config.vocab_size
    requests = [
        Request(str(i), [rng.randrange(vocabulary) for _ in range(length)], 4)
        for i, length in enumerate((5, 33, 70))
    ]

    def tokens(engine: str, backend: str | None) -> list[list[int]]:
        built = build_engine(
            engine,
            decoder,
            max_rows=2,
            chunk_budget=32,
            block_tokens=16,
            max_request_tokens=80,
            backend=backend,
            warm_up=False,
        )
        return [record.tokens for record in serve(built, requests).requests]

    assert tokens(name, "triton") == tokens("cached", None)


@pytest.mark.parametrize("group", [16, 17])
def test_more_heads_a_group_than_a_tile_holds_are_refused_when_an_engine_is_built(
    group: int, device: str
) -> None:
    """At the most that is allowed a step of decodes and a chunk, which takes the narrow tiles, computes."""
    config = config_of(group, 1, 16)
    decoder = Decoder(config, random_weights(config, device=device), reference)
    if group == 17:
        with pytest.raises(ValueError, match=r"at most 16 query heads per KV head, got 17; use the backend"):
            build_engine("mixed", decoder, num_blocks=8, backend="triton")
        usable, refused = usable_backends(decoder)
        assert "reference" in usable
        assert "got 17" in refused["triton"]
        return
    answers = []
    for backend in ("triton", "reference"):
        engine = build_engine(
            "mixed",
            decoder,
            max_rows=2,
            chunk_budget=8,
            max_request_tokens=32,
            backend=backend,
            warm_up=False,
        )
        log = serve(engine, [Request("a", range(5), 4), Request("b", range(20), 4)])
        answers.append([record.tokens for record in log.requests])
    assert answers[0] == answers[1]
