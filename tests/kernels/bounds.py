"""How far a kernel may be from exact arithmetic: the rounding of its type, nothing else."""

from __future__ import annotations

import torch

STEPS = {torch.float32: 2.0**-23, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}
"""One unit in the last place, relative to the value, by dtype (IEEE 754; bfloat16: 8 bits)."""


def assert_close(got: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype, steps: float) -> None:
    """Every element within `steps` units in the last place of the exact one, or of 1 where it is smaller.

    Sums of values of order one are no better than that where they cancel.
    """
    bound = steps * STEPS[dtype] * exact.abs().clamp(min=1.0)
    gap = (got.double() - exact).abs()
    assert bool((gap <= bound).all()), f"off by up to {float((gap / bound).max()) * steps:.2f} steps"
