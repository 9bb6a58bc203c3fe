"""What the greedy op says of a row of logits that holds NaN or infinity; shared by its three versions."""

from __future__ import annotations

import torch
from torch import Tensor

NOT_FINITE = -1
"""In place of a token."""


def only_finite(logits: Tensor, tokens: Tensor) -> Tensor:
    """The tokens [rows] of logits [rows, vocab], NOT_FINITE for a row that is not; NaN wins a minimum."""
    low, high = torch.aminmax(logits, dim=-1)
    return tokens.masked_fill(~(torch.isfinite(low) & torch.isfinite(high)), NOT_FINITE)
