"""The tensors of a decoder, fused as the decoder uses them, and weights made from a seed.

Loaders for files live in `weights_gguf.py` and `weights_hf.py`; `load` in `sources.py` picks one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from interleave.model.config import ModelConfig


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


def random_weights(
    config: ModelConfig, seed: int = 0, dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> Weights:
    """Seeded normal weights (never zeros: zeros draw less power and flatter a timing run).

    Deviations of 1/sqrt(fan_in) keep activations of order one through any depth, so that the
    logits of a dummy model are finite in fp16 too. Norm weights lie near 1.
    """
    generator = torch.Generator(device="cpu").manual_seed(seed)

    def matrix(out_features: int, in_features: int) -> Tensor:
        w = torch.randn(out_features, in_features, generator=generator) / math.sqrt(in_features)
        return w.to(device=device, dtype=dtype)

    def norm() -> Tensor:
        w = 1.0 + 0.1 * torch.randn(config.hidden_size, generator=generator)
        return w.to(device=device, dtype=dtype)

    q_width = config.num_attention_heads * config.head_dim
    qkv_width = q_width + 2 * config.num_key_value_heads * config.head_dim
    embed = torch.randn(config.vocab_size, config.hidden_size, generator=generator).to(device, dtype)
    layers = []
    for _ in range(config.num_hidden_layers):
        bias = None
        if config.qkv_bias:
            bias = (0.1 * torch.randn(qkv_width, generator=generator)).to(device, dtype)
        layers.append(
            LayerWeights(
                input_norm=norm(),
                qkv=matrix(qkv_width, config.hidden_size),
                qkv_bias=bias,
                o=matrix(config.hidden_size, q_width),
                post_norm=norm(),
                gate_up=matrix(2 * config.intermediate_size, config.hidden_size),
                down=matrix(config.hidden_size, config.intermediate_size),
            )
        )
    head = embed if config.tie_word_embeddings else matrix(config.vocab_size, config.hidden_size)
    return Weights(embed=embed, layers=layers, final_norm=norm(), head=head)
