"""Tables of the policies chapter, and its predictions graded. Takes the experiment's rows as one frame.

`kind` tells them apart: request (one of a run), forward, step (timed alone), limits (of a run), cell and
twin (simulated: of the map, and of a measured run).
"""

from __future__ import annotations

import re

import pandas as pd
from pydantic import BaseModel

from interleave.lab.long_prompts import NEW_TOKENS
from interleave.lab.policy_runs import RUN_FACTS, USUAL_BUDGET, USUAL_ORDER
from interleave.lab.reference import load_published
from interleave.report.figures.graded import BEYOND, ratio, verdict
from interleave.report.figures.regime_map import agreement, measured_latencies, ratios, worst_without_long
from interleave.report.printed import marked

ORDER_WORDS = {"decode_first": "decodes", "prefill_first": "prompts"}


def runs(points: pd.DataFrame) -> pd.DataFrame:
    """One line per run at a load: its facts, and medians over its requests. ttft_long_s: prompts that the
    usual budget cuts; NaN where the trace has none."""
    requests = points[(points["kind"] == "request") & points["load"].notna()].copy()
    requests["ttft_long_s"] = requests["ttft_s"].where(requests["long"].astype(bool))
    requests["ttft_short_s"] = requests["ttft_s"].where(~requests["long"].astype(bool))
    grouped = requests.groupby(list(RUN_FACTS), dropna=False, sort=False)
    medians = grouped[["ttft_s", "ttft_long_s", "ttft_short_s", "max_gap_s", "tpot_s"]].median()
    facts = grouped[["rate", "served_rate", "output_rate", "gap_p50_s", "worst_gap_s"]].first()
    return facts.join(medians).reset_index()


def compared(table: pd.DataFrame, trace: str, load: float) -> pd.DataFrame:
    """The runs that compare policies and orders: one trace, one load, the usual budget.

    Other shares of long prompts run for the map only, in fewer policies: the share with most runs is meant.
    """
    chosen = table[
        (table["trace"] == trace) & (table["load"] == load) & (table["token_budget"] == USUAL_BUDGET)
    ]
    shares = chosen.groupby("share").size()  # empty for a trace without shares
    return chosen if shares.empty else chosen[chosen["share"] == shares.idxmax()]


def cut_at(points: pd.DataFrame) -> int:
    """The longest prompt that the usual budget leaves whole, among those that were served."""
    requests = points[points["kind"] == "request"]
    return int(requests[~requests["long"].astype(bool)]["prompt_tokens"].max())


def policy_table(table: pd.DataFrame, trace: str, load: float) -> pd.DataFrame:
    lines = compared(table, trace, load)
    return pd.DataFrame(
        {
            "policy": lines["policy"],
            "first": lines["order"].map(ORDER_WORDS),
            "TTFT of cut prompts [s]": lines["ttft_long_s"],
            "longest gap, median [ms]": lines["max_gap_s"] * 1e3,
            "worst gap [ms]": lines["worst_gap_s"] * 1e3,
            "served [requests/s]": lines["served_rate"],
        }
    )


def budgets(table: pd.DataFrame) -> pd.DataFrame:
    """The runs over the token budget: `mixed` in its usual order on the long prompts."""
    long = table[
        (table["trace"] == "long") & (table["policy"] == "mixed") & (table["order"] == "decode_first")
    ]
    several = long.groupby("share")["token_budget"].nunique()
    if several.empty:
        return long
    return long[long["share"] == several.idxmax()].sort_values(["token_budget", "load"])


def chapter_loads() -> dict[int, float]:
    """Chapter 10's arrivals over what it served, by token budget: served is its output rate over the mean answer."""
    mean_new = sum(NEW_TOKENS) / 2
    loads = {}
    for row in load_published():
        budget, arrivals = (
            re.search(r"token budget (\d+)", row.engine),
            re.search(r"([\d.]+) arrivals/s", row.workload),
        )
        if row.quantity == "output rate" and budget and arrivals and row.value:
            loads[int(budget[1])] = float(arrivals[1]) / (row.value / mean_new)
    return loads


