"""When two engines' answers to one request count as the same.

Greedy decoding with the same weights has one right answer, except where rounding decides between
two tokens. What such a near tie is, is decided here and nowhere else, by the float32 `reference`
attention in one shot, without cache, batch or chunks. It does not know about engines or workloads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from interleave.engine.records import RequestRecord
from interleave.model.attention.reference import attend_one
from interleave.model.decoder import Decoder
from interleave.schedule.request import Request

NEAR_TIE_STEPS = {torch.float32: 64, torch.float16: 4, torch.bfloat16: 4}
"""A near tie's gap is below this many steps of the highest logit. Fixed: a wider bound hides bugs."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two answers to one request part.

    position: of the token in the sequence, the prompt included, from 0; token_index: among the
    generated ones. expected, got: the two tokens, None where that answer has already ended.
    gap_steps: gap of the reference's two highest logits there, in steps of the highest;
    behind_steps: how far the lower of the two tokens lies below the highest logit.
    """

    position: int
    token_index: int
    expected: int | None
    got: int | None
    gap_steps: float | None
    behind_steps: float | None
    near_tie: bool
    reason: str


def step_size(logit: float, dtype: torch.dtype) -> float:
    """Distance from |logit| to the next larger number of `dtype` (a unit in the last place)."""
    info = torch.finfo(dtype)
    exponent = math.frexp(max(abs(logit), info.smallest_normal))[1] - 1
    return math.ldexp(info.eps, exponent)


class Oracle:
    """The `reference` attention over a whole sequence at once, with the plain torch ops."""

    def __init__(self, decoder: Decoder) -> None:
        self.dtype = decoder.dtype
        self._decoder = Decoder(decoder.config, decoder.weights)

    def logits(self, tokens: Sequence[int], last: int = 1) -> Tensor:
        """Logits [last, vocab] at the last positions of `tokens`, float32 on the host."""
        device = self._decoder.device
        ids = torch.tensor(list(tokens), device=device)
        hidden = self._decoder.forward(ids, torch.arange(len(ids), device=device), _attend_all)
        return self._decoder.logits(hidden[-last:]).cpu()


def _attend_all(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return attend_one(q, k.transpose(0, 1), v.transpose(0, 1), len(q))


def compare(
    request: Request, expected: RequestRecord, got: RequestRecord, oracle: Oracle
) -> Difference | None:
    """The first difference of two answers in tokens, length or finish reason; None if there is none."""
    for index, (left, right) in enumerate(zip(expected.tokens, got.tokens, strict=False)):
        if left != right:
            logits = oracle.logits([*request.prompt, *expected.tokens[:index]])[0]
            return judge(request, index, left, right, logits, oracle.dtype)
    if len(expected.tokens) != len(got.tokens):
        index = min(len(expected.tokens), len(got.tokens))
        return _ended_apart(
            request, expected, got, index, f"{len(got.tokens)} tokens, expected {len(expected.tokens)}"
        )
    if expected.finish_reason != got.finish_reason:
        return _ended_apart(
            request,
            expected,
            got,
            len(got.tokens),
            f"finish reason {got.finish_reason!r}, expected {expected.finish_reason!r}",
        )
    return None


def compare_in_one_shot(request: Request, got: RequestRecord, oracle: Oracle) -> Difference | None:
    """The first token that is not the oracle's own choice after the tokens before it; None if all are."""
    if not got.tokens:
        return _ended_apart(request, got, got, 0, "no tokens")
    logits = oracle.logits([*request.prompt, *got.tokens[:-1]], last=len(got.tokens))
    chosen = logits.argmax(-1).tolist()
    for index, (left, right) in enumerate(zip(chosen, got.tokens, strict=True)):
        if left != right:
            return judge(request, index, left, right, logits[index], oracle.dtype)
    return None


def judge(
    request: Request, index: int, expected: int, got: int, logits: Tensor, dtype: torch.dtype
) -> Difference:
    """Near tie or failure, from the reference's logits [vocab] at the token where two answers part.

    Both tokens must lie within the bound of the highest logit: that its runner-up does is not
    enough, if the engine answered with a third.
    """
    logits = logits.double()
    top = logits.topk(2).values
    highest = float(top[0])
    bound = NEAR_TIE_STEPS[dtype]
    gap = behind = None
    if math.isfinite(highest):
        step = step_size(highest, dtype)
        gap = float(top[0] - top[1]) / step
        behind = (highest - min(float(logits[expected]), float(logits[got]))) / step
    near_tie = gap is not None and behind is not None and gap < bound and behind < bound
    return Difference(
        position=request.prompt_len + index,
        token_index=index,
        expected=expected,
        got=got,
        gap_steps=gap,
        behind_steps=behind,
        near_tie=near_tie,
        reason="near tie" if near_tie else f"other token; a near tie lies below {bound} steps",
    )


def _ended_apart(
    request: Request, expected: RequestRecord, got: RequestRecord, index: int, reason: str
) -> Difference:
    return Difference(
        position=request.prompt_len + index,
        token_index=index,
        expected=_token_at(expected, index),
        got=_token_at(got, index),
        gap_steps=None,
        behind_steps=None,
        near_tie=False,
        reason=reason,
    )


def _token_at(record: RequestRecord, index: int) -> int | None:
    return record.tokens[index] if index < len(record.tokens) else None
