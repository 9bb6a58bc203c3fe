"""Reading JSON strictly: every refusal names the file. Does not know what a document holds."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import ValidationError


class DocumentError(ValueError):
    """A file that holds no JSON; the message starts with its path and, where it has one, line."""


def read_document(path: Path, refused: type[ValueError] = DocumentError, *, what: str = "") -> Any:
    """The value in a JSON file. Raises `refused` for what cannot be read, text that is not UTF-8 or no JSON.

    Stricter than Python: a name twice in one object is refused, and so are NaN, infinity and numbers beyond
    what a float or an int of this interpreter holds. what: what the file should have been, for the message.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise refused(f"cannot read {path}: {error.strerror or error}") from error
    return parse_document(content, path, refused, what=what)


def parse_document(
    content: bytes, path: Path, refused: type[ValueError] = DocumentError, *, what: str = ""
) -> Any:
    """The same for bytes that came from `path`."""
    wanted = f"not JSON{what and f', {what}'}"
    if not content.strip():
        raise refused(f"{path}:1: {wanted}: the file is empty")
    try:
        return json.loads(
            content.decode("utf-8"),
            object_pairs_hook=_once_each,
            parse_constant=_no_number,
            parse_float=_finite,
        )
    except json.JSONDecodeError as error:
        raise refused(f"{path}:{error.lineno}: {wanted}: {error.msg}") from error
    except UnicodeDecodeError as error:
        raise refused(f"{path}: {wanted}: not UTF-8 text (byte {error.start})") from error
    except RecursionError as error:
        raise refused(f"{path}: {wanted}: nested too deeply") from error
    except ValueError as error:  # one of the hooks, or more digits than an int may have
        raise refused(f"{path}: {wanted}: {error}") from error


def finding(error: ValidationError) -> str:
    """The first thing wrong with a document: where in it, what is needed, what is there."""
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    got = repr(first["input"])
    return f"{where}: {first['msg']}, got {got if len(got) <= 80 else got[:79] + '…'}"


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        [(twice, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"{twice!r} stands twice in one object")
    return found


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"{text} is too large")
    return number
