"""A grid of simulated points as one JSON file, written as the points arrive: policies x budgets x loads x mixtures.

The file is its own store. A second call reads it and computes what is missing; where the setting or the code
has changed, nothing of it counts. It is small enough to be put into a page.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from interleave.documents import read_document
from interleave.lab.code_hash import simulation_code
from interleave.lab.files import write_atomically
from interleave.lab.latency_file import model_to_json
from interleave.lab.paths import repo_root
from interleave.lab.provenance import simulated_provenance
from interleave.lab.sweep_point import (
    CUTTING,
    ENGINE_OF,
    LONG,
    METRICS,
    SHORT,
    SweepPoint,
    SweepSetting,
    simulate_point,
)
from interleave.lab.work_list import run_all
from interleave.schedule.names import nearest

SCHEMA_VERSION = 1
COLUMNS = (*SweepPoint._fields, "rate", *METRICS)


@dataclass(frozen=True, slots=True)
class Grid:
    """The axes. Budgets are for the policies that cut prompts. ValueError for an empty or impossible axis."""

    policies: tuple[str, ...]
    chunk_budgets: tuple[int, ...]
    loads: tuple[float, ...]
    long_shares: tuple[float, ...]

    def __post_init__(self) -> None:
        for name, values in asdict(self).items():
            if not values or len(set(values)) < len(values):
                given = ", ".join(map(str, values)) or "none"
                raise ValueError(f"{name} must hold at least one value, none of them twice; got {given}")
        for policy in self.policies:
            if policy not in ENGINE_OF:
                raise ValueError(nearest("policy", policy, ENGINE_OF))
        for name, low, high in (("chunk_budgets", 1, 1 << 20), ("loads", 1e-3, 100), ("long_shares", 0, 1)):
            for value in getattr(self, name):
                if not low <= value <= high:
                    raise ValueError(f"{name} must lie between {low:g} and {high:g}, got {value!r}")

    def points(self) -> list[SweepPoint]:
        return [
            SweepPoint(policy, budget, share, load)
            for share in self.long_shares
            for load in self.loads
            for policy in self.policies
            for budget in (self.chunk_budgets if policy in CUTTING else (None,))
        ]


EXPLORER = Grid(
    policies=("whole", "padded", "chunked", "mixed"),
    chunk_budgets=(64, 128, 256, 512, 1024, 2048),
    loads=(0.3, 0.5, 0.7, 0.85, 1.0, 1.2),
    long_shares=(0.0, 0.1, 0.2, 0.4, 0.7),
)


def run_sweep(
    grid: Grid,
    setting: SweepSetting,
    path: Path,
    *,
    executor: str = "local",
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Every point of the grid, those in the file at `path` read and the rest computed and added to it.

    Returns the document, in the grid's order. Whatever stops the sweep, the points until then are kept.
    """
    document = _header(grid, setting)
    known = _stored(path, document, say)
    points = grid.points()
    todo = [point for point in points if point not in known]
    say(f"{len(points)} points, {len(points) - len(todo)} of them stored")
    tasks = [(setting, point) for point in todo]
    for done, (number, found) in enumerate(run_all(executor, simulate_point, tasks, say=say), 1):
        known[todo[number]] = [*todo[number], *(found[name] for name in COLUMNS[len(SweepPoint._fields) :])]
        _write(path, document, points, known)
        if done % 20 == 0 or done == len(todo):
            say(f"  {done} of {len(todo)} computed")
    return _write(path, document, points, known)


def _header(grid: Grid, setting: SweepSetting) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "mark": "simulated",
        "setting": {
            **{name: getattr(setting, name) for name in ("num_requests", "seed", "scale", "max_rows")},
            "limits": asdict(setting.limits),
            "model": model_to_json(setting.model),
            "short_prompts": list(SHORT),
            "long_prompts": list(LONG),
        },
        "code": sweep_code(),
        "axes": {name: list(values) for name, values in asdict(grid).items()},
        "provenance": simulated_provenance(),
        "columns": list(COLUMNS),
    }


def sweep_code() -> str:
    """The hash of all code that the numbers of a sweep depend on."""
    return simulation_code(repo_root())


