"""The columns by which a row of measurements carries its floor; null where no ceilings have been measured."""

from __future__ import annotations

from collections.abc import Iterable

from interleave.engine.records import StepRecord
from interleave.lab.point_table import Row
from interleave.lab.roofline import Roofline


def floor_columns(steps: Iterable[StepRecord], roofline: Roofline | None) -> Row:
    """The sum of the steps' floors, and the ceilings that it was computed with."""
    if roofline is None:
        return {"floor_s": None, "read_bytes_per_s": None, "gemm_flops_per_s": None}
    ceilings = roofline.ceilings
    return {
        "floor_s": roofline.run_floor_s(steps),
        "read_bytes_per_s": ceilings.read_bytes_per_s,
        "gemm_flops_per_s": ceilings.gemm_flops_per_s,
    }


def step_floor(step: StepRecord, roofline: Roofline | None) -> float | None:
    """The floor of one step in seconds."""
    return None if roofline is None else roofline.step_floor_s(step)
