"""Tables of recorded decode, and its predictions graded. Takes the experiment's rows; measures nothing."""

from __future__ import annotations

import pandas as pd
from pydantic import BaseModel

from interleave.report.figures.graded import verdict
from interleave.report.figures.published_decode import PUBLISHED_STEP_MS, change
from interleave.report.figures.recorded_decode import ENGINES, of, part_seconds, steps

PAST_CAPACITY = 5.0
"""Requests/s: the published engine's peak is below."""
BEYOND = float("inf")


def steps_table(table: pd.DataFrame) -> pd.DataFrame:
    """Median steps, their paired ratio, and how much of the possible each reaches."""
    real = table[table["weights"] == "model"].sort_values("rows")
    return pd.DataFrame(
        {
            "rows": real["rows"].astype(int),
            "eager [ms]": real["chunked"] * 1e3,
            "recorded [ms]": real["recorded"] * 1e3,
            "recorded / eager": real["ratio"],
            "floor [ms]": real["floor_s"].astype(float) * 1e3,
            "recorded, of the possible [%]": 100 * real["floor_s"].astype(float) / real["recorded"],
        }
    )


def parts_table(table: pd.DataFrame, rows: int) -> pd.DataFrame:
    """One number of rows, part by part, and beside it the same layers with next to no width."""
    lines = {}
    for weights in ("model", "narrow"):
        (own,) = (line for _, line in table.iterrows() if (line["weights"], line["rows"]) == (weights, rows))
        for engine in ENGINES:
            lines[(weights, engine)] = part_seconds(own, engine)
    names = lines[("model", "chunked")]
    return pd.DataFrame(
        {
            "part of the step": list(names),
            **{
                f"{'eager' if engine == 'chunked' else engine}{', narrow' if weights == 'narrow' else ''} [ms]": [
                    lines[(weights, engine)][name] * 1e3 for name in names
                ]
                for weights, engine in lines
            },
        }
    )


def reads_table(table: pd.DataFrame) -> pd.DataFrame:
    """What a step has to read, as stored, and how long that takes at this machine's bandwidth."""
    real = table[table["weights"] == "model"].sort_values("rows")
    return pd.DataFrame(
        {
            "rows": real["rows"].astype(int),
            "weights [MB]": real["weight_bytes"] / 1e6,
            "keys and values [MB]": real["kv_bytes"] / 1e6,
            "reading weights [ms]": real["weights_s"].astype(float) * 1e3,
            "reading keys and values [ms]": real["kv_s"].astype(float) * 1e3,
            "floor [ms]": real["floor_s"].astype(float) * 1e3,
        }
    )


def counts_table(points: pd.DataFrame) -> pd.DataFrame:
    """What runs of `recorded` recorded, wrote anew and padded."""
    counted = of(points, "counted").sort_values("rows")
    return pd.DataFrame(
        {
            "rows": counted["rows"].astype(int),
            "decode steps": counted["decode_steps"].astype(int),
            "with lines copied over [%]": 100 * counted["updates"] / counted["decode_steps"],
            "computed rows that are padding [%]": 100
            * counted["padded_rows"]
            / (counted["padded_rows"] + counted["decoded_rows"]),
            "recorded at first": counted["recorded_before"].astype(int),
            "recorded again": counted["re_recorded"].astype(int),
        }
    )


def served(points: pd.DataFrame) -> pd.DataFrame:
    """Whole runs, a line for each engine: medians."""
    runs = of(points, "served")
    columns = ["wall_s", "served_rate", "step_s", "chunk_steps", "chunk_time"]
    return runs.groupby("engine")[columns].median().reindex(ENGINES).reset_index()


def served_table(points: pd.DataFrame) -> pd.DataFrame:
    table = served(points)
    return pd.DataFrame(
        {
            "engine": table["engine"],
            "served [requests/s]": table["served_rate"],
            "step without a chunk [ms]": table["step_s"] * 1e3,
            "steps with a chunk [%]": 100 * table["chunk_steps"],
            "their share of the time [%]": 100 * table["chunk_time"],
        }
    )


def served_ratio(points: pd.DataFrame) -> float:
    """Served rate of `recorded` over that of `chunked`: the median over neighbouring runs."""
    return float(_served_ratios(points).median())


def step_band(line: pd.Series) -> tuple[float, float]:
    """What the middle 80% of neighbouring steps say of a line's ratio."""
    return float(line["ratio_low"]), float(line["ratio_high"])


def served_band(points: pd.DataFrame) -> tuple[float, float]:
    """The least and the largest of those ratios."""
    return float(_served_ratios(points).min()), float(_served_ratios(points).max())


def _served_ratios(points: pd.DataFrame) -> pd.Series:
    runs = of(points, "served").set_index(["run", "engine"])["served_rate"].unstack("engine")
    return runs["recorded"] / runs["chunked"]


def _at(table: pd.DataFrame, weights: str, rows: int, quantity: str) -> float | None:
    found = table[(table["weights"] == weights) & (table["rows"] == rows)]
    return None if found.empty or pd.isna(found[quantity].iloc[0]) else float(found[quantity].iloc[0])


def _share(top: float | None, bottom: float | None) -> float | None:
    return None if top is None or bottom is None else top / bottom


