"""Prefill and decode on machines of their own, beside chunking on all: tables, and what the page says of them.

Takes the rows of the experiment on scale as one frame; measures nothing.
"""

from __future__ import annotations

import pandas as pd

from interleave.report.figures.simulator import of_kind


def splits(points: pd.DataFrame, rows: float | None = None) -> pd.DataFrame:
    """One line per load and split, over the faster link, with the fewest rows of the run or as many as given."""
    table = of_kind(points, "apart")
    wanted = table["rows"].min() if rows is None else rows
    fast = (table["gbps"] == table["gbps"].max()) | (table["prefill_machines"] == 0)
    return table[fast & (table["rows"] == wanted)].reset_index(drop=True)


def split_names(table: pd.DataFrame) -> list[str]:
    machines = int(table["machines"].iloc[0])
    numbers = sorted(table["prefill_machines"].astype(int).unique())
    return [f"{number}+{machines - number}" if number else f"{machines} chunking" for number in numbers]


def apart_table(points: pd.DataFrame, load: float) -> pd.DataFrame:
    """The splits at one load with each number of rows, what each serves with everybody waiting, and two measures of
    gaps: over all of them, and the longest of each request, where a transfer shows."""
    by_rows = [splits(points, rows) for rows in sorted(of_kind(points, "apart")["rows"].unique())]
    tables = [table[table["load"] == load].sort_values("prefill_machines") for table in by_rows]
    own = pd.concat(tables, ignore_index=True)
    return pd.DataFrame(
        {
            "machines, rows of each": [
                f"{name}, {rows:.0f}"
                for table in tables
                for name, rows in zip(split_names(table), table["rows"], strict=True)
            ],
            "saturated [requests/s]": own["saturated_rate"].to_numpy(),
            "served [requests/s]": own["served_rate"].to_numpy(),
            "TTFT, 90th percentile [s]": own["ttft_p90_s"].to_numpy(),
            "gap, 99th percentile [ms]": own["gap_p99_s"].to_numpy() * 1e3,
            "longest gap, median request [ms]": own["longest_gap_p50_s"].to_numpy() * 1e3,
        }
    )


def calm(points: pd.DataFrame) -> pd.DataFrame:
    """At the lowest load, by measure of gaps: that of the split in which it is shortest (`split`, its machines in
    `machines`), that of chunking on all of them (`chunking`), and the first over the second (`ratio`)."""
    table = splits(points)
    own = table[table["load"] == table["load"].min()].set_index("prefill_machines").sort_index()
    names = dict(zip(own.index, split_names(own.reset_index()), strict=True))
    measures = own[["gap_p99_s", "longest_gap_p50_s", "worst_gap_s"]].astype(float)
    apart = measures.drop(index=0)
    found = pd.DataFrame(
        {"split": apart.min(), "machines": apart.idxmin().map(names), "chunking": measures.loc[0]}
    )
    return found.assign(ratio=found["split"] / found["chunking"])


def past_capacity(points: pd.DataFrame, load: float) -> list[str]:
    """The splits of the fewest rows to which more arrives at a load than they serve with everybody waiting."""
    own = splits(points)
    own = own[own["load"] == load].sort_values("prefill_machines")
    late = (own["rate"] > own["saturated_rate"]).to_numpy()
    return [name for name, past in zip(split_names(own), late, strict=True) if past]


def links_table(points: pd.DataFrame, load: float) -> pd.DataFrame:
    """The splits over each link at one load: what the transfer adds to the gaps."""
    table = of_kind(points, "apart")
    chosen = (
        (table["load"] == load) & (table["prefill_machines"] > 0) & (table["rows"] == table["rows"].min())
    )
    own = table[chosen].sort_values(["prefill_machines", "gbps"])
    return pd.DataFrame(
        {
            "machines": [
                f"{row.prefill_machines:.0f}+{row.machines - row.prefill_machines:.0f}"
                for row in own.itertuples()
            ],
            "link [Gb/s]": own["gbps"].astype(int).to_numpy(),
            "median gap [ms]": own["gap_p50_s"].to_numpy() * 1e3,
            "longest gap, median request [ms]": own["longest_gap_p50_s"].to_numpy() * 1e3,
            "worst gap [s]": own["worst_gap_s"].to_numpy(),
        }
    )  # fmt: skip
