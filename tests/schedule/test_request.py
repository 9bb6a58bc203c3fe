"""What a request may be: refused at birth, with the value; unchanged afterwards."""

from __future__ import annotations

import math

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


@pytest.mark.parametrize("due_s", [-0.1, math.nan, math.inf, "soon", None])
def test_due_time(due_s: object) -> None:
    with pytest.raises(ValueError, match=f"due_s must be a finite number of seconds >= 0, got {due_s!r}"):
        Request("r", [1], 1, due_s=due_s)  # type: ignore[arg-type]


@pytest.mark.parametrize("stop_ids", [5, ["a"], [1.5], [True]])
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
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.01}, "top_p"),
        ({"top_p": math.nan}, "top_p"),
        ({"top_p": None}, "top_p"),
        ({"seed": 1.5}, "seed"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**64}, "seed"),
    ],
)
def test_sampling(params: dict[str, object], named: str) -> None:
    (value,) = params.values()
    with pytest.raises(ValueError, match=f"^{named} .*got {value!r}"):
        SamplingParams(**params)  # type: ignore[arg-type]


def test_the_largest_seed_works() -> None:
    assert SamplingParams(seed=2**64 - 1).seed == 2**64 - 1


def test_a_list_is_copied() -> None:
    prompt = [1, 2, 3]
    request = Request("r", prompt, 4)
    prompt[0] = 99
    prompt.append(5)
    assert tuple(request.prompt) == (1, 2, 3)
    assert (request.prompt_len, request.total_len) == (3, 7)


def test_a_range_stays_a_range() -> None:
    """A simulation of a million requests needs lengths, not tokens."""
    request = Request("r", range(10**9), 5)
    assert isinstance(request.prompt, range)
    assert request.total_len == 10**9 + 5


def test_a_request_never_changes() -> None:
    request = Request("r", [1], 1)
    with pytest.raises(AttributeError):
        request.max_new_tokens = 5  # type: ignore[misc]
