"""One decoder for the Llama and Qwen2 family, over packed positions.

It does not know about requests, blocks or batches: attention is an argument, a callable that gets
this forward's rotated queries, keys and values layer by layer and answers with the context, or a
place in a cache and a callable that reads keys and values there.
Architecture: Llama (Touvron et al., 2023) and Qwen2 (Yang et al., 2024).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import torch
from torch import Tensor

from interleave.model.config import ModelConfig
from interleave.model.kv_cache import KVCache
from interleave.model.ops import reference
from interleave.model.weights import Weights, pack_weights, step_bytes, weight_bytes

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, q [m, heads, head_dim], k and v [n, kv_heads, head_dim]) -> [m, heads, head_dim].

m is n, but in the last layer of a forward that is asked for fewer positions than it is given.
"""


@dataclass(frozen=True, slots=True)
class InPlace:
    """Keys and values go to `cache` at int64 slots [n] as they are rotated; `attend` finds them there.

    attend: (layer, q [m, heads, head_dim]) -> [m, heads, head_dim], with m as in `Attend`.
    """

    cache: KVCache
    slots: Tensor
    attend: Callable[[int, Tensor], Tensor]


class Decoder:
    """RMSNorm, RoPE, grouped-query attention and SwiGLU; `ops` is the module that computes them."""

    def __init__(self, config: ModelConfig, weights: Weights, ops: ModuleType = reference) -> None:
        self.config = config
        self.weights = weights
        self._packed = pack_weights(weights, ops.pack)
        self.ops = ops
        self.device = weights.embed.device
        self.dtype = weights.embed.dtype
        self._cos, self._sin = reference.rope_table(config, self.device)

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights in every layout that is kept."""
        return weight_bytes(self.weights, self._packed)

    @property
    def step_weight_bytes(self) -> int:
        """Bytes of the weights that one step reads, as stored."""
        return step_bytes(self._packed)

    @torch.inference_mode()
    def forward(
        self, tokens: Tensor, positions: Tensor, attend: Attend | InPlace, wanted: Tensor | None = None
    ) -> Tensor:
        """Hidden states after the final norm, for int64 tokens and positions [n].

        wanted: the packed indices [m] of those that are asked for, None for all. Nothing reads the last
        layer's output at the others, so they get keys and values there and no more.
        """
        config, ops = self.config, self.ops
        heads, kv_heads, dim = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        cos, sin = self._cos[positions], self._sin[positions]
        residual, delta = self.weights.embed[tokens], None
        for index, layer in enumerate(self._packed.layers):
            residual, x = ops.add_norm(residual, delta, layer.input_norm, config.rms_norm_eps)
            qkv = ops.linear(x, layer.qkv, layer.qkv_bias).view(-1, heads + 2 * kv_heads, dim)
            few = wanted if index == len(self._packed.layers) - 1 else None
            residual = residual if few is None else residual[few]
            if isinstance(attend, InPlace):
                keys, values = attend.cache.k[index], attend.cache.v[index]
                q = ops.rotate_and_write(qkv, cos, sin, attend.slots, keys, values)
                context = attend.attend(index, q if few is None else q[few])
            else:
                qkv = ops.rotate(qkv, cos, sin, heads + kv_heads)
                q, k, v = qkv.split([heads, kv_heads, kv_heads], dim=1)
                context = attend(index, q if few is None else q[few], k, v)
            delta = ops.linear(context.reshape(-1, heads * dim), layer.o)
            residual, x = ops.add_norm(residual, delta, layer.post_norm, config.rms_norm_eps)
            delta = ops.linear(ops.gated(x, layer.gate_up), layer.down)
        return ops.add_norm(residual, delta, self.weights.final_norm, config.rms_norm_eps)[1]

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """LM head on the rows that will be sampled: [rows, hidden] -> [rows, vocab], float32."""
        return self.ops.linear(hidden, self._packed.head)[:, : self.config.vocab_size].float()