def _stored(
    path: Path, document: Mapping[str, Any], say: Callable[[str], None]
) -> dict[SweepPoint, list[Any]]:
    """The points of a file that this sweep would have made; none of a file from other code.

    ValueError, with the file as it was, for one of another setting: its points are somebody's.
    """
    if not path.exists():
        return {}
    found = read_sweep(path)
    mine, its = _asked(_plain(document["setting"])), _asked(found.get("setting"))
    if its != mine:
        other = [name for name in mine if not isinstance(its, dict) or its.get(name) != mine[name]]
        raise ValueError(f"{path} holds points of another setting ({', '.join(other)}): name another file")
    if any(found.get(name) != _plain(document[name]) for name in ("code", "columns", "setting")):
        say(f"{path} was made by other code: its points are computed again")
        return {}
    return {SweepPoint(*row[: len(SweepPoint._fields)]): row for row in found["rows"]}


def _asked(setting: Any) -> Any:
    """A setting less what its model was fitted to: that says how far to trust a point, not which point it is."""
    model = setting.get("model") if isinstance(setting, dict) else None
    return setting | {"model": model | {"fitted": None}} if isinstance(model, dict) else setting


def read_sweep(path: Path) -> dict[str, Any]:
    """The document at `path`. ValueError naming the file for one that is none."""
    document = read_document(path, what="so not a sweep")
    version = document.get("schema_version") if isinstance(document, dict) else None
    if version != SCHEMA_VERSION or "rows" not in document:
        raise ValueError(f"{path}: not a sweep of schema_version {SCHEMA_VERSION} (it has {version!r})")
    columns = document.get("columns")
    rows = document["rows"]
    if not isinstance(columns, list) or not isinstance(rows, list):
        raise ValueError(f"{path}: columns and rows must be lists")
    for number, row in enumerate(rows, 1):
        if not isinstance(row, list) or len(row) != len(columns):
            raise ValueError(f"{path}: row {number} must be a list of {len(columns)} values, got {row!r}")
        if wrong := [value for value in row if isinstance(value, (list, dict))]:
            raise ValueError(f"{path}: row {number} must hold texts and numbers, got {wrong[0]!r}")
    return dict(document)


def _write(
    path: Path,
    document: dict[str, Any],
    points: Sequence[SweepPoint],
    known: Mapping[SweepPoint, list[Any]],
) -> dict[str, Any]:
    """A line a point. A file holds the grid's points first and keeps those of other grids behind them."""
    order = [*points, *(point for point in known if point not in set(points))]
    rows = [known[point] for point in order if point in known]
    head = json.dumps(document, allow_nan=False, indent=1)
    lines = ",\n".join("  " + json.dumps(row, allow_nan=False) for row in rows)
    write_atomically(path, f'{head[:-2]},\n "rows": [\n{lines}\n ]\n}}\n')
    return {**document, "rows": [known[point] for point in points if point in known]}


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value))


def sweep_lines(document: Mapping[str, Any]) -> list[str]:
    """For a terminal: at each mixture and load, the policy and budget with most goodput; and a warning of points with
    steps outside of the model's fit."""
    rows = [dict(zip(document["columns"], row, strict=True)) for row in document["rows"]]
    lines = [
        f"{'long':>5} {'load':>5} {'best':>8} {'budget':>6} {'goodput':>8} {'served':>7} {'worst gap':>9}"
    ]
    for share, load in sorted({(row["long_share"], row["load"]) for row in rows}):
        here = [row for row in rows if (row["long_share"], row["load"]) == (share, load)]
        best = max(here, key=lambda row: row["goodput"])
        lines.append(
            f"{share:5g} {load:5g} {best['policy']:>8} {best['chunk_budget'] or '-':>6} {best['goodput']:8.3f} "
            f"{best['served_rate']:7.3f} {best['gap_max_s']:8.3f}s"
        )
    if outside := [row["outside_share"] for row in rows if row["outside_share"]]:
        lines.append(f"{'warning':14} {len(outside):,} of {len(rows):,} points have steps outside the fitted range, "
                     f"up to {max(outside):.1%} of them")  # fmt: skip
    return lines
