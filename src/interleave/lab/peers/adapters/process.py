"""The side of a peer's process: one JSON line a command on standard input, one JSON line an answer.

Runs under the peer's own interpreter, so this file and the adapters beside it import the standard
library and the peer, never the rest of this package. What a library prints goes to standard error.

    {"requests": [{"prompt": [ids], "max_tokens": n}, ...], "late": request or null, "after_tokens": n}
    {"wall_s": s, "times_s": [[...], ...], "tokens": [[...], ...], "late_s": s or null, "peak_bytes": n or null}

Times are seconds from the moment the requests were handed over; a late request is the last row. The
first line that a process writes is `{"versions": {...}, "flags": {...}, "load_s": s, "memory": {...}}`;
an engine that does not say what it keeps in memory has null there.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from importlib import metadata
from typing import Any, Protocol

Request = dict[str, Any]
"""`prompt`: token ids; `max_tokens`: how many are generated, end-of-text or not."""


class Adapter(Protocol):
    """A loaded engine. `versions` and `flags` say what was run and how; `memory`, if there is one, what it keeps."""

    versions: dict[str, str]
    flags: dict[str, Any]

    def run(self, requests: Sequence[Request], late: Request | None, after_tokens: int) -> dict[str, Any]:
        """Serve all of them greedily; `late` enters once the first request has `after_tokens` tokens."""
        ...


class SteppedEngine(Protocol):
    """An engine that the caller steps: one iteration of its scheduler a call."""

    versions: dict[str, str]
    flags: dict[str, Any]

    def add(self, key: int, request: Request) -> None: ...

    def step(self) -> Iterable[tuple[int, list[int]]]:
        """One iteration: the new tokens of each request that got some, by its key."""
        ...

    def busy(self) -> bool: ...


class Stepped:
    """An adapter from an engine that is stepped by hand; a token's time is the end of its step."""

    def __init__(self, engine: SteppedEngine) -> None:
        self.engine = engine
        self.versions, self.flags = engine.versions, engine.flags
        self.memory: dict[str, int] | None = getattr(engine, "memory", None)
        self._next_key = 0

    def run(self, requests: Sequence[Request], late: Request | None, after_tokens: int) -> dict[str, Any]:
        rows, keys = list(requests), {}
        times_s: list[list[float]] = []
        tokens: list[list[int]] = []
        late_s = None
        start = time.perf_counter()

        def add(request: Request) -> None:
            keys[self._next_key] = len(times_s)
            times_s.append([])
            tokens.append([])
            self.engine.add(self._next_key, request)
            self._next_key += 1

        for request in rows:
            add(request)
        while self.engine.busy() or (late is not None and late_s is None):
            if late is not None and late_s is None and len(tokens[0]) >= after_tokens:
                late_s = time.perf_counter() - start
                add(late)
            new = list(self.engine.step())
            now_s = time.perf_counter() - start
            for key, ids in new:
                tokens[keys[key]] += ids
                times_s[keys[key]] += [now_s] * len(ids)
        wall_s = time.perf_counter() - start
        return {"wall_s": wall_s, "times_s": times_s, "tokens": tokens, "late_s": late_s}


def versions(*packages: str) -> dict[str, str]:
    """Installed versions by package; those that are not installed are left out."""
    found = {}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def memory_bytes(name: str) -> int | None:
    """Resident memory of this process, now (VmRSS) or at its highest (VmHWM); None where Linux does not tell."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            lines = dict(line.split(":", 1) for line in status)
    except (OSError, ValueError):
        return None
    return int(lines[name].split()[0]) * 1024 if name in lines else None


def answer(make: Callable[[dict[str, Any]], Adapter]) -> None:
    """Load the engine with the options in the first argument (JSON), then answer until input ends."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # libraries print where the answers would go
    start = time.perf_counter()
    adapter = make(json.loads(sys.argv[1]))
    hello = {"versions": adapter.versions, "flags": adapter.flags, "load_s": time.perf_counter() - start}
    hello["memory"] = getattr(adapter, "memory", None)
    print(json.dumps(hello), file=out, flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        found = adapter.run(command["requests"], command["late"], command["after_tokens"])
        print(json.dumps({**found, "peak_bytes": memory_bytes("VmHWM")}), file=out, flush=True)
    out.close()
    os._exit(0)  # no library's threads or destructors can keep the process
