"""What a run on a borrowed GPU host found, as a table for a terminal. Reads stored points; measures nothing."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from interleave.lab.gpu_host.sections import PROFILE
from interleave.lab.point_table import Row
from interleave.lab.results import PointStore


def summary_lines(folder: Path, manifest: Mapping[str, Any]) -> Iterator[str]:
    """The host, how each section ended, and the few numbers that matter of each."""
    commit = manifest["git_commit"] or "unknown"
    yield f"{manifest['device']} ({manifest['driver']}), commit {commit[:12]}, {manifest['started_at']}"
    if not manifest["as_expected"]:
        yield f"NOT the expected device ({manifest['expected']}): keep these results apart"
    for section in manifest["sections"]:
        yield f"{section['name']:18} {section['status']:32} {section['wall_s']:7.1f} s"
        yield from (f"    {line}" for line in section.get("said", []))
    for experiment, lines in _TABLES.items():
        rows = PointStore(folder / "results", PROFILE, experiment).load_all()
        if rows:
            yield ""
            yield experiment
            yield from lines(rows)


def failures(rows: list[Row]) -> int:
    """Checks that failed, over all rows."""
    return sum(failed for row in rows if isinstance(failed := row.get("failed"), int))


def _checks(rows: list[Row]) -> Iterator[str]:
    yield f"  {len(rows)} rows, {failures(rows)} failed"
    for row in rows:
        if row["failed"]:
            facts = ", ".join(
                f"{name} {value}" for name, value in row.items() if name not in ("key", "device")
            )
            yield f"  FAILED {facts}"


def _layouts(rows: list[Row]) -> Iterator[str]:
    for group in _grouped(rows, "rows", "mean", "spread", "chunk"):
        first = group[0]
        medians = {
            layout: statistics.median(_number(row["call_s"]) for row in group if row["layout"] == layout)
            for layout in dict.fromkeys(str(row["layout"]) for row in group)
        }
        what = "the mixed draw" if first["mean"] is None else f"{first['mean']}, spread {first['spread']}"
        times = ", ".join(
            f"{layout} {seconds * 1e3:.4f} ms ({seconds / medians['separate']:.2f} x)"
            for layout, seconds in medians.items()
        )
        count = len(group) // len(medians)
        yield f"  {first['rows']:>3} rows of {what}, chunk {first['chunk']}: {times}, n = {count}"


def _decode(rows: list[Row]) -> Iterator[str]:
    timed = [row for row in rows if row["kind"] == "step"]
    for group in _grouped(timed, "weights", "rows", "engine"):
        first = group[0]
        step_ms = sorted(_number(row["step_s"]) * 1e3 for row in group)
        middle, floor_ms = statistics.median(step_ms), _number(first["floor_s"]) * 1e3
        yield (
            f"  {first['rows']:>4} rows, {first['weights']!s:6} {first['engine']!s:9} {middle:8.3f} ms a step "
            f"({step_ms[0]:.3f} to {step_ms[-1]:.3f}, n = {len(group)}), {middle / floor_ms:5.2f} x floor, "
            f"{first['kernels'] or '-'} kernels, {first['compiled']} compiled"
        )
    for group in _grouped([row for row in rows if row["kind"] == "served"], "rows", "engine"):
        first = group[0]
        yield f"  {first['rows']:>4} rows, whole runs {first['engine']!s:9} {_spread(group, 'served_rate')} requests/s"


def _closed(rows: list[Row]) -> Iterator[str]:
    for group in _grouped(rows, "batch", "rows", "engine"):
        first = group[0]
        yield (
            f"  {first['batch']}{first['rows']} {first['engine']!s:10} wall {_spread(group, 'wall_s')} s, "
            f"decode {_spread(group, 'decode_rate')} tokens/s, worst gap {_spread(group, 'worst_gap_s')} s"
        )


def _trace(rows: list[Row]) -> Iterator[str]:
    for group in _grouped(rows, "rows", "engine"):
        gaps = sorted(_number(row["gap_s"]) for row in group if row["kind"] == "gap")
        wall = [row["wall_s"] for row in group if row["kind"] == "run"]
        if gaps:
            yield (
                f"  {group[0]['rows']:>3} rows {group[0]['engine']!s:10} wall {_number(wall[0]):7.2f} s, gaps: "
                f"median {statistics.median(gaps) * 1e3:.2f} ms, worst {gaps[-1] * 1e3:.2f} ms, n = {len(gaps)}"
            )


def _sweep(rows: list[Row]) -> Iterator[str]:
    for row in rows:
        if row["kind"] in ("serve", "target"):
            limit = f"budget {row['budget']:>5}"
            if row["kind"] == "target":
                limit = f"{row['decode_steps']:g} decode steps"
            yield (
                f"  {row['engine']!s:10} {limit}: wall {_number(row['wall_s']):7.2f} s, worst gap "
                f"{_number(row['worst_gap_s']) * 1e3:.2f} ms"
            )


def _arrivals(rows: list[Row]) -> Iterator[str]:
    for group in _grouped([row for row in rows if row["kind"] == "measured"], "load", "engine"):
        first = group[0]
        waits = [_number(row["ttft_s"]) for row in group]
        yield (
            f"  load {first['load'] or 'all at once'!s:11} {first['engine']!s:10} served "
            f"{_number(first['run_served_rate']):6.2f}/s, TTFT median {statistics.median(waits):.3f} s, "
            f"worst gap {_number(first['run_worst_gap_s']) * 1e3:.1f} ms, n = {len(group)}"
        )


def _grouped(rows: list[Row], *names: str) -> list[list[Row]]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return list(groups.values())


def _spread(rows: list[Row], name: str) -> str:
    values = [_number(row[name]) for row in rows if row[name] is not None]
    if not values:
        return "-"
    return f"{statistics.median(values):.4g} ({min(values):.4g} to {max(values):.4g}, n = {len(values)})"


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)


_TABLES = {
    "agreement": _checks,
    "kernel_checks": _checks,
    "gate_random": _checks,
    "kernel_layout": _layouts,
    "recorded_decode": _decode,
    "closed_batches": _closed,
    "step_trace": _trace,
    "chunk_budget": _sweep,
    "arrival_curves": _arrivals,
}
