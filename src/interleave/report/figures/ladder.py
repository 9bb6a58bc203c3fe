"""Tables of the ladder: wall time of every rung, what each gained on the one before, how much a repeat differs.

Takes the medians of `closed_batches`; measures nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pandas as pd

from interleave.lab.experiments.closed_batches import LADDER, PARTS
from interleave.report.printed import MAX_COLUMNS

BUILT_ON = {"recorded": "chunked"}
"""A rung that is another one than the one before it, with something changed."""

GAINED: dict[str, tuple[str, ...]] = {
    "forwards with prefill [s]": ("prefill", "mixed"),
    "decode forwards [s]": ("decode",),
    "copy [s]": ("copy",),
    "sample and host [s]": ("sample", "host"),
}


def by_size(table: pd.DataFrame, kind: str) -> list[str]:
    """The batches of a kind (`mixed`, `uniform`), the smallest first."""
    names = [str(name) for name in table["batch"].unique() if str(name).startswith(kind)]
    return sorted(names, key=lambda name: int(name.removeprefix(kind)))


def that_fit(table: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """The medians, cut into as many batches as a table has room for with a column each."""
    names = list(table["batch"].unique())
    for first in range(0, len(names), MAX_COLUMNS - 1):
        yield table[table["batch"].isin(names[first : first + MAX_COLUMNS - 1])]


def ladder_table(table: pd.DataFrame) -> pd.DataFrame:
    """Median wall time: a line an engine, in the ladder's order, a column a batch; missing where it did not run."""
    engines = [engine for engine in LADDER if engine in set(table["engine"])]
    walls = table.set_index(["batch", "engine"])["wall_s"]
    columns = {
        f"{batch} [s]": [walls.get((batch, engine)) for engine in engines]
        for batch in table["batch"].unique()
    }
    return pd.DataFrame({"engine": engines, **columns})


def rung_table(table: pd.DataFrame, batch: str) -> pd.DataFrame:
    """Seconds that each rung gained (negative: lost) on the one before it that ran, in all and by part.

    One that is built on another rung than the one before (`BUILT_ON`) is set against that. Forwards are told
    apart by what they carry: `mixed` computes decodes and chunks in one, so that its decodes leave the decode
    forwards for those with prefill, and only the sum of the two columns says what it gained. `recorded` chooses
    tokens inside its decode forward, which is sampling elsewhere. All are differences of medians, to the millisecond.
    """
    lines = table[table["batch"] == batch].set_index("engine")[["wall_s", *(f"{part}_s" for part in PARTS)]]
    ran = [engine for engine in LADDER if engine in lines.index]
    found = []
    for before, engine in pairwise(ran):
        base = BUILT_ON.get(engine, before)
        base = base if base in ran else before
        gained = lines.loc[base] - lines.loc[engine]
        seconds = [gained["wall_s"], *(sum(gained[f"{part}_s"] for part in own) for own in GAINED.values())]
        found.append([f"{engine} after {base}", *(round(float(one), 3) + 0.0 for one in seconds)])  # no -0
    return pd.DataFrame(found, columns=[f"on {batch}", "gained in all [s]", *GAINED])


def noise_table(table: pd.DataFrame) -> pd.DataFrame:
    """How far identical runs lie apart, (longest - shortest) / median of wall time: of the engines on each batch
    the median one and the largest. Without a line for a batch that nobody served twice."""
    repeated = table[table["num_runs"] > 1]
    spread = 100 * (repeated["wall_high"] - repeated["wall_low"]) / repeated["wall_s"]
    found = []
    for batch, own in repeated.assign(spread=spread).groupby("batch", sort=False):
        widest = own.loc[own["spread"].idxmax()]
        found.append(
            {
                "batch": batch,
                "engines": len(own),
                "runs of each": int(own["num_runs"].min()),
                "median [%]": float(own["spread"].median()),
                "largest [%]": float(widest["spread"]),
                "largest under": widest["engine"],
            }
        )
    return pd.DataFrame(
        found, columns=["batch", "engines", "runs of each", "median [%]", "largest [%]", "largest under"]
    )


def repeat_spread(table: pd.DataFrame) -> float | None:
    """The largest spread of any engine on any batch, in percent; None where nothing ran twice."""
    noise = noise_table(table)
    return float(noise["largest [%]"].max()) if len(noise) else None
