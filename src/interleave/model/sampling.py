"""Logits -> tokens. Knows nothing of requests beyond their `SamplingParams` and their generator.

Greedy rows are decided in one vectorised call. Every other row is drawn by itself, in float64 on the
CPU, with its own generator: neither the batch's company nor the device changes what it draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from interleave.model.ops import reference
from interleave.model.ops.finite import NOT_FINITE
from interleave.schedule.request import SamplingParams

Greedy = Callable[[Tensor], Tensor]
"""[rows, vocab] -> int64 [rows]: the op of the decoder, as `ops/reference.py` describes it."""


class NonFiniteLogits(ArithmeticError):
    """The model answered with NaN or infinity: broken weights, overflow, or a fault of the engine."""


def new_generator(params: SamplingParams) -> torch.Generator | None:
    """The generator that a request keeps for its whole life; None for a greedy one."""
    return None if params.greedy else torch.Generator(device="cpu").manual_seed(params.seed)


def sample(
    logits: Tensor,
    params: Sequence[SamplingParams],
    generators: Sequence[torch.Generator | None],
    greedy: Greedy = reference.greedy,
) -> Tensor:
    """One token per row: [rows, vocab] float -> [rows] int64 on the same device.

    params and generators belong to the rows in order; a greedy row needs no generator. A draw
    advances its generator by one number. Raises NonFiniteLogits, naming the rows, and ValueError
    when the counts differ.
    """
    rows = logits.shape[0]
    if not len(params) == len(generators) == rows:
        raise ValueError(f"{rows} rows of logits with {len(params)} params and {len(generators)} generators")
    if rows == 0:
        return torch.empty(0, dtype=torch.int64, device=logits.device)
    tokens = greedy(logits)
    check_finite(tokens.tolist())
    drawn = [row for row, one in enumerate(params) if not one.greedy]
    for row in drawn:
        tokens[row] = _draw(logits[row], params[row], generators[row])
    return tokens


def check_finite(tokens: Sequence[int]) -> None:
    """Raise NonFiniteLogits if the greedy op found a row that is not finite, naming all such rows."""
    if NOT_FINITE in tokens:
        bad = [row for row, token in enumerate(tokens) if token == NOT_FINITE]
        raise NonFiniteLogits(f"NaN or infinite logits in rows {bad} of {len(tokens)}")


def _draw(logits: Tensor, params: SamplingParams, generator: torch.Generator | None) -> int:
    """A token from softmax(logits / temperature), cut to the nucleus (Holtzman et al., 2020).

    The nucleus is the smallest set of likeliest tokens whose mass reaches top_p; at least one.
    """
    if generator is None:
        raise ValueError(f"temperature {params.temperature} needs a generator (see new_generator)")
    scores = logits.detach().to("cpu", torch.float64)
    # The maximum goes first: dividing by a tiny temperature then only underflows.
    probabilities = torch.softmax((scores - scores.max()) / params.temperature, dim=-1)
    ordered, tokens = torch.sort(probabilities, descending=True, stable=True)
    mass = ordered.cumsum(0)
    kept = int((mass - ordered < params.top_p).sum())
    target = torch.rand((), dtype=torch.float64, generator=generator) * mass[kept - 1]
    index = int(torch.searchsorted(mass[:kept], target, right=True))
    return int(tokens[min(index, kept - 1)])
