"""How much a plan holds, in two numbers."""

from __future__ import annotations

from interleave.schedule.plan import StepPlan


def counts(plan: StepPlan) -> tuple[int, int]:
    """(prompt positions, decodes)."""
    pieces = [piece for forward in plan.forwards for piece in forward]
    decodes = sum(piece.is_decode for piece in pieces)
    return sum(piece.num_tokens for piece in pieces) - decodes, decodes
