"""Any bytes, and sound files with something wrong: what a reader has to take or refuse in its own words."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

PIECES = [
    b"", b"\x00", b"\xff", b"\xef\xbb\xbf", b"\r", b"\n\n", b'"', b"'", b",", b",,", b"-", b"- ", b": ", b"[", b"{", b"]", b"}",
    b"nan", b"NaN", b"1e999", b"-1", b"0", b"9" * 5000, b"[" * 3000, b"{" * 3000, b"null", b"true", b"&a ", b"*a", b"!!int ",
    b"!!python/object:os.system ", b"../../x", b"\xed\xa0\x80", b"\\ud800", "٣".encode(), b"x" * 200_000, b"<<: ", b"? ", b"| ",
]  # fmt: skip
VALUES: list[Any] = [
    None, True, False, -1, 0, 1, 2**31, 2**63, 10**400, 0.5, -0.0, 1e300, "", "x", "1", "\x00", "\ud800", "../../x", "a" * 10_000,
    [], [1], [[]], {}, {"x": 1}, {"": None}, float("nan"), float("inf"),
]  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn, sound: bytes) -> bytes:
    """`sound` with up to four pieces cut out, doubled, or replaced by something a parser may trip over."""
    content = sound
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(content)))
        end = min(len(content), start + draw(st.sampled_from([0, 1, 2, 8, 64, 10**9])))
        cut = content[start:end]
        put = draw(st.sampled_from([b"", cut + cut]) | st.sampled_from(PIECES) | st.binary(max_size=8))
        content = content[:start] + put + content[end:]
    return content


@st.composite
def twisted(draw: st.DrawFn, sound: bytes) -> bytes:
    """The JSON document `sound` with up to three of its values replaced, removed or named otherwise."""
    document = json.loads(sound)
    for _ in range(draw(st.integers(1, 3))):
        at: Any = document
        steps = draw(st.integers(1, 6))
        for depth in range(steps):
            if not isinstance(at, (dict, list)) or not at:
                break
            names = sorted(at) if isinstance(at, dict) else range(len(at))
            name = draw(st.sampled_from(names))
            if depth < steps - 1 and isinstance(at[name], (dict, list)) and at[name]:
                at = at[name]
                continue
            what = draw(st.sampled_from(["replace", "replace", "remove", "rename"]))
            value = deepcopy(draw(st.sampled_from(VALUES))) if what == "replace" else at.pop(name)
            if what == "replace":
                at[name] = value
            elif what == "rename" and isinstance(at, dict):
                at[draw(st.sampled_from(["", "x", "key", "device", "wall", name + "s"]))] = value
            break
    return json.dumps(document).encode("utf-8", "surrogatepass")


def refuse_or_take(read: Callable[[Path], Any], path: Path, content: bytes) -> bool:
    """Whether `read` takes a file that holds `content`; if not, it has to say so in the project's own words."""
    path.write_bytes(content)
    refusal: ValueError | None = None
    try:
        read(path)
    except ValueError as error:
        refusal = error
    assert path.read_bytes() == content
    if refusal is None:
        return True
    assert type(refusal) is ValueError or type(refusal).__module__.startswith("interleave"), repr(refusal)
    assert path.name in str(refusal) or path.parent.name in str(refusal), str(refusal)[:500]
    return False
