"""Tables and verdicts of the page on scale, and the choice of rows that its figures share.

Takes the experiment's rows as one frame, in which `kind` tells costs, fleets, splits, budgets and
capacities apart; measures nothing. Splits into prefill and decode machines are in `scale_splits`.
"""

from __future__ import annotations

import pandas as pd
from pydantic import BaseModel

from interleave.report.figures.graded import verdict
from interleave.report.figures.scale_splits import calm, splits
from interleave.report.figures.simulator import of_kind


def fleets(points: pd.DataFrame) -> pd.DataFrame:
    """One line per size and routing; a fleet of one stands under every routing, since there is nothing to choose."""
    table = of_kind(points, "fleet")
    alone, several = table[table["machines"] == 1], table[table["machines"] > 1]
    routings = list(several["routing"].unique()) or list(alone["routing"])
    repeated = [alone.assign(routing=routing) for routing in routings]
    return pd.concat([*repeated, several], ignore_index=True)


def capacities(points: pd.DataFrame) -> pd.DataFrame:
    """One line per way to serve: what it carries within the limits, and with everybody waiting."""
    table = of_kind(points, "capacity")
    names = [
        f"{row.prefill_machines:.0f}+{row.machines - row.prefill_machines:.0f} apart"
        if row.prefill_machines
        else f"{row.machines:.0f} x {row.engine}"
        for row in table.itertuples()
    ]
    rates = table["rate"] if "rate" in table else pd.Series([None] * len(table), dtype=float)
    return table.assign(name=names, rate=rates, per_machine=rates / table["machines"])


def capacity_table(points: pd.DataFrame) -> pd.DataFrame:
    table = capacities(points)
    return pd.DataFrame(
        {
            "machines": table["name"],
            "within limits [requests/s]": table["rate"],
            "of it, a machine [requests/s]": table["per_machine"],
            "everybody waiting [requests/s]": table["saturated_rate"],
        }
    )


def ways_table(points: pd.DataFrame) -> pd.DataFrame:
    """Every way to serve on the same machines at one arrival rate, and with everybody waiting."""
    table = of_kind(points, "way")
    return pd.DataFrame(
        {
            "way": table["way"],
            "everybody waiting [requests/s]": table["saturated_rate"],
            "served [requests/s]": table["served_rate"],
            "TTFT, 90th percentile [s]": table["ttft_p90_s"],
            "gap, 99th percentile [ms]": table["gap_p99_s"] * 1e3,
            "worst gap [s]": table["worst_gap_s"],
        }
    )


def agents_table(points: pd.DataFrame) -> pd.DataFrame:
    """A few prompts of agents among the others: what they wait for, and what everybody else does meanwhile."""
    table = of_kind(points, "agent")
    return pd.DataFrame(
        {
            "agent's prompt [tokens]": table["agent_tokens"].astype(int),
            "way": table["way"],
            "agent's TTFT, median [s]": table["agent_ttft_p50_s"],
            "others' TTFT, 90th percentile [s]": table["other_ttft_p90_s"],
            "gap, 99th percentile [ms]": table["gap_p99_s"] * 1e3,
            "worst gap [s]": table["worst_gap_s"],
        }
    )


def fleet_table(points: pd.DataFrame) -> pd.DataFrame:
    table = of_kind(points, "fleet")
    return pd.DataFrame(
        {
            "machines": table["machines"].astype(int),
            "routing": table["routing"].str.replace("_", " "),
            "served [requests/s]": table["served_rate"],
            "median TTFT [s]": table["ttft_p50_s"],
            "TTFT, 90th percentile [s]": table["ttft_p90_s"],
            "worst gap [ms]": table["worst_gap_s"] * 1e3,
        }
    )


def routed(points: pd.DataFrame, machines: int, routing: str, quantity: str) -> float | None:
    """One number of the fleets; None for what did not run."""
    table = of_kind(points, "fleet")
    found = table[(table["machines"] == machines) & (table["routing"] == routing)][quantity]
    return None if found.empty else float(found.iloc[0])


def _over(top: float | None, bottom: float | None) -> float | None:
    return None if top is None or not bottom or pd.isna(top) or pd.isna(bottom) else top / bottom


def better_targets(points: pd.DataFrame) -> list[tuple[pd.Series, pd.Series]]:
    """(budget by a target, fixed budget) where the target's worst gap and first tokens are both better."""
    table = of_kind(points, "budget")
    if "target_s" not in table:
        return []
    by_target = table["target_s"].notna()
    return [
        (target, fixed)
        for _, target in table[by_target].sort_values("target_s").iterrows()
        for _, fixed in table[~by_target].sort_values("budget").iterrows()
        if target["worst_gap_s"] < fixed["worst_gap_s"] and target["ttft_p90_s"] < fixed["ttft_p90_s"]
    ]


