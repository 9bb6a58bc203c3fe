"""What one run of an engine says: its row, its decode steps, and whether its tokens are the same."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from interleave.lab.peers.process import PeerRun
from interleave.lab.peers.workload_file import Workload
from interleave.lab.point_table import Row


def run_row(served: PeerRun, workload: Workload, pair: str, engine: str, run: int) -> Row:
    """What one run says, in seconds: wall; the median step in which all rows decode; and around a late
    request the worst gap that it causes, the median gap, and its own first token. None where not asked."""
    row: dict[str, Any] = {
        "pair": pair,
        "engine": engine,
        "workload": workload.name,
        "run": run,
        "requests": len(workload.everyone),
        "prompt_tokens": workload.trace.num_prompt_tokens,
        "new_tokens": workload.trace.num_new_tokens,
        "wall_s": served.wall_s,
        "peak_bytes": served.peak_bytes,
    }
    steps = decode_steps_s(served) if workload.late is None else []
    row["step_s"] = statistics.median(steps) if steps else None
    row |= {"worst_gap_s": None, "median_gap_s": None, "late_ttft_s": None}
    if workload.late is not None and served.late_s is not None:
        early = served.times_s[:-1]
        gaps = [(end, end - start) for times in early for start, end in pairwise(times)]
        row["worst_gap_s"] = max((gap for end, gap in gaps if end > served.late_s), default=None)
        row["median_gap_s"] = statistics.median(gap for _, gap in gaps)
        row["late_ttft_s"] = served.times_s[-1][0] - served.late_s
    return row


def decode_steps_s(served: PeerRun) -> list[float]:
    """Gaps of the first row while every row is decoding: after the last first token, before the first end."""
    begin = max(times[0] for times in served.times_s)
    end = min(times[-1] for times in served.times_s)
    inside = [at for at in served.times_s[0] if begin <= at <= end]
    return [after - before for before, after in pairwise(inside)]


def check_line(ours: Sequence[Sequence[int]], theirs: Sequence[Sequence[int]]) -> str:
    """Whether two engines gave the same greedy tokens, and where they first differ."""
    said = []
    for number, (a, b) in enumerate(zip(ours, theirs, strict=True), 1):
        differs = next((i for i, (x, y) in enumerate(zip(a, b, strict=True), 1) if x != y), None)
        if differs is not None:
            said.append(f"prompt {number} differs from token {differs} of {len(a)}")
    total = sum(map(len, ours))
    return ", ".join(said) or f"the same {total} greedy tokens on {len(ours)} check prompts"


def shown(row: Row) -> str:
    """A row in a line for whoever waits."""
    parts = [f"wall {row['wall_s']:.2f} s"]
    for name, label in (("step_s", "step"), ("worst_gap_s", "worst gap"), ("median_gap_s", "median gap")):
        if row[name] is not None:
            parts.append(f"{label} {float(row[name] or 0) * 1e3:.1f} ms")
    return ", ".join(parts)