Graded = tuple[str, float | None, float, float]
"""What is graded, what was found, and the range it was predicted in."""


def verdicts(points: pd.DataFrame, on_gpu: bool) -> pd.DataFrame:
    """Each recorded prediction with what was found; open where it speaks of another device or did not run."""
    table = steps(points)
    of_steps = _step_lines(table) | {"8": _served_line(points)}
    lines = {
        **{number: _left_open(line) if on_gpu else line for number, line in of_steps.items()},
        **{number: line if on_gpu else _left_open(line) for number, line in _gpu_lines(table).items()},
        **_count_lines(points),
        **_a10_lines(points),
    }
    return pd.DataFrame([verdict(number, *lines[number]) for number in sorted(lines)])


def _left_open(line: Graded) -> Graded:
    what, _, low, high = line
    return what, None, low, high


def _step_lines(table: pd.DataFrame) -> dict[str, Graded]:
    real, thin = (table[table["weights"] == weights].sort_values("rows") for weights in ("model", "narrow"))
    ratios, farthest = real["ratio"], (thin["ratio"] - 1).abs().idxmax()
    floors = (real["floor_s"].astype(float) / real["recorded"]).dropna()
    at_1 = _share(_at(table, "model", 1, "floor_s"), _at(table, "model", 1, "recorded"))
    falls = None if len(floors) < 2 else float(floors.is_monotonic_decreasing)
    return {
        "1a": ("recorded / eager, CPU, least over rows", float(ratios.min()), 0.95, 1.05),
        "1b": ("recorded / eager, CPU, most over rows", float(ratios.max()), 0.95, 1.05),
        "2a": ("narrow / real eager step, 8 rows, CPU", _narrow_share(table), 0, 0.1),
        "2b": ("recorded / eager, narrow, CPU, farthest from 1", float(thin["ratio"][farthest]), 0.8, 1.2),
        "4a": ("share of the possible at 1 row, CPU", at_1, 0.6, BEYOND),
        "4b": ("that share falls with the rows, CPU (1: yes)", falls, 1, 1),
    }


def _narrow_share(table: pd.DataFrame) -> float | None:
    return _share(_at(table, "narrow", 8, "chunked"), _at(table, "model", 8, "chunked"))


def _served_line(points: pd.DataFrame) -> Graded:
    return "served rate here, recorded / chunked", served_ratio(points), 0.95, 1.05


def _gpu_lines(table: pd.DataFrame) -> dict[str, Graded]:
    few = table[(table["weights"] == "model") & (table["rows"] <= 8)]["ratio"]
    most = float(few.max()) if len(few) else None
    return {
        "3a": ("narrow / real eager step, 8 rows, GPU", _narrow_share(table), 0.5, BEYOND),
        "3b": ("recorded / eager, GPU, most at up to 8 rows", most, 0, 0.5),
    }


def _count_lines(points: pd.DataFrame) -> dict[str, Graded]:
    counted = of(points, "counted")
    counted = counted[counted["rows"] == 32]
    updates = padded = again = None
    if len(counted):
        line = counted.iloc[0]
        updates = float(line["updates"] / line["decode_steps"])
        padded = float(line["padded_rows"] / (line["padded_rows"] + line["decoded_rows"]))
        again = float(line["re_recorded"] / line["buckets"])
    return {
        "5a": ("decode steps with lines copied over, 32 rows", updates, 0, 0.4),
        "5b": ("computed rows that are padding, 32 rows", padded, 0, 0.1),
        "5c": ("recorded again, a bucket, 32 rows", again, 0, 3),
    }


def _a10_lines(points: pd.DataFrame) -> dict[str, Graded]:
    loads = of(points, "load").sort_values("rate")
    shares, rates = loads["chunk_steps"], loads["rate"]
    bare = change(points, "floor", "step_s")
    peak = change(points, "host", "peak_rate", PUBLISHED_STEP_MS)
    idle = float(shares.iloc[0]) if rates.iloc[0] == 1 else None
    busy = float(shares.iloc[-1]) if rates.iloc[-1] >= PAST_CAPACITY else None
    return {
        "6": ("A10 without a floor: step of 32 rows [ms]", None if bare is None else bare * 1e3, 14, 17),
        "7a": ("A10, step of 15 ms by the host's part: peak [requests/s]", peak, 0, 6),
        "7b": ("A10, steps with a chunk past capacity", busy, 1 / 3, 1),
        "9a": ("A10, steps with a chunk at 1 request/s", idle, 0, 0.15),
        "9b": ("A10, steps with a chunk past capacity", busy, 0.3, 0.5),
        "9c": ("A10, that share grows with the load (1: yes)", float(shares.is_monotonic_increasing), 1, 1),
    }


def graded(points: pd.DataFrame, params: BaseModel) -> pd.DataFrame:
    """The verdicts, from the experiment's rows."""
    return verdicts(points, getattr(params, "device", "cpu") == "cuda")


def marks(_params: BaseModel) -> dict[str, str]:
    """What is said of the A10 is simulated."""
    return dict.fromkeys(("6", "7a", "7b", "9a", "9b", "9c"), "simulated")