def same_gap(points: pd.DataFrame) -> list[tuple[pd.Series, pd.Series]]:
    """(budget by a target, fixed budget) whose worst gaps lie within a tenth of each other."""
    table = of_kind(points, "budget")
    if "target_s" not in table:
        return []
    pairs = []
    for _, target in table[table["target_s"].notna()].iterrows():
        for _, fixed in table[table["target_s"].isna()].iterrows():
            if abs(target["worst_gap_s"] / fixed["worst_gap_s"] - 1) <= 0.1:
                pairs.append((target, fixed))
    return pairs


def verdicts(points: pd.DataFrame) -> pd.DataFrame:
    """Each recorded prediction with what came of it; left open where the run does not speak of it."""
    cost = of_kind(points, "cost").sort_values("requests")["requests_per_s"]
    table, held = splits(points), capacities(points).set_index("name")["rate"]
    rates_of = table[table["load"] == table["load"].min()].set_index("prefill_machines")["saturated_rate"]
    links = of_kind(points, "apart").query("prefill_machines > 0 and rows == rows.min()")
    pairs = same_gap(points)
    rates = [target["served_rate"] / fixed["served_rate"] for target, fixed in pairs]
    firsts = [target["ttft_p90_s"] / fixed["ttft_p90_s"] for target, fixed in pairs]

    def by_link(quantity: str) -> float | None:
        own = links[links["load"] == links["load"].min()].pivot(
            index="prefill_machines", columns="gbps", values=quantity
        )
        return (
            float((own[own.columns.min()] / own[own.columns.max()]).max()) if len(own.columns) > 1 else None
        )

    def against_turns(routing: str) -> float | None:
        return _over(routed(points, 4, routing, "ttft_p90_s"), routed(points, 4, "round_robin", "ttft_p90_s"))

    ways = of_kind(points, "way").set_index("way")
    agents = of_kind(points, "agent")
    agents = agents[agents["agent_tokens"] == agents["agent_tokens"].max()].set_index("way")
    unchunked = [name for name in ("static", "continuous", "paged", "whole") if name in ways.index]
    four = next((name for name in held.index if name.startswith("4 x")), None)
    beyond = float("inf")
    lines: list[tuple[str, str, float | None, float, float]] = [
        ("1", "requests simulated a second, longest / shortest run", float(cost.iloc[-1] / cost.iloc[0]), 0.7, beyond),
        ("2a", "TTFT p90, 4 machines, least loaded / round robin", against_turns("least_loaded"), 0, 1),
        ("2b", "TTFT p90, 4 machines, shortest queue / round robin", against_turns("shortest_queue"), 0.8, 1.2),
        ("3", "saturated rate, best split / chunking",
         _over(rates_of.drop(index=0).max(), rates_of.loc[0]), 0, 1),
        ("4", "gap p99 at the lowest load, calmest split / chunking",
         float(calm(points).loc["gap_p99_s", "ratio"]), 0, 0.5),
        ("5a", "median gap, slower / faster link", by_link("gap_p50_s"), 0, 1.02),
        ("5b", "longest gap of the median request, slower / faster link", by_link("longest_gap_p50_s"), 0, 2),
        ("6a", "rate within limits, chunked / whole", _over(held.get("1 x chunked"), held.get("1 x whole")), 2, beyond),
        ("6b", "rate within limits, 4 machines / 1", _over(held.get(four), held.get("1 x chunked")), 4, beyond),
        ("7a", "served rate at the same worst gap, target / fixed, least", min(rates, default=None), 0.98, beyond),
        ("7b", "TTFT p90 at the same worst gap, target / fixed, most", max(firsts, default=None), 0, 1),
        ("8a", "worst gap, calmest way without chunks / chunked",
         _over(ways["worst_gap_s"].loc[unchunked].min(), ways.loc["chunked", "worst_gap_s"]), 2, beyond),
        ("8b", "saturated rate, static / chunked",
         _over(ways.loc["static", "saturated_rate"], ways.loc["chunked", "saturated_rate"]), 0, 0.6),
        ("8c", "saturated rate, continuous / paged",
         _over(ways.loc["continuous", "saturated_rate"], ways.loc["paged", "saturated_rate"]), 0, 1),
        ("9a", "worst gap beside agents, whole / chunked",
         _over(agents.loc["whole", "worst_gap_s"], agents.loc["chunked", "worst_gap_s"]), 10, beyond),
        ("9b", "agent's TTFT, chunked / whole",
         _over(agents.loc["chunked", "agent_ttft_p50_s"], agents.loc["whole", "agent_ttft_p50_s"]), 1, beyond),
    ]  # fmt: skip
    return pd.DataFrame([verdict(*line) for line in lines])


def marks(_params: BaseModel) -> dict[str, str]:
    """What the simulation itself costs is measured."""
    return {"1": "measured-cpu"}
