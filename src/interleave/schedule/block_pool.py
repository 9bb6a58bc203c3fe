"""Who owns which block of the KV pool. Does not know what a block holds, or for whom it is good.

Blocks are handed out lowest id first: a request that reserves many at once gets long contiguous
runs, which the attention backends read as one piece.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from operator import neg


def need_blocks(total_len: int, block_tokens: int) -> int:
    """Blocks that `total_len` positions take: ceil(total_len / block_tokens)."""
    return -(-total_len // block_tokens)


@dataclass(frozen=True, slots=True)
class PoolUse:
    """Blocks by state; they always add up to the size of the pool."""

    num_free: int
    num_owned: int


class BlockPool:
    """`num_blocks` blocks of `block_tokens` positions each."""

    def __init__(self, num_blocks: int, block_tokens: int) -> None:
        for name, value in (("num_blocks", num_blocks), ("block_tokens", block_tokens)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"block pool: {name} must be an integer of at least 1, got {value!r}")
        self.num_blocks = num_blocks
        self.block_tokens = block_tokens
        self.free_all()

    def free_all(self) -> None:
        """Every block is free, whoever owned it and whatever an interrupt left undone."""
        # In descending order: the lowest id stands last, where a list gives and takes cheaply.
        self._free = list(range(self.num_blocks - 1, -1, -1))
        self._held: dict[str, list[int]] = {}

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_owned(self) -> int:
        return self.num_blocks - len(self._free)

    def allocate(self, count: int, owner: str) -> list[int]:
        """Give `count` free blocks to `owner`, lowest ids first. RuntimeError when there are too few."""
        free = self._free
        left = len(free) - count
        if left < 0:
            raise RuntimeError(f"{owner!r} asks for {count} blocks, {len(free)} are free")
        blocks = free[left:]
        blocks.reverse()
        del free[left:]
        self._held[owner] = self._held.get(owner, []) + blocks
        return blocks

    def free(self, blocks: list[int], owner: str) -> None:
        """Take `blocks` back from `owner`. RuntimeError, taking none, when one of them is not its own."""
        if not blocks:
            return
        held = self._held.get(owner)
        if held == blocks:
            del self._held[owner]
        else:
            self._take(blocks, owner, held or [])
        # The list stays in order: only the stretch that the returned ids fall into is sorted again.
        free = self._free
        low = bisect_left(free, -max(blocks), key=neg)
        high = bisect_left(free, -min(blocks), key=neg)
        free[low:high] = sorted(free[low:high] + blocks, reverse=True)

    def _take(self, blocks: list[int], owner: str, held: list[int]) -> None:
        """Some of what an owner holds, or in another order."""
        left = list(held)
        for block in blocks:
            if block not in left:
                holder = next((name for name, others in self._held.items() if block in others), None)
                holder = None if holder == owner else holder  # given back twice
                raise RuntimeError(f"block {block} belongs to {holder!r}, not to {owner!r}")
            left.remove(block)
        self._held[owner] = left
        if not left:
            del self._held[owner]

    def check(self) -> PoolUse:
        """Assert conservation: each block is free or owned once, and none is lost."""
        free = set(self._free)
        if len(free) != len(self._free):
            raise AssertionError("a block is twice in the free list")
        held = [block for blocks in self._held.values() for block in blocks]
        owned = set(held)
        if len(owned) != len(held):
            raise AssertionError("a block is owned twice")
        if free & owned:
            raise AssertionError(f"blocks both free and owned: {sorted(free & owned)}")
        if len(free) + len(owned) != self.num_blocks:
            raise AssertionError(f"{len(free)} free + {len(owned)} owned != {self.num_blocks} blocks")
        return PoolUse(num_free=len(free), num_owned=len(owned))

    def owned_by(self, owner: str) -> list[int]:
        return sorted(self._held.get(owner, []))