CHAPTER_QUANTITIES = {"TTFT p50": "ttft_s", "ITL p50": "gap_p50_s", "output rate": "output_rate"}


def chapter_ratios() -> dict[tuple[str, int], float]:
    """Chapter 10's figures relative to its largest token budget, by quantity and budget."""
    found: dict[tuple[str, int], float] = {}
    for row in load_published():
        budget = re.search(r"token budget (\d+)", row.engine)
        if budget and row.value is not None and row.quantity in CHAPTER_QUANTITIES:
            found[row.quantity, int(budget[1])] = row.value
    largest = max(budget for _, budget in found)
    return {
        (name, budget): value / found[name, largest]
        for (name, budget), value in found.items()
        if budget < largest
    }


def chapter_table(table: pd.DataFrame) -> pd.DataFrame:
    """Chapter 10 beside ours: each budget relative to the largest, at every load that ran (at most three)."""
    own = budgets(table)
    largest, loads = own["token_budget"].max(), sorted(own["load"].unique())[-3:]
    at = own.set_index(["token_budget", "load"])
    lines = []
    for (name, budget), published in chapter_ratios().items():
        if budget not in set(own["token_budget"]):
            continue
        column = CHAPTER_QUANTITIES[name]
        ours = {
            f"ours, {load:g} x": at.loc[(budget, load), column] / at.loc[(largest, load), column]
            for load in loads
        }
        (told,) = marked([published], "published-elsewhere", "published.csv")
        lines.append({"quantity": name, "budget": int(budget), "published": told, **ours})
    return pd.DataFrame(lines)


def ride_table(points: pd.DataFrame) -> pd.DataFrame:
    """Medians of one step, in ms: decodes alone, the chunk alone, both in two forwards and in one."""
    steps = points[(points["kind"] == "step") & (points["chunk"] > 0)]
    medians = steps.pivot_table("step_s", index="chunk", columns="form", aggfunc="median") * 1e3
    return pd.DataFrame(
        {
            "chunk": medians.index.astype(int),
            "decodes alone [ms]": medians["decode"].to_numpy(),
            "chunk alone [ms]": medians["chunk"].to_numpy(),
            "two forwards [ms]": medians["two"].to_numpy(),
            "one forward [ms]": medians["one"].to_numpy(),
            "step grows": (medians["one"] / medians["decode"]).to_numpy(),
        }
    )


def ride_band(points: pd.DataFrame, chunk: int) -> tuple[float, float]:
    """Least and most that a step grows by a chunk in its forward, with single steps for medians."""
    steps = points[(points["kind"] == "step") & (points["chunk"] == chunk)]
    both, alone = (steps[steps["form"] == form]["step_s"] for form in ("one", "decode"))
    return float(both.min() / alone.max()), float(both.max() / alone.min())


def limits(points: pd.DataFrame) -> pd.DataFrame:
    """Per run and pair of limits: the share of requests within, and the goodput."""
    return points[points["kind"] == "limits"].dropna(axis="columns", how="all").reset_index(drop=True)


def limits_table(points: pd.DataFrame, trace: str, load: float) -> pd.DataFrame:
    lines = compared(limits(points), trace, load)
    return pd.DataFrame(
        {
            "policy": lines["policy"],
            "first": lines["order"].map(ORDER_WORDS),
            "TTFT at most [ms]": lines["ttft_limit_s"] * 1e3,
            "gap at most [ms]": lines["gap_limit_s"] * 1e3,
            "within both [%]": lines["within"] * 100,
            "goodput [requests/s]": lines["goodput"],
        }
    ).sort_values(["TTFT at most [ms]", "policy"], kind="stable", ignore_index=True)


def value(lines: pd.DataFrame, policy: str, quantity: str, order: str | None = None) -> float | None:
    """One number of a few runs: a policy in an order (its usual one). None where it did not run."""
    own = lines[(lines["policy"] == policy) & (lines["order"] == (order or USUAL_ORDER[policy]))]
    return None if own.empty or pd.isna(own[quantity].iloc[0]) else float(own[quantity].iloc[0])


