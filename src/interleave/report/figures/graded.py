"""Predictions with a range, graded by what was measured."""

from __future__ import annotations

from collections.abc import Mapping


def verdict(number: str, what: str, value: float | None, low: float, high: float) -> Mapping[str, object]:
    """A line of the table of predictions: held if low <= value <= high; None for what did not run."""
    predicted = f"at least {low:g}" if high == float("inf") else f"{low:.3g} to {high:.3g}"
    held = "not run" if value is None else "held" if low <= value <= high else "missed"
    return {"no.": number, "quantity": what, "predicted": predicted, "measured": value, "verdict": held}
