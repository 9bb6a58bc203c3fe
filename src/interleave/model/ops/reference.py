"""Plain torch versions of every op of the decoder: the slow, obvious twins."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from interleave.model.config import Llama3Scaling, ModelConfig
from interleave.model.ops import finite


def rope_table(config: ModelConfig, device: torch.device) -> tuple[Tensor, Tensor]:
    """cos and sin, each [max_position_embeddings, head_dim / 2], float32 (Su et al., 2021)."""
    exponent = torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
    inverse_frequency = 1.0 / (config.rope_theta**exponent)
    if config.rope_scaling is not None:
        inverse_frequency = _llama3_frequencies(inverse_frequency, config.rope_scaling)
    angles = torch.outer(torch.arange(config.max_position_embeddings).float(), inverse_frequency)
    return angles.cos().to(device), angles.sin().to(device)


def _llama3_frequencies(inverse_frequency: Tensor, scaling: Llama3Scaling) -> Tensor:
    """Slow frequencies divided by `factor`, the band between blended (Llama 3.1, 2024)."""
    turns = scaling.original_max_position_embeddings * inverse_frequency / (2 * math.pi)
    band = scaling.high_freq_factor - scaling.low_freq_factor
    keep = ((turns - scaling.low_freq_factor) / band).clamp(0.0, 1.0)
    return keep * inverse_frequency + (1.0 - keep) * inverse_frequency / scaling.factor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / rms(x) * weight over the last axis; the mean square in float32 (Zhang & Sennrich, 2019)."""
    wide = x.float()
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * (wide * scale).to(x.dtype)


def add_norm(residual: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """(residual + delta, the RMS norm of that sum); without a delta the residual as it is."""
    if delta is not None:
        residual = residual + delta
    return residual, rms_norm(residual, weight, eps)


def rotate(qkv: Tensor, cos: Tensor, sin: Tensor, num_rotated: int) -> Tensor:
    """`rope` on the first `num_rotated` heads of [n, heads, head_dim]; the others stay."""
    return torch.cat((rope(qkv[:, :num_rotated], cos, sin), qkv[:, num_rotated:]), dim=1)


def rotate_and_write(
    qkv: Tensor, cos: Tensor, sin: Tensor, slots: Tensor, k_cache: Tensor, v_cache: Tensor
) -> Tensor:
    """The rotated queries of [n, heads + 2 * kv_heads, head_dim]; keys and values go to the caches.

    cos, sin: [n, head_dim / 2]; slots: int64 [n]; caches: [kv_heads, slots, head_dim].
    """
    kv_heads = k_cache.shape[0]
    heads = qkv.shape[1] - 2 * kv_heads
    q, k, v = rotate(qkv, cos, sin, heads + kv_heads).split([heads, kv_heads, kv_heads], dim=1)
    k_cache.index_copy_(1, slots, k.transpose(0, 1))
    v_cache.index_copy_(1, slots, v.transpose(0, 1))
    return q


def rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate [n, heads, head_dim] by cos and sin [n, head_dim / 2], halves paired as in GPT-NeoX."""
    first, second = x.chunk(2, dim=-1)
    cos, sin = cos[:, None, :].to(x.dtype), sin[:, None, :].to(x.dtype)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def swiglu(gate_up: Tensor) -> Tensor:
    """silu(gate) * up for [n, 2 * intermediate], gate first (Shazeer, 2020)."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up


def pack(weight: Tensor) -> Tensor:
    """[out, in] -> whatever `linear` takes: here the matrix itself."""
    return weight


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [n, in] times weight [out, in] transposed."""
    return F.linear(x, weight, bias)


def greedy(logits: Tensor) -> Tensor:
    """Greedy token per row of [rows, vocab], int64; a tie goes to the lowest id. NOT_FINITE for a row
    that holds NaN or infinity. Nothing is read on the host."""
    return finite.only_finite(logits, logits.argmax(dim=-1))


def gated(x: Tensor, gate_up: Tensor) -> Tensor:
    """The first half of a SwiGLU layer: x [n, in] and a packed [2 * intermediate, in] -> [n, intermediate]."""
    return swiglu(linear(x, gate_up))
