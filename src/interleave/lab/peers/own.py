"""What is asked of this engine alone: how soon a new process gives a token, and what it holds beyond its data."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from interleave.lab.peers.engines import OUR_ENGINE, OURS
from interleave.lab.peers.process import EngineProcess
from interleave.lab.peers.workload_file import Ask, Workload
from interleave.lab.point_table import Row


def starts_s(
    python: str, options: Mapping[str, Any], prompt: Sequence[int], warmup: Workload, count: int
) -> list[float]:
    """Seconds from no process to the first token of a prompt, weights and machine code on disk.

    One process before those that count serves the warm-up and that prompt, which leaves both there.
    """
    first, taken = Workload("first token", (Ask(tuple(prompt), 1),)), []
    with EngineProcess(OUR_ENGINE, python, options) as process:
        process.serve(warmup)
        process.serve(first)
    for _ in range(count):
        begin = time.perf_counter()
        with EngineProcess(OUR_ENGINE, python, options) as process:
            process.serve(first)
            taken.append(time.perf_counter() - begin)
    return taken


def excess_bytes(memory: Mapping[str, int] | None, rows: Sequence[Row]) -> int | None:
    """This engine's highest memory less what it had after imports, every stored copy of the weights, and the
    pool; None where that is not known."""
    peaks = [int(row["peak_bytes"]) for row in rows if row["engine"] == OURS and row["peak_bytes"]]
    if memory is None or not peaks:
        return None
    return max(peaks) - memory["import_bytes"] - memory["weight_bytes"] - memory["pool_bytes"]
