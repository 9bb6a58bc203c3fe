"""Longest gaps of requests that are served now together, now one by one."""

from __future__ import annotations

from interleave.lab.token_times import TokenTimes


def test_a_gap_between_the_first_token_and_the_first_common_step_counts() -> None:
    times = TokenTimes(2)
    times.one(0, 1.0, 1.0, 0.0)
    times.one(1, 1.0, 1.0, 0.0)
    times.one(0, 4.0, 4.0, 0.0)  # served alone, after 3 s
    assert times.together(2, 5.0, 5.0, 0.0)
    assert times.max_gap_s[0] == 3.0
    assert times.max_gap_s[1] == 4.0
    times.write_members()
    assert list(times.max_gap_s) == [3.0, 4.0]
    assert list(times.last_s) == [5.0, 5.0]
