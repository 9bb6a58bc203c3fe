"""Pools with more elements than an int32 counts: blocks and heads that lie gigabytes apart.

Only the blocks in use are ever touched, so the address space is reserved and the memory is not.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="triton has wheels for Linux only")
from cases import Case, by_backend, by_segments, by_union, make

from interleave.model.ops import reference
from interleave.model.ops import triton as ops
from interleave_kernels.kv_write import kv_write

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="a GPU does not reserve addresses without memory: interpreter only"
)
BLOCK, DIM, FIRST_BLOCK, MOST_BLOCKS = 64, 64, 600_000, 64
KV_HEADS, GROUP, HEAD_STRIDE = 3, 2, 1_200_000_000
"""Elements from one KV head to the next: an int32 holds one stride, and not two. The first block in use
lies 2.4 billion behind its head."""
V_OFFSET = 4 * MOST_BLOCKS * BLOCK * DIM
assert HEAD_STRIDE < 2**31 < 2 * HEAD_STRIDE
assert FIRST_BLOCK * BLOCK * DIM > 2**31


class FarTensor(torch.Tensor):
    """The first element of a pool [kv_heads, slots, DIM] whose storage ends right there.

    Launchers ask for shapes and single strides and get the pool's; the interpreter, which copies
    whole storages, asks for all strides at once and gets those of the one element.
    """

    def stride(self, dim: int | None = None) -> int | tuple[int, ...]:
        return super().stride() if dim is None else (HEAD_STRIDE, DIM, 1)[dim]

    @property
    def shape(self) -> torch.Size:
        return torch.Size((KV_HEADS, (FIRST_BLOCK + MOST_BLOCKS) * BLOCK, DIM))


class FarLayers:
    """As a cache's tensor of all layers; the one layer is far."""

    def __init__(self, layer: Tensor, windows: Tensor) -> None:
        self.layer, self.windows = layer, windows
        self.shape = (1, *layer.shape)
        self.device, self.dtype, self.element_size = layer.device, layer.dtype, layer.element_size

    def __getitem__(self, _layer: int) -> Tensor:
        return self.layer


class FarCache:
    """A cache of three KV heads with the blocks FIRST_BLOCK .. FIRST_BLOCK + MOST_BLOCKS there."""

    block_tokens, group_size = BLOCK, GROUP

    def __init__(self) -> None:
        size = 2 * ((KV_HEADS - 1) * HEAD_STRIDE + (FIRST_BLOCK + MOST_BLOCKS) * BLOCK * DIM + 2 * V_OFFSET)
        private_not_reserved = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000
        try:
            self._room = mmap.mmap(-1, size, flags=private_not_reserved)
        except (OSError, ValueError) as error:
            pytest.skip(f"cannot reserve {size / 2**30:.0f} GiB of addresses: {error}")
        self.k, self.v = self._layers(0), self._layers(V_OFFSET)

    def _layers(self, offset: int) -> FarLayers:
        def window(at: int, count: int) -> Tensor:
            return torch.frombuffer(self._room, dtype=torch.float16, count=count, offset=2 * (offset + at))

        blocks = [
            window(head * HEAD_STRIDE + FIRST_BLOCK * BLOCK * DIM, MOST_BLOCKS * BLOCK * DIM)
            for head in range(KV_HEADS)
        ]
        for block in blocks:
            block.fill_(math.nan)
        self.windows = [block.view(-1, DIM) for block in blocks]
        return FarLayers(window(0, 1).as_subclass(FarTensor), self.windows)

    def write(self, _layer: int, slots: Tensor, k: Tensor, v: Tensor) -> None:
        kv_write(k, v, slots, self.k[0], self.v[0])


def far(rows: list[tuple[int, int]]) -> Case:
    """The case of these rows with its cache far away."""
    near = make(rows, group=GROUP, kv_heads=KV_HEADS, head_dim=DIM, block_tokens=BLOCK, dtype=torch.float16)
    cache = FarCache()
    for layers, source in ((cache.k, near.cache.k[0]), (cache.v, near.cache.v[0])):
        for window, head in zip(layers.windows, source, strict=True):
            window[: len(head)] = head
    batch = replace(
        near.batch,
        tables=near.batch.tables + FIRST_BLOCK,
        slots=near.batch.slots + FIRST_BLOCK * BLOCK,
    )
    return replace(near, cache=cache, batch=batch)


@pytest.mark.parametrize(
    ("rows", "way"),
    [
        ([(70, 1), (130, 1)], by_backend),
        ([(70, 20), (130, 3)], by_backend),
        ([(70, 1), (130, 30)], by_backend),
        ([(600, 1), (70, 66)], by_segments),
        ([(70, 1), (130, 1)], by_union),
    ],
    ids=["decode", "prefill", "mixed", "segments", "union"],
)
def test_attention_reaches_far_blocks(rows: list[tuple[int, int]], way: Callable[[Case], Tensor]) -> None:
    case = far(rows)
    case.check(way(case), torch.float16)


def test_rotating_and_writing_reaches_far_blocks() -> None:
    torch.manual_seed(0)
    cache = FarCache()
    qkv, angle = torch.randn(3, 8, DIM).half(), torch.rand(3, DIM // 2)
    slots = torch.tensor([0, 70, MOST_BLOCKS * BLOCK - 1])
    near = torch.full((2, KV_HEADS, MOST_BLOCKS * BLOCK, DIM), math.nan, dtype=torch.float16)
    far_slots = slots + FIRST_BLOCK * BLOCK
    got = ops.rotate_and_write(qkv, angle.cos(), angle.sin(), far_slots, cache.k[0], cache.v[0])
    exact = reference.rotate_and_write(qkv, angle.cos(), angle.sin(), slots, near[0], near[1])
    assert torch.allclose(got, exact, atol=4 * 2.0**-10)
    for layers, expected in ((cache.k, near[0]), (cache.v, near[1])):
        assert torch.allclose(
            torch.stack(layers.windows), expected, atol=4 * 2.0**-10, rtol=0, equal_nan=True
        )
