"""The simulated grid as a page plays with it: the settings behind it, its axes, its points. Draws nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from interleave.report.marks import Value
from interleave.report.phrases import compared, duration
from interleave.report.printed import spoken

START: dict[str, Any] = {"policy": "chunked", "chunk_budget": 512, "long_share": 0.4, "load": 0.85}
"""What is shown at first, or the nearest that the grid has. At this share the mixture is the published draw."""


def points(grid: Mapping[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(grid["rows"], columns=grid["columns"])


def nearest(values: list[float], wanted: float) -> float:
    return min(values, key=lambda value: abs(value - wanted))


def start(grid: Mapping[str, Any]) -> dict[str, Any]:
    """Where the page begins: START, moved onto the grid."""
    axes = grid["axes"]
    policy = START["policy"] if START["policy"] in axes["policies"] else axes["policies"][0]
    names = {"chunk_budget": "chunk_budgets", "long_share": "long_shares", "load": "loads"}
    return {"policy": policy} | {one: nearest(axes[many], START[one]) for one, many in names.items()}


def picture(grid: Mapping[str, Any]) -> dict[str, Any]:
    """What the page needs of the grid: no provenance, no model."""
    return {
        "limits": grid["setting"]["limits"],
        "axes": grid["axes"],
        "start": start(grid),
        "columns": grid["columns"],
        "rows": grid["rows"],
    }


def at(grid: Mapping[str, Any], policy: str, **where: float) -> pd.DataFrame:
    """The points of a policy at one load and share (and budget), by budget."""
    found = points(grid)
    found = found[found["policy"] == policy]
    for name, value in where.items():
        found = found[found[name] == value]
    return found


def explorer_values(grid: Mapping[str, Any], source: str) -> dict[str, Value]:
    """What prose says of the grid, under `explorer.`: exact settings, and one comparison at its start."""
    setting, first = grid["setting"], start(grid)
    limits = setting["limits"]
    exact = {
        "points": f"{len(grid['rows']):,}",
        "requests": f"{setting['num_requests']:,}",
        "rows": f"{setting['max_rows']} rows",
        "short": listed(setting["short_prompts"]),
        "long": listed(setting["long_prompts"]),
        "limit_ttft": f"{limits['ttft_s']:g} s",
        "limit_gap": duration(limits["max_gap_s"]),
        "load": f"{first['load']:.0%}",
        "share": f"{first['long_share']:.0%}",
        "budget": f"{first['chunk_budget']} tokens",
    }
    here = {"load": first["load"], "long_share": first["long_share"]}
    whole = at(grid, "whole", **here).iloc[0]
    chunked = at(grid, "chunked", **here, chunk_budget=first["chunk_budget"]).iloc[0]
    said = {
        "gap_whole": duration(whole["gap_max_s"]),
        "gap_chunked": duration(chunked["gap_max_s"]),
        "gap_change": compared(chunked["gap_max_s"], whole["gap_max_s"], "shorter", "longer"),
        "good_whole": f"{spoken(whole['goodput'], 2)} requests/s",
        "good_chunked": f"{spoken(chunked['goodput'], 2)} requests/s",
    }
    values = {name: Value(text, None, source) for name, text in exact.items()}
    values |= {name: Value(text, grid["mark"], source) for name, text in said.items()}
    return {f"explorer.{name}": value for name, value in values.items()}


def listed(numbers: list[int]) -> str:
    """16, 64 or 256."""
    texts = [f"{number:,}" for number in numbers]
    return f"{', '.join(texts[:-1])} or {texts[-1]}" if len(texts) > 1 else texts[0]
