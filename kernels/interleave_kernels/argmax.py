"""The greedy token of each row, found where the logits are: no copy to the host, no sort.

A vocabulary is cut into parts so that a few rows fill the machine; a second kernel compares the
parts' winners. Reads every logit once.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

TILE = 2048
"""Logits per iteration."""
PART = 8192
"""Logits per program: a vocabulary of 150,000 becomes 19 programs a row."""


@triton.jit(do_not_specialize=["num_parts"])
def _argmax_parts(
    logits_ptr,
    best_ptr,
    token_ptr,
    vocab,
    num_parts,
    stride_row,
    WIDTH: tl.constexpr,
    SPAN: tl.constexpr,
):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    best = float("-inf")
    token = part * SPAN  # of a part that is -inf throughout
    for start in range(part * SPAN, tl.minimum((part + 1) * SPAN, vocab), WIDTH):
        lane = start + tl.arange(0, WIDTH)
        x = tl.load(logits_ptr + row * stride_row + lane, mask=lane < vocab, other=float("-inf"))
        x = x.to(tl.float32)
        x = tl.where(x != x, float("inf"), x)  # NaN wins, as in torch
        here = tl.max(x, 0)
        # The first of equals: the lowest lane of a tile, and the earlier of two tiles.
        if here > best:
            token = start + tl.argmax(x, 0, tie_break_left=True)
            best = here
    tl.store(best_ptr + row * num_parts + part, best)
    tl.store(token_ptr + row * num_parts + part, token)


@triton.jit(do_not_specialize=["num_parts"])
def _argmax_merge(best_ptr, token_ptr, out_ptr, num_parts, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, WIDTH)
    real = lane < num_parts
    best = tl.load(best_ptr + row * num_parts + lane, mask=real, other=float("-inf"))
    winner = tl.argmax(best, 0, tie_break_left=True)
    tl.store(out_ptr + row, tl.load(token_ptr + row * num_parts + winner).to(tl.int64))


def argmax(logits: torch.Tensor, out: torch.Tensor) -> None:
    """out[r] = the lowest id of the highest logit. logits: [rows, vocab]; out: int64 [rows]."""
    rows, vocab = logits.shape
    assert out.shape == (rows,)
    assert out.dtype == torch.int64
    assert out.is_contiguous()
    assert logits.stride(1) == 1
    parts = triton.cdiv(vocab, PART)
    best = torch.empty((rows, parts), dtype=torch.float32, device=logits.device)
    token = torch.empty((rows, parts), dtype=torch.int32, device=logits.device)
    _argmax_parts[(rows, parts)](logits, best, token, vocab, parts, logits.stride(0), WIDTH=TILE, SPAN=PART)
    _argmax_merge[(rows,)](best, token, out, parts, WIDTH=triton.next_power_of_2(parts))
