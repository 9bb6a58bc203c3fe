"""One wording for every refused name: what was given, what is allowed, what was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(kind: str, given: object, allowed: Iterable[str]) -> str:
    """An error message for an unknown name, with the closest valid one first."""
    names = list(allowed)
    return f"unknown {kind} {given!r}{hint(given, names)} (choose from: {', '.join(names)})"


def hint(given: object, allowed: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or nothing where no valid name is close."""
    close = difflib.get_close_matches(str(given), list(allowed), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
