"""Prefill as a left-padded dense group through a throwaway cache: the baselines' way.

Every row of the group is as wide as the widest prompt, and the padding is really computed. The
keys and values of all layers are kept until the forward ends and then copied to where decode
reads them. The published paged engine works like this.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from interleave.engine.torch_attention import grouped_sdpa
from interleave.model.decoder import Decoder
from interleave.model.kv_cache import KVCache
from interleave.schedule.plan import Forward


@dataclass(slots=True)
class DenseGroup:
    """last_hidden: [rows, hidden] at each row's last position; k, v: [layers, rows, kv_heads, width, dim]."""

    last_hidden: Tensor
    k: Tensor
    v: Tensor
    pads: list[int]


def dense_prefill(decoder: Decoder, group: Forward) -> DenseGroup:
    """Run whole prompts side by side, each padded on the left to the widest."""
    config, device = decoder.config, decoder.device
    rows, width = len(group), max(piece.num_tokens for piece in group)
    pads = [width - piece.num_tokens for piece in group]
    tokens = np.zeros((rows, width), dtype=np.int64)
    for index, piece in enumerate(group):
        tokens[index, pads[index] :] = piece.row.tokens_between(piece.start, piece.stop)
    pad = torch.tensor(pads, device=device)[:, None]
    column = torch.arange(width, device=device)[None]
    positions = (column - pad).clamp(min=0)
    mask = _mask(pad, column, decoder.dtype) if any(pads) else None
    shape = (config.num_hidden_layers, rows, config.num_key_value_heads, width, config.head_dim)
    keys = torch.empty(shape, dtype=decoder.dtype, device=device)
    values = torch.empty_like(keys)

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys[layer] = k.view(rows, width, *k.shape[1:]).transpose(1, 2)
        values[layer] = v.view(rows, width, *v.shape[1:]).transpose(1, 2)
        queries = q.view(rows, -1, *q.shape[1:]).transpose(1, 2)
        count = queries.shape[2]  # the whole width, or in the last layer each row's last position
        visible = None if mask is None else mask[:, :, -count:]
        causal = mask is None and count == width
        context = grouped_sdpa(queries, keys[layer], values[layer], visible, causal)
        return context.transpose(1, 2).reshape(q.shape)

    last = torch.arange(1, rows + 1, device=device) * width - 1
    ids = torch.from_numpy(tokens).to(device).view(-1)
    return DenseGroup(decoder.forward(ids, positions.reshape(-1), attend, last), keys, values, pads)


def _mask(pad: Tensor, column: Tensor, dtype: torch.dtype) -> Tensor:
    """Additive [rows, 1, width, width]: causal, no padding; a pad position sees itself, to stay finite."""
    query, key = column.view(1, -1, 1), column.view(1, 1, -1)
    visible = (key <= query) & ((key >= pad[:, :, None]) | (key == query))
    blank = torch.zeros(visible.shape, dtype=dtype, device=pad.device)
    return blank.masked_fill(~visible, -math.inf)[:, None]


def copy_into(cache: KVCache, group: Forward, dense: DenseGroup, tables: list[list[int]]) -> int:
    """Copy each row's K and V, without its padding, to its blocks. Returns positions copied."""
    size = cache.block_tokens
    for index, (piece, table) in enumerate(zip(group, tables, strict=True)):
        position = np.arange(piece.start, piece.stop)
        slots = np.asarray(table)[position // size] * size + position % size
        at = torch.from_numpy(slots).to(cache.k.device)
        cache.k.index_copy_(2, at, dense.k[:, index, :, dense.pads[index] :])
        cache.v.index_copy_(2, at, dense.v[:, index, :, dense.pads[index] :])
    return sum(piece.num_tokens for piece in group)
