"""The tensors of a decoder, fused as the decoder uses them, and weights made from a seed.

Loaders for files live in `weights_gguf.py` and `weights_hf.py`; `load_model` in `sources.py` picks one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from interleave.model.config import ModelConfig

HEAD_TILE = 64
"""Rows of the head that a matrix product treats alike; a multiple of the tiles in use (4 to 64)."""


@dataclass(slots=True)
class LayerWeights:
    """One layer. Matrices are [out_features, in_features], as in `F.linear`.

    qkv: [(heads + 2 * kv_heads) * head_dim, hidden], rows in the order Q, K, V.
    gate_up: [2 * intermediate, hidden], gate rows first.
    """

    input_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    o: Tensor
    post_norm: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(slots=True)
class Weights:
    """embed: [vocab, hidden]; head: [vocab, hidden], the same tensor as `embed` when tied."""

    embed: Tensor
    layers: list[LayerWeights]
    final_norm: Tensor
    head: Tensor


def empty_weights(config: ModelConfig, dtype: torch.dtype, device: str) -> Weights:
    """Uninitialised tensors of the right shapes, for a loader to fill (or, on "meta", to compare)."""
    hidden, q_width = config.hidden_size, config.num_attention_heads * config.head_dim
    qkv_width = q_width + 2 * config.num_key_value_heads * config.head_dim

    def empty(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    embed = empty(config.vocab_size, hidden)
    layers = [
        LayerWeights(
            input_norm=empty(hidden),
            qkv=empty(qkv_width, hidden),
            qkv_bias=empty(qkv_width) if config.qkv_bias else None,
            o=empty(hidden, q_width),
            post_norm=empty(hidden),
            gate_up=empty(2 * config.intermediate_size, hidden),
            down=empty(hidden, config.intermediate_size),
        )
        for _ in range(config.num_hidden_layers)
    ]
    head = embed if config.tie_word_embeddings else empty(config.vocab_size, hidden)
    return Weights(embed=embed, layers=layers, final_norm=empty(hidden), head=head)


def pack_weights(weights: Weights, pack: Callable[[Tensor], Any]) -> Weights:
    """The same weights with every matrix of a linear layer as `pack` lays it out for its `linear`.

    A tied head becomes a matrix of its own: the embedding is read by rows and stays as it is. Its
    rows are filled up with zeros to whole tiles, so that equal rows give equal logits: what is left
    beyond the last tile, a matrix product may add up in another order than the rest.
    """
    num_missing = -len(weights.head) % HEAD_TILE
    head = F.pad(weights.head, (0, 0, 0, num_missing)) if num_missing else weights.head
    return Weights(
        embed=weights.embed,
        layers=[
            replace(
                layer,
                qkv=pack(layer.qkv),
                o=pack(layer.o),
                gate_up=pack(layer.gate_up),
                down=pack(layer.down),
            )
            for layer in weights.layers
        ],
        final_norm=weights.final_norm,
        head=pack(head),
    )


def weight_bytes(*sets: Weights) -> int:
    """Bytes of every distinct tensor in one or more sets of weights; a tied head counts once."""
    kept: list[Any] = []
    for weights in sets:
        kept += [weights.embed, weights.final_norm, weights.head]
        for layer in weights.layers:
            fields = (getattr(layer, name) for name in layer.__slots__)
            kept += [value for value in fields if value is not None]
    return sum({id(tensor): tensor.nbytes for tensor in kept}.values())


def step_bytes(packed: Weights) -> int:
    """Bytes of the weights that one step reads, as stored: all but the embedding's table. Of a matrix that is
    kept in several layouts, the smallest."""
    table = 0 if packed.head is packed.embed else packed.embed.nbytes
    several = [m for layer in packed.layers for m in (layer.qkv, layer.o, layer.gate_up, layer.down)]
    unread = sum(m.nbytes - getattr(m, "read_nbytes", m.nbytes) for m in (*several, packed.head))
    return weight_bytes(packed) - table - unread


def random_weights(
    config: ModelConfig, seed: int = 0, dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> Weights:
    """Seeded normal weights (never zeros: zeros draw less power and flatter a timing run).

    Deviations of 1/sqrt(fan_in) keep activations of order one through any depth, so that the
    logits of a dummy model are finite in fp16 too. Norm weights lie near 1.
    """
    generator = torch.Generator(device="cpu").manual_seed(seed)
    weights = empty_weights(config, dtype, device)

    def fill(target: Tensor, deviation: float, mean: float = 0.0) -> None:
        target.copy_(mean + deviation * torch.randn(target.shape, generator=generator))

    def fill_matrix(target: Tensor) -> None:
        fill(target, 1.0 / math.sqrt(target.shape[1]))

    fill(weights.embed, 1.0)
    for layer in weights.layers:
        for matrix in (layer.qkv, layer.o, layer.gate_up, layer.down):
            fill_matrix(matrix)
        for norm in (layer.input_norm, layer.post_norm):
            fill(norm, 0.1, mean=1.0)
        if layer.qkv_bias is not None:
            fill(layer.qkv_bias, 0.1)
    fill(weights.final_norm, 0.1, mean=1.0)
    if not config.tie_word_embeddings:
        fill_matrix(weights.head)
    return weights
