"""Greedy ties, nucleus mass, and independence of a request from its company."""

from __future__ import annotations

import pytest
import torch

from interleave.model.ops import reference
from interleave.model.sampling import NonFiniteLogits, new_generator, sample
from interleave.model.sources import load_model
from interleave.schedule.request import GREEDY, SamplingParams

WARM = SamplingParams(temperature=1.0, seed=5)


def draws(logits: torch.Tensor, params: SamplingParams, count: int) -> list[int]:
    generator = new_generator(params)
    return [int(sample(logits, [params], [generator])[0]) for _ in range(count)]


def test_a_tie_goes_to_the_lowest_id() -> None:
    logits = torch.zeros(3, 1000)
    logits[0, [400, 700]] = 1.0
    logits[1, [0, 999]] = 1.0
    assert sample(logits, [GREEDY] * 3, [None] * 3).tolist() == [400, 0, 0]


def test_two_identical_head_rows_give_the_lowest_id() -> None:
    decoder = load_model("tiny-gqa3", ops=reference).decoder  # these read the weights that the test edits
    hidden = torch.randn(20, decoder.config.hidden_size, generator=torch.Generator().manual_seed(0))
    favourite = sample(decoder.logits(hidden), [GREEDY] * 20, [None] * 20)
    for row, token in enumerate(favourite.tolist()):
        twin = (token + 200) % decoder.config.vocab_size
        saved = decoder.weights.head[twin].clone()
        decoder.weights.head[twin] = decoder.weights.head[token]
        again = sample(decoder.logits(hidden), [GREEDY] * 20, [None] * 20)
        assert int(again[row]) == min(token, twin)
        decoder.weights.head[twin] = saved


def test_company_does_not_change_a_requests_tokens() -> None:
    logits = torch.randn(6, 500, generator=torch.Generator().manual_seed(2))
    params = [SamplingParams(temperature=0.8, top_p=0.9, seed=row) for row in range(5)] + [GREEDY]
    alone = [draws(logits[row : row + 1], params[row], 10) for row in range(6)]

    generators = [new_generator(one) for one in params]
    together = [sample(logits, params, generators).tolist() for _ in range(10)]
    assert [list(row) for row in zip(*together, strict=True)] == alone

    order = [4, 0, 5, 2]
    generators = [new_generator(params[row]) for row in order]
    shuffled = [sample(logits[order], [params[row] for row in order], generators).tolist() for _ in range(10)]
    assert [list(row) for row in zip(*shuffled, strict=True)] == [alone[row] for row in order]


def test_a_seed_repeats_and_another_differs() -> None:
    logits = torch.zeros(1, 1000)
    assert draws(logits, WARM, 20) == draws(logits, WARM, 20)
    assert draws(logits, WARM, 20) != draws(logits, SamplingParams(temperature=1.0, seed=6), 20)


def test_top_p_keeps_the_smallest_set_that_reaches_the_mass() -> None:
    logits = torch.log(torch.tensor([[0.05, 0.4, 0.15, 0.3, 0.1]]))
    kept = {0.3: {1}, 0.4001: {1, 3}, 0.75: {1, 2, 3}, 0.9: {1, 2, 3, 4}, 1.0: {0, 1, 2, 3, 4}}
    for top_p, tokens in kept.items():
        assert set(draws(logits, SamplingParams(temperature=1.0, top_p=top_p), 400)) == tokens


def test_frequencies_follow_the_temperature() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.2]]))
    for temperature in (0.5, 1.0, 2.0):
        expected = torch.softmax(logits[0] / temperature, dim=0)
        seen = (
            torch.bincount(torch.tensor(draws(logits, SamplingParams(temperature), 4000)), minlength=3) / 4000
        )
        assert (seen - expected).abs().max() < 0.03  # four standard deviations of the share


def test_a_tiny_temperature_is_greedy_and_does_not_overflow() -> None:
    logits = torch.tensor([[-80.0, 79.0, 80.0, 60.0]])
    assert set(draws(logits, SamplingParams(temperature=1e-300), 50)) == {2}


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_non_finite_logits_are_refused_with_their_row(bad: float) -> None:
    logits = torch.zeros(4, 50)
    logits[2, 7] = bad
    with pytest.raises(NonFiniteLogits, match=r"rows \[2\] of 4"):
        sample(logits, [GREEDY] * 4, [None] * 4)


def test_counts_must_match_and_no_rows_give_no_tokens() -> None:
    assert sample(torch.zeros(0, 5), [], []).tolist() == []
    with pytest.raises(ValueError, match="2 rows of logits with 1 params"):
        sample(torch.zeros(2, 5), [GREEDY], [None])
    with pytest.raises(ValueError, match="needs a generator"):
        sample(torch.zeros(1, 5), [WARM], [None])
