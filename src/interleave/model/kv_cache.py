"""The KV pool's memory: keys and values of every layer, addressed by slot.

Block b of `block_tokens` positions is slots b * block_tokens .. (b + 1) * block_tokens. Heads come
before slots, so neighbouring blocks of one request read as one matrix per head. It does not know
who owns a block.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from interleave.model.config import ModelConfig


class KVCache:
    """k and v: [layers, kv_heads, num_blocks * block_tokens, head_dim], left uninitialised.

    group_size: query heads that read each KV head, for backends that cannot take any number.
    """

    def __init__(
        self,
        config: ModelConfig,
        num_blocks: int,
        block_tokens: int,
        dtype: torch.dtype,
        device: torch.device | str,
    ) -> None:
        self.num_blocks = num_blocks
        self.block_tokens = block_tokens
        self.group_size = config.group_size
        shape = (
            config.num_hidden_layers,
            config.num_key_value_heads,
            num_blocks * block_tokens,
            config.head_dim,
        )
        self.k = torch.empty(shape, dtype=dtype, device=device)
        self.v = torch.empty(shape, dtype=dtype, device=device)

    @property
    def nbytes(self) -> int:
        return self.k.nbytes + self.v.nbytes

    @property
    def bytes_per_token(self) -> int:
        return self.nbytes // (self.num_blocks * self.block_tokens)

    def write(self, layer: int, slots: Tensor, k: Tensor, v: Tensor) -> None:
        """Store k and v [n, kv_heads, head_dim] of one layer at int64 slots [n]."""
        self.k[layer].index_copy_(1, slots, k.transpose(0, 1))
        self.v[layer].index_copy_(1, slots, v.transpose(0, 1))

    def poison(self, blocks: list[int]) -> None:
        """Fill freed blocks with NaN, so that a read through a stale table cannot go unnoticed."""
        for block in blocks:
            start = block * self.block_tokens
            self.k[:, :, start : start + self.block_tokens] = math.nan
            self.v[:, :, start : start + self.block_tokens] = math.nan

    def move(self, source: int, target: int, num_tokens: int) -> None:
        """Copy the first `num_tokens` positions of block `source` over those of block `target`."""
        start, to = source * self.block_tokens, target * self.block_tokens
        self.k[:, :, to : to + num_tokens] = self.k[:, :, start : start + num_tokens]
        self.v[:, :, to : to + num_tokens] = self.v[:, :, start : start + num_tokens]
