"""How a batch is cut for the kernels: segments that keep to one request, or tiles over a union of blocks.

Pure numpy: knows lengths and block tables, not tensors, and nothing of what the kernels do with them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from interleave.model.batch import PackedBatch


@dataclass(frozen=True, slots=True)
class Segments:
    """segments: int32 [segments, 7]: row, first packed query, queries, position of the first query,
    begin and end of the span walked, index of its partial result or -1 where it is whole.
    merges: int32 [split runs, 4]: first part, parts, first packed query, queries.
    """

    segments: np.ndarray
    merges: np.ndarray
    num_parts: int


def cut_segments(batch: PackedBatch, group: int, wide: int, narrow: int, split_tokens: int) -> Segments:
    """Every query position in one run of queries; no run spans two rows.

    A run holds at most `wide` queries times `group` heads. One of at most `narrow` of them is cut over
    its context too, into spans of `split_tokens`; such runs come first, the longest span first.
    """
    most, few = wide // group, narrow // group
    lens = batch.query_lens
    tails = lens % most
    # What is left of a row after its wide runs is one narrow run, or one more wide one.
    counts = lens // most + (tails > 0)
    row = np.repeat(np.arange(len(lens)), counts)
    local = (np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)) * most
    queries = np.minimum(most, lens[row] - local)
    position = batch.context_lens[row] - lens[row] + local
    end = position + queries
    splits = np.where(queries <= few, -(-end // split_tokens), 1)
    run = np.repeat(np.arange(len(row)), splits)
    split = np.arange(len(run)) - np.repeat(np.cumsum(splits) - splits, splits)
    cut = splits[run] > 1
    part = np.where(cut, np.cumsum(cut) - 1, -1)
    begin = np.where(cut, split * split_tokens, 0)
    stop = np.where(cut, np.minimum(begin + split_tokens, end[run]), end[run])
    first = batch.query_starts[row] + local
    table = np.stack((row[run], first[run], queries[run], position[run], begin, stop, part), axis=1)
    order = np.lexsort((begin - stop, queries[run] > few))
    several = np.flatnonzero(splits > 1)
    starts = np.cumsum(np.where(splits > 1, splits, 0)) - np.where(splits > 1, splits, 0)
    merges = np.stack((starts, splits, first, queries), axis=1)[several]
    return Segments(table[order].astype(np.int32), merges.astype(np.int32), int(cut.sum()))


@dataclass(frozen=True, slots=True)
class UnionTiles:
    """tile_starts: int32 [tiles + 1], where each tile's entries begin; blocks, owners, block_starts:
    int32 [entries], a block, the row that owns it, and the position of its first token."""

    tile_starts: np.ndarray
    blocks: np.ndarray
    owners: np.ndarray
    block_starts: np.ndarray


def unite_blocks(tables: np.ndarray, context_lens: np.ndarray, block_tokens: int, rows: int) -> UnionTiles:
    """Tiles of `rows` decode rows, each with every block of its rows; tables: [R, blocks]."""
    counts = -(-context_lens // block_tokens)
    owners = np.repeat(np.arange(len(counts)), counts)
    index = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    edges = np.concatenate(([0], np.cumsum(counts)))
    starts = edges[np.minimum(np.arange(0, len(counts) + rows, rows), len(counts))]
    parts = (starts, tables[owners, index], owners, index * block_tokens)
    return UnionTiles(*(part.astype(np.int32) for part in parts))
