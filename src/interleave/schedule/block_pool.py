"""Who owns which block of the KV pool. Does not know what a block holds, or for whom it is good.

Blocks are handed out lowest id first: a request that reserves many at once gets long contiguous
runs, which the attention backends read as one piece.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass


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
        self._free = list(range(num_blocks))
        self._owner: dict[int, str] = {}

    @property
    def num_free(self) -> int:
        return len(self._free)

    def allocate(self, count: int, owner: str) -> list[int]:
        """Give `count` free blocks to `owner`, lowest ids first. RuntimeError when there are too few."""
        if count > len(self._free):
            raise RuntimeError(f"{owner!r} asks for {count} blocks, {len(self._free)} are free")
        blocks = self._free[:count]
        del self._free[:count]
        self._owner.update(dict.fromkeys(blocks, owner))
        return blocks

    def free(self, blocks: list[int], owner: str) -> None:
        """Take `blocks` back from `owner`. RuntimeError, taking none, when one of them is not its own."""
        if not blocks:
            return
        own = self._owner
        if set(map(own.get, blocks)) != {owner} or len(set(blocks)) < len(blocks):
            self._refuse(blocks, owner)
        for block in blocks:
            del own[block]
        # The list stays in order: only the stretch that the returned ids fall into is sorted again.
        free = self._free
        low, high = bisect_left(free, min(blocks)), bisect_left(free, max(blocks))
        free[low:high] = sorted(free[low:high] + blocks)

    def _refuse(self, blocks: list[int], owner: str) -> None:
        seen: set[int] = set()
        for block in blocks:
            holder = None if block in seen else self._owner.get(block)
            if holder != owner:
                raise RuntimeError(f"block {block} belongs to {holder!r}, not to {owner!r}")
            seen.add(block)

    def check(self) -> PoolUse:
        """Assert conservation: each block is free or owned once, and none is lost."""
        free = set(self._free)
        if len(free) != len(self._free):
            raise AssertionError("a block is twice in the free list")
        if free & self._owner.keys():
            raise AssertionError(f"blocks both free and owned: {sorted(free & self._owner.keys())}")
        if len(free) + len(self._owner) != self.num_blocks:
            raise AssertionError(f"{len(free)} free + {len(self._owner)} owned != {self.num_blocks} blocks")
        return PoolUse(num_free=len(free), num_owned=len(self._owner))

    def owned_by(self, owner: str) -> list[int]:
        return sorted(block for block, name in self._owner.items() if name == owner)
