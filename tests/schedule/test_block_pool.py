"""Blocks: exact counts, conservation, and refusals that name the value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interleave.schedule.block_pool import BlockPool, PoolUse, need_blocks


@given(total_len=st.integers(1, 10_000), block_tokens=st.integers(1, 300))
def test_need_is_the_smallest_number_of_blocks_that_holds_all(total_len: int, block_tokens: int) -> None:
    need = need_blocks(total_len, block_tokens)
    assert (need - 1) * block_tokens < total_len <= need * block_tokens


@pytest.mark.parametrize(("prompt_len", "blocks"), [(16, 2), (32, 3), (17, 2), (13, 1), (14, 2)])
def test_need_of_a_prompt_and_three_new_tokens(prompt_len: int, blocks: int) -> None:
    assert need_blocks(prompt_len + 3, 16) == blocks


@pytest.mark.parametrize("value", [0, -1, 1.5, True, None, "4"])
@pytest.mark.parametrize("name", ["num_blocks", "block_tokens"])
def test_sizes_are_checked_at_birth(name: str, value: object) -> None:
    sizes = {"num_blocks": 4, "block_tokens": 4} | {name: value}
    with pytest.raises(ValueError, match=f"{name} must be an integer of at least 1, got {value!r}"):
        BlockPool(**sizes)  # type: ignore[arg-type]


def test_lowest_ids_go_first_and_come_back() -> None:
    pool = BlockPool(6, 4)
    assert pool.allocate(2, "a") == [0, 1]
    assert pool.allocate(3, "b") == [2, 3, 4]
    pool.free([0, 1], "a")
    assert pool.allocate(3, "c") == [0, 1, 5]
    assert pool.owned_by("b") == [2, 3, 4]
    assert pool.check() == PoolUse(num_free=0, num_owned=6)


def test_blocks_come_back_in_parts_and_in_any_order() -> None:
    pool = BlockPool(6, 4)
    for owner, count in (("a", 2), ("b", 1), ("a", 2)):
        pool.allocate(count, owner)
    assert pool.owned_by("a") == [0, 1, 3, 4]
    pool.free([4, 0], "a")
    assert (pool.owned_by("a"), pool.owned_by("b")) == ([1, 3], [2])
    assert pool.check() == PoolUse(num_free=3, num_owned=3)
    pool.free([2], "b")
    pool.free([3, 1], "a")
    assert (pool.owned_by("a"), pool.owned_by("b")) == ([], [])
    assert pool.allocate(6, "c") == [0, 1, 2, 3, 4, 5]


def test_all_of_a_pool_and_nothing_of_it() -> None:
    pool = BlockPool(1, 1)
    assert pool.allocate(0, "nobody") == []
    assert pool.allocate(1, "a") == [0]
    pool.free([], "nobody")
    assert pool.check() == PoolUse(num_free=0, num_owned=1)


def test_a_block_given_back_twice_at_once_is_an_error_that_changes_nothing() -> None:
    pool = BlockPool(4, 4)
    pool.allocate(1, "b")
    pool.allocate(2, "a")
    with pytest.raises(RuntimeError, match="block 1 belongs to None, not to 'a'"):
        pool.free([1, 1], "a")
    with pytest.raises(RuntimeError, match="block 0 belongs to 'b', not to 'a'"):
        pool.free([1, 0], "a")
    assert pool.owned_by("a") == [1, 2]
    assert pool.check() == PoolUse(num_free=1, num_owned=3)


def test_a_count_stays_as_it_was_made() -> None:
    with pytest.raises(AttributeError):
        BlockPool(3, 4).check().num_free = 5  # type: ignore[misc]


def test_wrong_use_is_an_error_that_changes_nothing() -> None:
    pool = BlockPool(3, 4)
    blocks = pool.allocate(2, "a")
    with pytest.raises(RuntimeError, match="'b' asks for 2 blocks, 1 are free"):
        pool.allocate(2, "b")
    with pytest.raises(RuntimeError, match="block 0 belongs to 'a', not to 'b'"):
        pool.free(blocks, "b")
    with pytest.raises(RuntimeError, match="block 2 belongs to None"):
        pool.free([2], "a")
    assert pool.check() == PoolUse(num_free=1, num_owned=2)
    pool.free(blocks, "a")
    with pytest.raises(RuntimeError, match="belongs to None"):
        pool.free(blocks, "a")
    assert pool.check() == PoolUse(num_free=3, num_owned=0)


def test_check_sees_a_lost_and_a_doubled_block() -> None:
    for break_it, message in (
        (lambda pool: pool._free.pop(), "!= 3 blocks"),
        (lambda pool: pool._free.append(2), "twice in the free list"),
        (lambda pool: pool._free.append(0), "both free and owned"),
        (lambda pool: pool._held["a"].append(0), "a block is owned twice"),
        (lambda pool: pool._held.update(b=[0]), "a block is owned twice"),
        (lambda pool: pool._held.clear(), "2 free [+] 0 owned != 3 blocks"),
        (lambda pool: pool._held.update(b=[2]), r"both free and owned: \[2\]"),
        (lambda pool: pool._held.update(b=[5]), "2 free [+] 2 owned != 3 blocks"),
    ):
        pool = BlockPool(3, 4)
        pool.allocate(1, "a")
        break_it(pool)
        with pytest.raises(AssertionError, match=message):
            pool.check()


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 5)), max_size=40))
def test_random_use_conserves_the_pool(moves: list[tuple[int, int]]) -> None:
    """Owner i takes `count` blocks, or gives back all that it has."""
    pool = BlockPool(12, 4)
    held: dict[str, list[int]] = {}
    for index, count in moves:
        owner = f"r{index}"
        if owner in held:
            pool.free(held.pop(owner), owner)
        elif count <= pool.num_free:
            held[owner] = pool.allocate(count, owner)
        owned = [block for blocks in held.values() for block in blocks]
        assert len(owned) == len(set(owned))
        assert pool.check() == PoolUse(num_free=12 - len(owned), num_owned=len(owned))
        assert (pool.num_free, pool.num_owned) == (12 - len(owned), len(owned))
