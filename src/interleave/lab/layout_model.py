"""What one attention call over decode rows must move, compute and wait for, by layout. Torch-free.

A layout is a list of programs, each a walk over cached positions; what tells layouts apart is how many
there are and how long the longest is. The model counts bytes and FLOPs exactly and, for time, bounds
what any order of the programs can reach on a number of slots (Graham, 1969). It knows no clock rate
and no launch cost: its times are in positions walked, its ratios have no unit.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from interleave.lab.workload import published_draw


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """heads share kv_heads evenly; head_dim elements of `element_bytes` each a position and KV head."""

    heads: int
    kv_heads: int
    head_dim: int
    element_bytes: int = 2

    def __post_init__(self) -> None:
        for name in ("heads", "kv_heads", "head_dim", "element_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)!r}")
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} heads cannot share {self.kv_heads} KV heads evenly")

    @property
    def position_bytes(self) -> int:
        """Key and value of one position and KV head."""
        return 2 * self.head_dim * self.element_bytes


QWEN_1_5B = AttentionShape(heads=12, kv_heads=2, head_dim=128)
"""The published engine's model, Qwen2.5-1.5B in float16."""
A10_PROCESSORS = 72
"""Streaming multiprocessors of the published GPU (NVIDIA A10 data sheet)."""


@dataclass(frozen=True, slots=True)
class LayoutWork:
    """distinct_bytes: cache that has to be read at least once. requested_bytes: what the programs ask
    for; a cache may answer what several ask for. flops: computed; useful_flops: of them those that
    reach an output. walks: positions that each program walks, in the order they are launched.
    """

    distinct_bytes: int
    requested_bytes: int
    flops: int
    useful_flops: int
    walks: tuple[int, ...]

    @property
    def longest_walk(self) -> int:
        return max(self.walks)


def separate_rows(
    shape: AttentionShape, contexts: Sequence[int], query_tile: int = 32, walk_tile: int = 64
) -> LayoutWork:
    """Each row a query tile of its own, of which one query is real; a program a (row, head)."""
    lengths = _checked(contexts)
    walks = tuple(length for length in lengths for _ in range(shape.heads))
    return _work(shape, lengths, walks, shape.heads, query_tile, walk_tile)


def union_tiles(
    shape: AttentionShape, contexts: Sequence[int], query_tile: int = 32, walk_tile: int = 64
) -> LayoutWork:
    """`query_tile` rows a tile, which walks the blocks of all of them; a program a (tile, head)."""
    lengths = _checked(contexts)
    tiles = [lengths[start : start + query_tile] for start in range(0, len(lengths), query_tile)]
    # A block belongs to one row, so every row ends in a block of its own.
    walks = tuple(sum(_rounded(n, walk_tile) for n in tile) for tile in tiles for _ in range(shape.heads))
    return _work(shape, lengths, walks, shape.heads, query_tile, walk_tile)


def segments(
    shape: AttentionShape,
    contexts: Sequence[int],
    tile_rows: int = 16,
    walk_tile: int = 64,
    split_tokens: int = 512,
) -> LayoutWork:
    """All heads of a KV head in one tile; rows are split over their context, the longest part first."""
    lengths = _checked(contexts)
    if split_tokens < 1:
        raise ValueError(f"split_tokens must be at least 1, got {split_tokens}")
    parts = [min(split_tokens, n - at) for n in lengths for at in range(0, n, split_tokens)]
    walks = tuple(part for part in sorted(parts, reverse=True) for _ in range(shape.kv_heads))
    return _work(shape, lengths, walks, shape.kv_heads, tile_rows, walk_tile)


def _work(
    shape: AttentionShape,
    lengths: Sequence[int],
    walks: tuple[int, ...],
    askers: int,
    tile_rows: int,
    walk_tile: int,
) -> LayoutWork:
    """askers: programs that walk each position, one a head or one a KV head."""
    if min(tile_rows, walk_tile) < 1:
        raise ValueError(f"tiles must be at least 1, got {tile_rows} rows and {walk_tile} positions")
    positions = sum(lengths)
    return LayoutWork(
        distinct_bytes=positions * shape.kv_heads * shape.position_bytes,
        requested_bytes=positions * askers * shape.position_bytes,
        # Scores and context: a multiplication and an addition each per element.
        flops=4 * tile_rows * shape.head_dim * sum(_rounded(walk, walk_tile) for walk in walks),
        useful_flops=4 * shape.heads * shape.head_dim * positions,
        walks=walks,
    )


def _rounded(length: int, tile: int) -> int:
    return -(-length // tile) * tile


def _checked(contexts: Sequence[int]) -> list[int]:
    if not contexts or min(contexts) < 1:
        raise ValueError(f"contexts must be one or more lengths of at least 1, got {list(contexts)}")
    return list(contexts)


def finish(work: LayoutWork, slots: int) -> int:
    """Positions until the last program ends, each free slot taking the next in launch order.

    slots: programs that run at once without slowing each other.
    """
    if slots < 1:
        raise ValueError(f"slots must be at least 1, got {slots}")
    free = [0] * min(slots, len(work.walks))
    for walk in work.walks:
        heapq.heappush(free, heapq.heappop(free) + walk)
    return max(free)


def finish_bounds(work: LayoutWork, slots: int) -> tuple[float, float]:
    """(least, most) of `finish` over all launch orders (Graham, 1969, for the upper one)."""
    if slots < 1:
        raise ValueError(f"slots must be at least 1, got {slots}")
    total, longest = sum(work.walks), work.longest_walk
    if slots >= len(work.walks):
        return float(longest), float(longest)
    return max(total / slots, float(longest)), total / slots + longest * (1 - 1 / slots)


def slowdown_range(slow: LayoutWork, fast: LayoutWork, slots: int) -> tuple[float, float]:
    """How many times longer `slow` takes than `fast`, over all orders of both, if walking sets the time."""
    slow_least, slow_most = finish_bounds(slow, slots)
    fast_least, fast_most = finish_bounds(fast, slots)
    return slow_least / fast_most, slow_most / fast_least


def spread_contexts(rows: int, mean: int, spread: float) -> list[int]:
    """`rows` lengths evenly from mean * (1 - spread) to mean * (1 + spread), each at least 1."""
    if rows < 1 or mean < 1 or not 0.0 <= spread <= 1.0:
        raise ValueError(f"need rows and mean of at least 1 and spread in 0..1, got {rows}, {mean}, {spread}")
    if rows == 1:
        return [mean]
    return [max(1, round(mean * (1 + spread * (2 * row / (rows - 1) - 1)))) for row in range(rows)]


def mid_run_contexts(num_rows: int = 32) -> list[int]:
    """Assumed contexts of the published call: the mixed draw, every row with 32 tokens generated.

    The report does not say when in the run its call was timed. All 32 rows decode together only until
    the shortest budget, 64 tokens, is spent: half of it is the middle of that time.
    """
    draw = published_draw(num_rows)
    return [prompt + min(new for _, new in draw) // 2 for prompt, _ in draw]
