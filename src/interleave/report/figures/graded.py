"""Predictions with a range, graded by what was measured."""

from __future__ import annotations

from collections.abc import Mapping

BEYOND = float("inf")


def verdict(number: str, what: str, value: float | None, low: float, high: float) -> Mapping[str, object]:
    """A line of the table of predictions: held if low <= value <= high; None for what did not run.

    A range may be open on one side (-inf or inf).
    """
    if high == BEYOND:
        predicted = f"at least {low:g}"
    elif low == -BEYOND:
        predicted = f"at most {high:g}"
    else:
        predicted = f"{low:.3g} to {high:.3g}"
    held = "not run" if value is None else "held" if low <= value <= high else "missed"
    return {"no.": number, "quantity": what, "predicted": predicted, "measured": value, "verdict": held}


def ratio(top: float | None, bottom: float | None) -> float | None:
    """top / bottom; None where one is missing or NaN. Nothing over nothing is 1, something over nothing infinite."""
    if top is None or bottom is None or top != top or bottom != bottom:
        return None
    if bottom == 0:
        return 1.0 if top == 0 else BEYOND
    return top / bottom
