"""Workload files: requests as token ids, one file for every engine. Torch-free.

JSON, an object of workloads by name (data/schema/workloads.schema.json):

    {"peer-mixed32": [{"prompt": [ids], "max_tokens": 18}, ...],
     "peer-disturb": {"rows": [...], "late": {...}, "after_steps": 20},
     "check": [[ids], ...]}

A list is a batch that is all there at the start. In the second form `late` enters once the first row has
`after_steps` tokens. A bare list of ids is a request for CHECK_TOKENS tokens. Entries of any other form are
left alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interleave.documents import parse_document
from interleave.lab.paths import data_dir
from interleave.lab.trace import Trace, TraceRow
from interleave.schedule.names import nearest
from interleave.schedule.request import Request

CHECK_TOKENS = 24
OTHER_NAMES = {
    "peer-mixed32": "closed-mixed-32",
    "peer-uniform32": "uniform-32",
    "peer-disturb": "disturbance",
    "peer-decode1": "decode-step-1",
    "peer-decode8": "decode-step-8",
    "peer-decode32": "decode-step-32",
}
"""Second names under which a file may hold a workload."""
MAX_TOKEN_ID = 2**31 - 1


class WorkloadError(ValueError):
    """A workload file that cannot be used; the message names file, workload and row."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: prompt token ids, and how many tokens are generated."""

    prompt: tuple[int, ...]
    max_tokens: int

    def as_json(self) -> dict[str, Any]:
        return {"prompt": list(self.prompt), "max_tokens": self.max_tokens}


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests that are there at the start, and perhaps a late one after `after_tokens` of the first's."""

    name: str
    requests: tuple[Ask, ...]
    late: Ask | None = None
    after_tokens: int = 0

    @property
    def everyone(self) -> tuple[Ask, ...]:
        return self.requests + ((self.late,) if self.late else ())

    @property
    def trace(self) -> Trace:
        """The lengths, all due at 0."""
        return Trace(tuple(TraceRow(0.0, len(ask.prompt), ask.max_tokens) for ask in self.everyone))

    def engine_requests(self) -> list[Request]:
        """The batch as requests r0000, r0001, ... all due at 0. WorkloadError if one of them is late."""
        if self.late is not None:
            raise WorkloadError(
                f"workload {self.name!r} has a late request; only a plain batch can be closed"
            )
        return [
            Request(f"r{number:04d}", ask.prompt, ask.max_tokens) for number, ask in enumerate(self.requests)
        ]


def default_file() -> Path:
    """The committed peers' workload."""
    return data_dir() / "peers" / "workload.json"


class WorkloadFile:
    """An opened workload file. Raises WorkloadError if it cannot be read or is no object of workloads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            content = path.read_bytes()
        except OSError as error:
            raise WorkloadError(f"cannot read workload file {path}: {error}") from error
        if not content.strip():
            raise WorkloadError(f"{path}:1: the file is empty; it must be an object of workloads")
        document = parse_document(content, path, WorkloadError)
        if not isinstance(document, dict):
            raise WorkloadError(
                f"{path}: must be an object of workloads by name, not a {type(document).__name__}"
            )
        self.sha256 = hashlib.sha256(content).hexdigest()
        self._document: Mapping[str, Any] = document

    @property
    def names(self) -> list[str]:
        """What looks like a workload."""
        return [name for name, value in self._document.items() if _rows_of(value) is not None]

    def __contains__(self, name: str) -> bool:
        return self._spelled(name) in self._document

    def workload(self, name: str) -> Workload:
        """The workload called `name`, or by its name in OTHER_NAMES. WorkloadError for none, or a broken one."""
        if name not in self:
            raise WorkloadError(f"{self.path}: {nearest('workload', name, self.names)}")
        value = self._document[self._spelled(name)]
        rows = _rows_of(value)
        where = f"{self.path}: workload {name!r}"
        if rows is None:
            raise WorkloadError(f"{where}: must be a list of requests, or rows with a late request")
        if not rows:
            raise WorkloadError(f"{where}: holds no request")
        requests = tuple(_ask(row, f"{where}, row {number}") for number, row in enumerate(rows, 1))
        if isinstance(value, list):
            return Workload(name, requests)
        after = value.get("after_steps")
        if not _is_count(after) or after > requests[0].max_tokens:
            raise WorkloadError(
                f"{where}: after_steps must be a whole number from 1 to the first row's {requests[0].max_tokens} "
                f"tokens, got {after!r}"
            )
        return Workload(name, requests, _ask(value.get("late"), f"{where}, late request"), after)

    def _spelled(self, name: str) -> str:
        return name if name in self._document else OTHER_NAMES.get(name, name)


def _rows_of(value: object) -> list[Any] | None:
    rows = value.get("rows") if isinstance(value, dict) else value
    return rows if isinstance(rows, list) else None


def _ask(row: object, where: str) -> Ask:
    if isinstance(row, list):
        row = {"prompt": row, "max_tokens": CHECK_TOKENS}
    if not isinstance(row, dict) or row.keys() != {"prompt", "max_tokens"}:
        raise WorkloadError(f"{where}: must have exactly prompt and max_tokens")
    prompt, budget = row["prompt"], row["max_tokens"]
    if not isinstance(prompt, list) or not prompt:
        raise WorkloadError(f"{where}: prompt must be a list of at least one token id")
    wrong = next((t for t in prompt if type(t) is not int or not 0 <= t <= MAX_TOKEN_ID), None)
    if wrong is not None:
        raise WorkloadError(f"{where}: a token id must be a whole number of at least 0, got {wrong!r}")
    if not _is_count(budget):
        raise WorkloadError(f"{where}: max_tokens must be a whole number of at least 1, got {budget!r}")
    return Ask(tuple(prompt), budget)


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 1
