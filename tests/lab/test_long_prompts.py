"""The recipe of long and short prompts: its statistics, and what a change of the share leaves alone."""

from __future__ import annotations

import statistics

import pytest

from interleave.lab.long_prompts import LONG_TOKENS, long_prompt_draw, long_prompts

MANY = 20_000


@pytest.mark.parametrize("share", [0.05, 0.35, 0.8])
def test_the_share_of_long_prompts_is_the_one_asked_for(share: float) -> None:
    long = sum(prompt == LONG_TOKENS for prompt, _ in long_prompt_draw(MANY, share))
    assert long / MANY == pytest.approx(share, abs=4 * (share * (1 - share) / MANY) ** 0.5)


def test_short_prompts_and_answers_are_uniform() -> None:
    drawn = long_prompt_draw(MANY)
    shorts = [prompt for prompt, _ in drawn if prompt != LONG_TOKENS]
    for values, low, high in ((shorts, 16, 32), ([new for _, new in drawn], 32, 64)):
        assert (min(values), max(values)) == (low, high)
        spread = (((high - low + 1) ** 2 - 1) / 12) ** 0.5
        assert statistics.mean(values) == pytest.approx((low + high) / 2, abs=4 * spread / len(values) ** 0.5)
        assert statistics.pstdev(values) == pytest.approx(spread, rel=0.03)


def test_a_higher_share_only_makes_more_prompts_long() -> None:
    few, many = long_prompt_draw(500, 0.2, seed=7), long_prompt_draw(500, 0.6, seed=7)
    assert [new for _, new in few] == [new for _, new in many]
    changed = [(a, b) for (a, _), (b, _) in zip(few, many, strict=True) if a != b]
    assert changed
    assert all(a < b == LONG_TOKENS for a, b in changed)


def test_the_ends_of_the_share() -> None:
    assert {prompt for prompt, _ in long_prompt_draw(200, 1.0)} == {LONG_TOKENS}
    assert max(prompt for prompt, _ in long_prompt_draw(200, 0.0)) == 32
    with pytest.raises(ValueError, match="within 0 to 1"):
        long_prompt_draw(1, 1.5)


def test_scale_divides_lengths_and_leaves_arrivals() -> None:
    full, small = (long_prompts(scale=scale, num_requests=2000, rate=8.0) for scale in (1, 16))
    assert [row.due_s for row in full.rows] == [row.due_s for row in small.rows]
    assert {row.prompt_tokens for row in small.rows} == {1, 2, 96}
    assert {row.new_tokens for row in small.rows} == {2, 3, 4}
    gaps = [b.due_s - a.due_s for a, b in zip(full.rows, full.rows[1:], strict=False)]
    assert statistics.mean(gaps) == pytest.approx(1 / 8, rel=0.08)
    assert statistics.pstdev(gaps) / statistics.mean(gaps) == pytest.approx(1.0, abs=0.08)


def test_without_a_rate_everybody_is_there_from_the_start() -> None:
    assert {row.due_s for row in long_prompts(num_requests=5).rows} == {0.0}
