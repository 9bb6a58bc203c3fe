"""One engine in a process of its own, from the caller's side: start, serve, close.

A peer's process gets the standard library, its own packages and this package (a link in a folder that only
it sees), so an engine never imports another one's libraries.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import interleave
from interleave.lab.peers.engines import OUR_SIDE, Engine
from interleave.lab.peers.workload_file import Workload

ADAPTERS = "interleave.lab.peers.adapters"
TAIL_LINES = 8
# Set for this project's own threads; a peer waits as it does by default.
OUR_SETTINGS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


class PeerError(RuntimeError):
    """An engine's process failed; the message has the last lines that it wrote."""


@dataclass(frozen=True, slots=True)
class Served:
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
            text=True,
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

    def serve(self, workload: Workload) -> Served:
        """Serve a workload once. Raises PeerError if the process dies or gives other counts than asked."""
        command = {
            "requests": [ask.as_json() for ask in workload.requests],
            "late": workload.late and workload.late.as_json(),
            "after_tokens": workload.after_tokens,
        }
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise self._failure() from error
        served = Served(**self._answer())
        asked = [ask.max_tokens for ask in workload.everyone]
        given = [len(tokens) for tokens in served.tokens]
        if given != asked or [len(times) for times in served.times_s] != asked:
            raise PeerError(
                f"{self.engine.label}, {workload.name}: {asked} tokens asked for, {given} generated"
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
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._failure()
        return dict(json.loads(line))

    def _failure(self) -> PeerError:
        self._process.wait()
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()[-TAIL_LINES:]
        said = "\n    ".join(lines) or "it wrote nothing"
        return PeerError(f"{self.engine.label} ended with code {self._process.returncode}:\n    {said}")

    def _end(self) -> None:
        """Close its input, which ends it; kill it if that does not."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()
        shutil.rmtree(self._folder, ignore_errors=True)
