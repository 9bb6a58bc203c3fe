"""One wording for every refused name: what was given, what is allowed, what was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(kind: str, given: object, allowed: Iterable[str]) -> str:
    """An error message for an unknown name, with the closest valid one first."""
    names = list(allowed)
    close = difflib.get_close_matches(str(given), names, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"unknown {kind} {given!r}{hint} (choose from: {', '.join(names)})"
