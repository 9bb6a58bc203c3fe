"""One engine in a process of its own, from the caller's side: start, serve, close.

A peer's process gets the standard library, its own packages and this package (a link in a folder that only
it sees), so an engine never imports another one's libraries.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from types import TracebackType
from typing import Any, Self

import psutil

import interleave
from interleave.lab.peers.engines import OUR_SIDE, Engine
from interleave.lab.peers.workload_file import Workload

ADAPTERS = "interleave.lab.peers.adapters"
TAIL_LINES = 8
ANSWER_LIMIT_S = 1800.0
"""An engine may take so long to load, and to serve a workload once; then it counts as hung."""
END_S = 10.0
# Set for this project's own threads; a peer waits as it does by default.
OUR_SETTINGS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


class PeerError(RuntimeError):
    """An engine's process failed: whose is in `engine`; the message has the last lines that it wrote."""

    def __init__(self, engine: Engine, message: str) -> None:
        super().__init__(f"{engine.label}{message}")
        self.engine = engine


@dataclass(frozen=True, slots=True)
class PeerRun:
    """What one run left: seconds from its start, by request in the workload's order (the late one last).

    peak_bytes: the most memory that the process has held since it began, None where it cannot tell.
    """

    wall_s: float
    times_s: list[list[float]]
    tokens: list[list[int]]
    late_s: float | None
    peak_bytes: int | None = None


class EngineProcess:
    """A context manager; `hello` has the engine's versions, flags and load time once it is entered."""

    def __init__(self, engine: Engine, python: str, options: Mapping[str, Any]) -> None:
        self.engine = engine
        self.hello: dict[str, Any] = {}
        self._python = python
        self._options = dict(options)

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="interleave-peer-"))
        package = Path(interleave.__path__[0]).absolute()
        if self.engine.name in OUR_SIDE:
            # Compiled kernels are found again by the path of their source, so ours keeps its own.
            self._path = package.parent
        else:
            self._path = self._folder
            (self._folder / "interleave").symlink_to(package)
        self._log = (self._folder / "stderr").open("w+b")
        self._process = subprocess.Popen(
            [self._python, "-m", f"{ADAPTERS}.{self.engine.adapter}", json.dumps(self._options)],
            cwd=self._folder,
            env=self._environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        try:
            self.hello = self._answer()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._end()

    def serve(self, workload: Workload) -> PeerRun:
        """Serve a workload once. Raises PeerError if the process dies, hangs or gives other counts than asked."""
        command = {
            "requests": [ask.as_json() for ask in workload.requests],
            "late": workload.late and workload.late.as_json(),
            "after_tokens": workload.after_tokens,
        }
        assert self._process.stdin is not None
        never_reads = Timer(ANSWER_LIMIT_S, self._kill)
        never_reads.start()
        try:
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise self._failure() from error
        finally:
            never_reads.cancel()
        served = PeerRun(**self._answer())
        asked = [ask.max_tokens for ask in workload.everyone]
        given = [len(tokens) for tokens in served.tokens]
        if given != asked or [len(times) for times in served.times_s] != asked:
            raise PeerError(
                self.engine,
                f", {workload.name}: asked for {_listed(asked)} tokens, it generated {_listed(given)}",
            )
        return served

    def _environment(self) -> dict[str, str]:
        ours = self.engine.name in OUR_SIDE
        threads = str(self._options["threads"])
        environment = {
            name: value
            for name, value in os.environ.items()
            if ours or name not in (*OUR_SETTINGS, "PYTHONHOME", "PYTHONPATH")
        }
        inherited = environment.get("PYTHONPATH")
        path = [str(self._path), *([inherited] if inherited else [])]
        return environment | {"PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": threads}

    def _answer(self) -> dict[str, Any]:
        """The next line of its output. PeerError if it ends first, or takes more than ANSWER_LIMIT_S."""
        assert self._process.stdout is not None
        pipe, late_at, line = self._process.stdout.fileno(), time.monotonic() + ANSWER_LIMIT_S, b""
        while not line.endswith(b"\n"):
            left_s = late_at - time.monotonic()
            if left_s <= 0 or not select.select([pipe], [], [], left_s)[0]:
                self._kill()
                raise PeerError(
                    self.engine,
                    f" gave no answer within {ANSWER_LIMIT_S:g} s and was ended:\n    {self._said()}",
                )
            piece = os.read(pipe, 1 << 20)
            if not piece:
                raise self._failure()
            line += piece
        return dict(json.loads(line))

    def _failure(self) -> PeerError:
        """It has closed its output, so it is about to end."""
        try:
            self._process.wait(timeout=END_S)
        except subprocess.TimeoutExpired:
            self._kill()
        return PeerError(self.engine, f" ended with code {self._process.wait()}:\n    {self._said()}")

    def _said(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()[-TAIL_LINES:]
        return "\n    ".join(lines) or "it wrote nothing"

    def _kill(self) -> None:
        """And its workers, which would go on beside whoever is timed next."""
        with contextlib.suppress(psutil.Error):
            for worker in psutil.Process(self._process.pid).children(recursive=True):
                worker.kill()
        self._process.kill()

    def _end(self) -> None:
        """Close its input, which ends it; kill it if that does not."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        try:
            self._process.wait(timeout=END_S)
        except subprocess.TimeoutExpired:
            self._kill()
            self._process.wait()
        self._log.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def _listed(counts: Sequence[int]) -> str:
    return ", ".join(map(str, counts)) or "no"
