"""What a request may be: refused at birth, with the value; unchanged afterwards."""

from __future__ import annotations

import math

import numpy as np
import pytest

from interleave.schedule.request import Request, SamplingParams


@pytest.mark.parametrize("prompt", [[], (), range(0)])
def test_empty_prompt(prompt: object) -> None:
    with pytest.raises(ValueError, match="request 'r': the prompt is empty"):
        Request("r", prompt, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "prompt", [[3, -1, 4], (3, -1, 4), (-1,), range(-1, 3), range(3, -3, -1), [5, -2], (1, -7, 1)]
)
def test_negative_token(prompt: object) -> None:
    with pytest.raises(ValueError, match=r"request 'r': token id -\d in the prompt; ids start at 0"):
        Request("r", prompt, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [list, tuple])
@pytest.mark.parametrize("token", [1.5, 2.0, "x", None, True, math.nan])
def test_token_that_is_no_integer(make: type, token: object) -> None:
    with pytest.raises(ValueError, match=f"request 'r': token id {token!r} in the prompt is not an integer"):
        Request("r", make([3, token]), 1)


@pytest.mark.parametrize("prompt", [None, 7, "text", {"a": 1}])
def test_prompt_that_is_no_sequence_of_ids(prompt: object) -> None:
    with pytest.raises(ValueError, match="request 'r'"):
        Request("r", prompt, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("budget", [0, -1, 1.0, True, None, math.nan])
def test_generation_budget(budget: object) -> None:
    with pytest.raises(ValueError, match=f"max_new_tokens must be an integer of at least 1, got {budget!r}"):
        Request("r", [1], budget)  # type: ignore[arg-type]


@pytest.mark.parametrize("due_s", [-0.1, math.nan, math.inf, "soon", None, True])
def test_due_time(due_s: object) -> None:
    with pytest.raises(ValueError, match=f"due_s must be a finite number of seconds >= 0, got {due_s!r}"):
        Request("r", [1], 1, due_s=due_s)  # type: ignore[arg-type]


@pytest.mark.parametrize("stop_ids", [5, ["a"], [1.5], [True], frozenset({"a"})])
def test_stop_ids(stop_ids: object) -> None:
    with pytest.raises(ValueError, match=r"request 'r': .*stop_ids"):
        Request("r", [1], 1, stop_ids=stop_ids)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": math.nan}, "temperature"),
        ({"temperature": math.inf}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": -0.5}, "top_p"),
        ({"top_p": 1.01}, "top_p"),
        ({"top_p": True}, "top_p"),
        ({"top_p": math.nan}, "top_p"),
        ({"top_p": None}, "top_p"),
        ({"seed": 1.5}, "seed"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**64}, "seed"),
        ({"seed": True}, "seed"),
    ],
)
def test_sampling(params: dict[str, object], named: str) -> None:
    (value,) = params.values()
    with pytest.raises(ValueError, match=f"^{named} .*got {value!r}"):
        SamplingParams(**params)  # type: ignore[arg-type]


def test_the_largest_seed_works() -> None:
    assert SamplingParams(seed=2**64 - 1).seed == 2**64 - 1


def test_a_request_says_no_more_than_it_must() -> None:
    """Greedy, due at once, without stop ids, and all of it to be computed here."""
    request = Request("r", [0], 1)
    assert request.sampling == SamplingParams(temperature=0.0, top_p=1.0, seed=0)
    assert (request.stop_ids, request.due_s, request.num_computed) == (frozenset(), 0.0, 0)
    assert Request("r", [0], 1, stop_ids=[]).stop_ids == frozenset()  # type: ignore[arg-type]
    assert (request.prompt_len, request.prefill_target, request.total_len) == (1, 1, 2)


@pytest.mark.parametrize(
    ("temperature", "greedy"), [(0, True), (0.0, True), (1e-9, False), (1, False), (2.5, False)]
)
def test_only_temperature_zero_is_greedy(temperature: float, greedy: bool) -> None:
    assert SamplingParams(temperature=temperature, top_p=1e-9, seed=0).greedy is greedy


def test_numbers_of_other_kinds() -> None:
    """What numpy and others call an integer or a real number is one here."""
    one, half = np.int64(1), np.float32(0.5)
    assert SamplingParams(half, half, one) == SamplingParams(0.5, 0.5, 1)
    request = Request("r", [one, 2], one, [one], half, num_computed=one)
    assert (request.prompt, request.stop_ids) == ((1, 2), frozenset({1}))
    with pytest.raises(ValueError, match=r"token id .* in the prompt is not an integer"):
        Request("r", [half], 1)
    with pytest.raises(ValueError, match="due_s must be a finite number"):
        Request("r", [1], 1, due_s=np.float32(math.nan))  # type: ignore[arg-type]


@pytest.mark.parametrize(("num_computed", "prefill_target"), [(0, 5), (1, 5), (3, 5), (4, 4)])
def test_prefill_of_a_delivered_prompt(num_computed: int, prefill_target: int) -> None:
    """All but the newest token delivered: nothing is left to prefill."""
    assert Request("r", range(5), 1, num_computed=num_computed).prefill_target == prefill_target


def test_a_prompt_of_one_token_is_prefilled() -> None:
    assert Request("r", [3], 1, num_computed=0).prefill_target == 1


def test_two_requests_are_two_whatever_they_ask_for() -> None:
    assert Request("r", [1], 1) != Request("r", [1], 1)


def test_a_list_is_copied() -> None:
    prompt = [1, 2, 3]
    request = Request("r", prompt, 4)
    prompt[0] = 99
    prompt.append(5)
    assert tuple(request.prompt) == (1, 2, 3)
    assert (request.prompt_len, request.total_len) == (3, 7)


@pytest.mark.parametrize("prompt", [range(0, 6, 2), range(4, -1, -2)])
def test_a_range_may_go_in_any_steps_down_to_zero(prompt: range) -> None:
    assert Request("r", prompt, 1).prompt == prompt


def test_a_range_stays_a_range() -> None:
    """A simulation of a million requests needs lengths, not tokens."""
    request = Request("r", range(10**9), 5)
    assert isinstance(request.prompt, range)
    assert request.total_len == 10**9 + 5


def test_a_request_never_changes() -> None:
    request = Request("r", [1], 1)
    with pytest.raises(AttributeError):
        request.max_new_tokens = 5  # type: ignore[misc]
    with pytest.raises(AttributeError):
        request.sampling.seed = 5  # type: ignore[misc]