def verdicts(points: pd.DataFrame) -> pd.DataFrame:
    """Each recorded prediction with what was measured; left open where what it speaks of did not run."""
    table = runs(points)
    near, own = compared(table, "long", 0.9), budgets(table)
    ride = ride_table(points).set_index("chunk")
    usual = ride["decodes alone [ms]"].notna().any() and points[points["kind"] == "step"]["rows"].max() == 32
    good = compared(limits(points), "long", 0.9)
    pairs = [good[good["pair"] == pair] for pair in (good["pair"].min(), good["pair"].max())]

    def step(chunk: int, name: str) -> float | None:
        return float(ride.loc[chunk, f"{name} [ms]"]) if usual and chunk in ride.index else None

    def orders(policy: str, quantity: str, over: str, under: str) -> float | None:
        return ratio(value(near, policy, quantity, over), value(near, policy, quantity, under))

    def mixed_over_whole(lines: pd.DataFrame, quantity: str) -> float | None:
        return ratio(value(lines, "mixed", quantity), value(lines, "whole", quantity))

    def ends(load: float, quantity: str) -> float | None:
        """The smallest over the largest budget."""
        at = own[own["load"] == load].set_index("token_budget")[quantity]
        return ratio(float(at.iloc[0]), float(at.iloc[-1])) if len(at) > 1 else None

    both, alone, decodes = step(512, "one forward"), step(512, "chunk alone"), step(512, "decodes alone")
    riding = None if both is None or alone is None else ratio(both - alone, decodes)
    last = max(own["load"], default=0.0)
    least, first, second = -BEYOND, "prefill_first", "decode_first"
    lines: list[tuple[str, str, float | None, float, float]] = [
        ("1", "step with a chunk of 512 / decodes alone", ratio(both, decodes), 5, BEYOND),
        ("2", "what the decodes add to a chunk of 512 / decodes alone", riding, least, 0.75),
        ("3a", "one forward / two, chunk of 512", ratio(both, step(512, "two forwards")), 0.85, 1),
        ("3b", "one forward / two, chunk of 32", ratio(step(32, "one forward"), step(32, "two forwards")), 0.6, 0.9),
        ("4a", "mixed, longest gap, prompts / decodes first", orders("mixed", "max_gap_s", first, second), 1.2, BEYOND),
        ("4b", "mixed, median TTFT, prompts / decodes first", orders("mixed", "ttft_s", first, second), least, 1.05),
        ("5", "whole, TTFT of long prompts, decodes / prompts first", orders("whole", "ttft_long_s", second, first),
         1.3, BEYOND),
        ("6", "longest gap at 0.6, smallest / largest budget", ends(0.6, "max_gap_s"), least, 0.8),
        ("7", "served rate past capacity, largest / smallest budget",
         ratio(1.0, ends(last, "served_rate")) if last > 1 else None, 1.2, BEYOND),
        ("8", "TTFT of long prompts at 0.9, mixed / whole", mixed_over_whole(near, "ttft_long_s"), 1, BEYOND),
        ("9a", "goodput under the tight limits, mixed / whole", mixed_over_whole(pairs[0], "goodput"), 1, BEYOND),
        ("9b", "goodput under the loose limits, mixed / whole", mixed_over_whole(pairs[1], "goodput"), 0.85, 1.15),
        ("10a", "no long prompt: farthest ratio from 1, simulated", worst_without_long(points), least, 0.15),
        ("10b", "longest gap at 0.9, mixed / whole", mixed_over_whole(near, "max_gap_s"), least, 0.8),
        ("11", "simulated over measured ratio, median distance from 1", _off(points), least, 0.25),
    ]  # fmt: skip
    return pd.DataFrame([verdict(*line) for line in lines])


def marks(_params: BaseModel) -> dict[str, str]:
    """The map is simulated; how far it is from what was measured (11) is measured."""
    return {"10a": "simulated"}


def _off(points: pd.DataFrame) -> float | None:
    found = agreement(ratios(measured_latencies(points)), points)
    return None if found.empty else float((found["simulated"] / found["measured"] - 1).abs().median())
