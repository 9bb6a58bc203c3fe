"""Slots stay compact under random releases, and each row finds its own K and V where its slot is now."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_engines import micro
from torch import Tensor

from interleave.engine.layouts import BlockLayout, SlotLayout
from interleave.model.kv_cache import KVCache
from interleave.schedule.request import Request
from interleave.schedule.row import Row

WIDTH = 6
MOST_ROWS = 7


@dataclass(eq=False)
class Occupant:
    """A row with the K and V it has computed so far, kept aside."""

    row: Row
    k: list[Tensor] = field(default_factory=list)
    v: list[Tensor] = field(default_factory=list)


def new_cache() -> KVCache:
    cache = KVCache(micro().config, MOST_ROWS, WIDTH, torch.float32, "cpu")
    cache.k.fill_(float("nan"))
    cache.v.fill_(float("nan"))
    return cache


def new_row(index: int) -> Row:
    return Row(Request(f"r{index}", range(WIDTH - 1), 1), [index], admit_step=0, prefill_target=WIDTH - 1)


def compute(one: Occupant, layout: SlotLayout, cache: KVCache, generator: torch.Generator) -> None:
    """One more position, the way an executor writes it: layer by layer, at the slot of the moment."""
    (slot,) = layout.table(one.row)
    at = torch.tensor([slot * WIDTH + one.row.num_computed])
    layers, kv_heads, _, dim = cache.k.shape
    k, v = torch.randn(2, layers, 1, kv_heads, dim, generator=generator)
    for layer in range(layers):
        cache.write(layer, at, k[layer], v[layer])
    one.k.append(k[:, 0])
    one.v.append(v[:, 0])
    one.row.num_computed += 1


def assert_found(occupants: list[Occupant], layout: SlotLayout, cache: KVCache) -> None:
    slots = sorted(slot for one in occupants for slot in layout.table(one.row))
    assert slots == list(range(len(occupants))), "not compact"
    for one in occupants:
        (slot,) = layout.table(one.row)
        for position, (k, v) in enumerate(zip(one.k, one.v, strict=True)):
            assert torch.equal(cache.k[:, :, slot * WIDTH + position], k)
            assert torch.equal(cache.v[:, :, slot * WIDTH + position], v)


ROUNDS = st.lists(
    st.tuples(
        st.integers(0, 4),  # rows that arrive
        st.lists(st.booleans(), min_size=MOST_ROWS, max_size=MOST_ROWS),  # who computes a position
        st.lists(st.integers(0, 3), min_size=MOST_ROWS, max_size=MOST_ROWS),  # 0: leaves
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(ROUNDS)
def test_compaction_keeps_everyones_keys_and_values(rounds: list[tuple[int, list[bool], list[int]]]) -> None:
    generator = torch.Generator().manual_seed(0)
    layout, cache = SlotLayout(), new_cache()
    occupants: list[Occupant] = []
    count = 0
    for num_arrivals, computes, leaves in rounds:
        arrivals = [
            Occupant(new_row(count + n)) for n in range(min(num_arrivals, MOST_ROWS - len(occupants)))
        ]
        count += len(arrivals)
        layout.admit([one.row for one in arrivals])
        occupants += arrivals
        for one, does in zip(occupants, computes, strict=False):
            if does and one.row.num_computed < WIDTH - 1:
                compute(one, layout, cache, generator)
        ended = [one for one, leave in zip(occupants, leaves, strict=False) if leave == 0]
        before = {id(one): layout.table(one.row) for one in occupants}
        stay = [one for one in occupants if one not in ended]
        layout.release([one.row for one in ended])
        layout.release([one.row for one in ended[:1]])  # hearing of a row twice changes nothing
        moved_tokens, freed = layout.compact(cache)
        moved = sum(one.row.num_computed for one in stay if layout.table(one.row) != before[id(one)])
        assert moved_tokens == moved, "more was copied than rows that changed their slot"
        assert freed == list(range(len(stay), len(occupants)))
        # A freed slot is nobody's: poison in it reaches no one.
        cache.poison(freed)
        occupants = stay
        assert_found(occupants, layout, cache)


@pytest.mark.parametrize("ended", range(5))
def test_one_row_leaves_and_one_moves(ended: int) -> None:
    """The last row fills the gap; nobody else moves, and nothing moves when the last one leaves."""
    layout, cache = SlotLayout(), new_cache()
    rows = [new_row(index) for index in range(5)]
    layout.admit(rows)
    for row in rows:
        row.num_computed = 3
    layout.release([rows[ended], new_row(9)])  # and one that never got here
    assert layout.compact(cache) == (0 if ended == 4 else 3, [4])
    assert layout.compact(cache) == (0, [])
    for index, row in enumerate(rows):
        if index != ended:
            assert layout.table(row) == ((ended,) if index == 4 else (index,))


def test_slots_walk_the_widest_row_and_blocks_do_not() -> None:
    assert (SlotLayout.walk_widest, BlockLayout.walk_widest) == (True, False)


def test_blocks_are_the_rows_own_table() -> None:
    row = new_row(3)
    row.blocks = [7, 2, 5]
    assert list(BlockLayout().table(row)) == [7, 2, 5]
    assert BlockLayout().compact(new_cache()) == (0, [])
