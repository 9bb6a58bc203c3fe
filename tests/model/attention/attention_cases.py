"""Batches with a known answer: rows of any length in scattered blocks, and attention in float64."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from interleave.engine.build import attention_backend
from interleave.engine.executor import Attention
from interleave.model.attention.cpu import CpuAttention
from interleave.model.batch import PackedBatch, pack
from interleave.model.config import ModelConfig
from interleave.model.kv_cache import KVCache
from interleave.schedule.block_pool import need_blocks
from interleave.schedule.plan import Piece
from interleave.schedule.request import Request
from interleave.schedule.row import Row

LAYERS, LAYER = 3, 1
"""The layer in use has a neighbour on each side, which must stay as it is."""


@dataclass(frozen=True)
class Shape:
    """rows: (context_len, num_query) of each, the last num_query positions being new."""

    rows: tuple[tuple[int, int], ...]
    block_tokens: int = 16
    kv_heads: int = 2
    group: int = 3
    head_dim: int = 16
    scattered: bool = True
    walk_widest: bool = False
    spare_blocks: int = 3


@dataclass
class Built:
    cache: KVCache
    batch: PackedBatch
    q: Tensor
    k: Tensor
    v: Tensor
    expected: Tensor
    history: Tensor
    """Slots that held K and V before."""


def build(shape: Shape, seed: int = 0) -> Built:
    """Cache, batch, inputs and answer. All memory that nobody wrote is NaN."""
    generator = torch.Generator().manual_seed(seed)
    needs = [need_blocks(context, shape.block_tokens) for context, _ in shape.rows]
    ids = list(range(sum(needs) + shape.spare_blocks))
    if shape.scattered:
        random.Random(seed).shuffle(ids)
    heads = shape.kv_heads * shape.group
    cache = KVCache(_config(shape), len(ids), shape.block_tokens, torch.float32, "cpu")
    cache.k.fill_(math.nan)
    cache.v.fill_(math.nan)
    pieces, history, new_k, new_v, new_q, answers = [], [], [], [], [], []
    for index, (context, num_query) in enumerate(shape.rows):
        blocks = [ids.pop() for _ in range(needs[index])]
        if not shape.scattered:
            blocks.reverse()
        row = Row(Request(f"r{index}", range(context), 1), blocks, 0, prefill_target=context)
        start = context - num_query
        pieces.append(Piece(row, start, num_query))
        k, v = torch.randn(2, context, shape.kv_heads, shape.head_dim, generator=generator)
        q = torch.randn(num_query, heads, shape.head_dim, generator=generator)
        slots = [
            blocks[p // shape.block_tokens] * shape.block_tokens + p % shape.block_tokens
            for p in range(start)
        ]
        cache.k[LAYER][:, slots] = k[:start].transpose(0, 1)
        cache.v[LAYER][:, slots] = v[:start].transpose(0, 1)
        history += slots
        new_q.append(q)
        new_k.append(k[start:])
        new_v.append(v[start:])
        answers.append(attention_in_float64(q, k, v))
    batch = pack(pieces, lambda row: row.blocks, shape.block_tokens, "cpu", shape.walk_widest)
    return Built(
        cache,
        batch,
        torch.cat(new_q),
        torch.cat(new_k),
        torch.cat(new_v),
        torch.cat(answers),
        torch.tensor(history, dtype=torch.int64),
    )


def attention_in_float64(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The last positions of a sequence over all of it: a loop over queries and heads, nothing else."""
    q, k, v = q.double(), k.double(), v.double()
    n, heads, dim = q.shape
    share = heads // k.shape[1]
    out = torch.empty_like(q)
    for index in range(n):
        seen = len(k) - n + index + 1
        for head in range(heads):
            scores = k[:seen, head // share] @ q[index, head] / math.sqrt(dim)
            out[index, head] = scores.softmax(0) @ v[:seen, head // share]
    return out


def make(backend: str, cache: KVCache) -> Attention:
    """A backend of the engines, or `portable`: what `cpu` is on a machine without explicit vectors."""
    return CpuAttention(cache) if backend == "portable" else attention_backend(backend, cache)


def run(backend: str, built: Built) -> Tensor:
    """One layer of one forward. K and V come as strided views, as they do out of a fused QKV product."""
    attention = make(backend, built.cache)
    attention.plan(built.batch)
    fused = torch.cat((built.q, built.k, built.v), dim=1)
    heads, kv_heads = built.q.shape[1], built.k.shape[1]
    _, k, v = fused.split([heads, kv_heads, kv_heads], dim=1)
    return attention.run(LAYER, built.q, k, v)


def ragged(contexts: Sequence[int], num_query: int = 1) -> tuple[tuple[int, int], ...]:
    return tuple((context, min(num_query, context)) for context in contexts)


def _config(shape: Shape) -> ModelConfig:
    return ModelConfig(
        vocab_size=8,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=LAYERS,
        num_attention_heads=shape.kv_heads * shape.group,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        rms_norm_eps=1e-5,
        rope_theta=1e4,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        qkv_bias=False,
    )
