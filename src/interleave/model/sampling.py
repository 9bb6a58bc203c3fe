"""Logits -> tokens. Knows nothing of requests beyond their `SamplingParams` and their generator.

Greedy rows are decided in one vectorised call. Every other row is drawn by itself, in float64 on the
CPU, with its own generator: neither the batch's company nor the device changes what it draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from interleave.model.ops import reference
from interleave.schedule.request import SamplingParams

Argmax = Callable[[Tensor], Tensor]
"""[rows, vocab] -> int64 [rows], ties to the lowest id: an op of the decoder."""

NOT_FINITE = -1
"""In place of a token: the row's logits held NaN or infinity."""


class NonFiniteLogits(ArithmeticError):
    """The model answered with NaN or infinity: broken weights, overflow, or a fault of the engine."""


def new_generator(params: SamplingParams) -> torch.Generator | None:
    """The generator that a request keeps for its whole life; None for a greedy one."""
    return None if params.greedy else torch.Generator(device="cpu").manual_seed(params.seed)


def sample(
    logits: Tensor,
    params: Sequence[SamplingParams],
    generators: Sequence[torch.Generator | None],
    argmax: Argmax = reference.argmax,
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
    check_finite(logits)
    tokens = argmax(logits)
    drawn = [row for row, one in enumerate(params) if not one.greedy]
    for row in drawn:
        tokens[row] = _draw(logits[row], params[row], generators[row])
    return tokens


def greedy(logits: Tensor, argmax: Argmax) -> Tensor:
    """The greedy token of each row of [rows, vocab], or NOT_FINITE. Nothing is read on the host."""
    return argmax(logits).masked_fill(~_finite(logits), NOT_FINITE)


def check_finite(logits: Tensor) -> None:
    """Raise NonFiniteLogits unless all of [rows, vocab] is finite."""
    finite = _finite(logits)
    if not bool(finite.all()):
        raise non_finite((~finite).nonzero().flatten().tolist(), len(logits))


def non_finite(bad: Sequence[int], num_rows: int) -> NonFiniteLogits:
    return NonFiniteLogits(f"NaN or infinite logits in rows {list(bad)} of {num_rows}")


def _finite(logits: Tensor) -> Tensor:
    """bool [rows]; one pass, since NaN wins a minimum."""
    low, high = torch.aminmax(logits, dim=-1)
    return torch.isfinite(low) & torch.isfinite(high)


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
