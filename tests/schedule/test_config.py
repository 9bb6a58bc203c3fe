"""Choices that a scheduler takes, what they come to, and the limits that follow. Refusals: `test_scheduler`."""

from __future__ import annotations

import pytest

from interleave.schedule.config import SchedulerConfig
from interleave.schedule.policies import POLICIES, UNBOUNDED, StepLimits

EVERY_POLICY = pytest.mark.parametrize("policy", sorted(POLICIES))


@EVERY_POLICY
def test_without_further_choices(policy: str) -> None:
    config = SchedulerConfig(policy)
    assert (config.chunk_budget, config.max_rows, config.allocation) == (512, 32, "reserve")
    assert [config.order, config.max_chunk, config.token_budget, config.max_request_tokens] == [None] * 4


@pytest.mark.parametrize(
    ("policy", "choices", "limits"),
    [
        ("chunked", {}, StepLimits(512, 512, UNBOUNDED, False)),
        ("chunked", {"chunk_budget": None}, StepLimits(UNBOUNDED, UNBOUNDED, UNBOUNDED, False)),
        ("chunked", {"max_chunk": 64}, StepLimits(512, 64, UNBOUNDED, False)),
        ("chunked", {"max_chunk": 700}, StepLimits(512, 700, UNBOUNDED, False)),
        ("chunked", {"token_budget": 99}, StepLimits(512, 512, 99, False)),
        ("chunked", {"order": "prefill_first"}, StepLimits(512, 512, UNBOUNDED, True)),
        ("mixed", {}, StepLimits(512, 512, 512 + 32, False)),
        ("mixed", {"token_budget": 600}, StepLimits(512, 512, 600, False)),
        ("mixed", {"chunk_budget": None}, StepLimits(UNBOUNDED, UNBOUNDED, UNBOUNDED, False)),
        ("mixed", {"chunk_budget": None, "token_budget": 600}, StepLimits(UNBOUNDED, UNBOUNDED, 600, False)),
        ("mixed", {"chunk_budget": 1, "max_rows": 1}, StepLimits(1, 1, 2, False)),
        ("whole", {}, StepLimits(512, 512, UNBOUNDED, True)),
        ("whole", {"order": "decode_first"}, StepLimits(512, 512, UNBOUNDED, False)),
        ("padded", {}, StepLimits(512, 512, UNBOUNDED, True)),
        ("static", {}, StepLimits(512, 512, UNBOUNDED, True)),
    ],
)
def test_limits_follow_from_the_choices(policy: str, choices: dict[str, int], limits: StepLimits) -> None:
    assert SchedulerConfig(policy, **choices).limits == limits  # type: ignore[arg-type]


@EVERY_POLICY
@pytest.mark.parametrize("name", ["chunk_budget", "max_rows", "max_request_tokens"])
def test_one_is_enough(policy: str, name: str) -> None:
    assert getattr(SchedulerConfig(policy, **{name: 1}), name) == 1  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", ["chunked", "mixed"])
def test_one_position_of_a_prompt_is_enough(policy: str) -> None:
    config = SchedulerConfig(policy, max_chunk=1, max_rows=1, token_budget=2)
    assert config.limits == StepLimits(512, 1, 2, False)


@pytest.mark.parametrize("policy", ["padded", "static"])
def test_a_group_may_be_told_the_order_that_it_keeps(policy: str) -> None:
    assert SchedulerConfig(policy, order="prefill_first").limits.prefill_first


@pytest.mark.parametrize("policy", sorted(set(POLICIES) - {"static"}))
def test_every_policy_but_static_may_grow(policy: str) -> None:
    assert SchedulerConfig(policy, allocation="progressive").allocation == "progressive"


def test_choices_stay_as_they_were_made() -> None:
    with pytest.raises(AttributeError):
        SchedulerConfig("mixed").max_rows = 8  # type: ignore[misc]
    with pytest.raises(AttributeError):
        SchedulerConfig("mixed").limits.token_budget = 8  # type: ignore[misc]
