"""How a running kernel tells the terminal where it is, without an output cell seeing any of it.

The runner names a file in the kernel's environment; the kernel appends one JSON object a line, the
runner reads them. Where no runner listens, a line goes to the terminal that started the kernel, if
there is one. Knows nothing of notebooks or points.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

CHANNEL_VARIABLE = "INTERLEAVE_CHANNEL"


def say(text: str) -> None:
    """One line for the person at the terminal."""
    if CHANNEL_VARIABLE in os.environ:
        send("say", text)
        return
    with suppress(OSError), open("/dev/tty", "w") as terminal:
        terminal.write(f"{text}\n")


def send(kind: str, content: Any) -> None:
    """Tell the runner `content` (JSON-able); nobody hears it where there is no runner."""
    channel = os.environ.get(CHANNEL_VARIABLE)
    if channel:
        with open(channel, "a", encoding="utf-8") as file:
            file.write(json.dumps({kind: content}) + "\n")


def bar(done: int, total: int, width: int = 12) -> str:
    """`[######------]  6/12`"""
    filled = width * done // total if total else width
    return f"[{'#' * filled}{'-' * (width - filled)}] {done:>{len(str(total))}}/{total}"


class Channel:
    """The runner's end: what the kernel has sent since the last look."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()
        self._read = 0

    def receive(self) -> list[dict[str, Any]]:
        """Whole lines only; a line still being written waits for the next look."""
        with self.path.open("rb") as file:
            file.seek(self._read)
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._read += len(whole)
        return [json.loads(line) for line in whole.splitlines()]
