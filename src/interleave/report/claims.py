"""A verdict on each published claim and prediction: what this project found, how it knows, and why.

One function a row of `data/reference/published.csv` whose use is claim or prediction. Values are computed
exactly where arithmetic suffices, simulated for the published device, or read from stored chapters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from interleave.lab.quantiles import quantile
from interleave.lab.reference import Published
from interleave.lab.roofline import (
    Work,
    body_elements,
    chunk_work,
    decode_work,
    flops,
    head_elements,
    moved_bytes,
)
from interleave.lab.workload import BLOCK_TOKENS, CHUNK_BUDGET, workload
from interleave.model.config_hf import shipped_config
from interleave.report.comparisons import batch, largest_batch
from interleave.report.evidence import Evidence, Stored
from interleave.report.figures import arrival_curves, closed_batches, policies, published_halves
from interleave.report.figures.graded import ratio
from interleave.report.marks import Value
from interleave.report.printed import spoken
from interleave.schedule.block_pool import need_blocks

HOLDS, PARTLY, FAILS, AWAITS = "holds", "in part", "does not hold", "awaits a run"
MODEL, FP16_BYTES = "qwen2.5-1.5b", 2
NEARLY_FREE = 1.25
"""A step that grows by less than a quarter."""


@dataclass(frozen=True)
class Finding:
    """found: what this project says, with its mark; None while it awaits a run. why: the evidence in words."""

    found: Value | None
    verdict: str
    why: str


Judge = Callable[[Published, Evidence], Finding]


def judge(evidence: Evidence) -> dict[str, Finding]:
    """A finding for every published claim and prediction, by row id. KeyError for one without a function."""
    rows = [row for row in evidence.published.values() if row.use in ("claim", "prediction")]
    return {row.id: JUDGES[row.id](row, evidence) for row in rows}


def said(holds: bool) -> str:
    return HOLDS if holds else FAILS


def simulated(row_id: str, test: Callable[[float], bool], why: str, digits: int = 3) -> Judge:
    """The simulator's figure of a row, judged by `test`."""

    def found(row: Published, evidence: Evidence) -> Finding:
        if row_id not in evidence.simulated:
            return Finding(None, AWAITS, "the simulation of the published device has not run")
        number = evidence.simulated[row_id]
        return Finding(
            Value(f"{spoken(number, digits)} {row.unit}".strip(), "simulated", "predictions"),
            said(test(number)),
            why,
        )

    return found


def within(row: Published, value: float) -> bool:
    return row.low is not None and row.high is not None and row.low <= value <= row.high


def in_range(why: str) -> Judge:
    """The row's own figure, simulated, inside its own range."""
    return lambda row, evidence: simulated(row.id, lambda value: within(row, value), why)(row, evidence)


def below(why: str, row_id: str | None = None) -> Judge:
    return lambda row, evidence: simulated(row_id or row.id, lambda value: value < (row.value or 0.0), why)(
        row, evidence
    )


def about(share: float, why: str) -> Judge:
    """The row's own figure, simulated, within a share of the published one."""
    return lambda row, evidence: simulated(
        row.id, lambda value: abs(value / (row.value or 1.0) - 1) <= share, why
    )(row, evidence)


def exact(text: str) -> Value:
    return Value(text, None, "arithmetic")


def uniform_batch(row: Published, evidence: Evidence) -> Finding:
    """k01: chunked a few percent faster where nothing is padded, and the copy as the cause."""
    measured = evidence.measured("closed_batches", batch("uniform", "chunked", "paged"))
    if measured is None:
        return Finding(None, AWAITS, "needs the chapter on closed batches")
    text = f"{spoken(100 * abs(1 - measured), 2)}% {'less' if measured <= 1 else 'more'}"
    share = evidence.measured("closed_batches", _copy_share)
    why = "the copy's share of paged's wall time is not known here"
    if share is not None:
        why = f"the copy takes {spoken(share, 2)}% of paged's wall time here, so it is not what decides"
    return Finding(evidence.marked("closed_batches", text), said(within(row, 1 - measured)), why)


def _copy_share(stored: Stored) -> float:
    table = closed_batches.medians(stored.frame)
    copies = closed_batches.copy_table(table).set_index("batch")["share of wall [%]"]
    return float(copies[largest_batch(table["batch"], "uniform")])


def padded_memory(row: Published, evidence: Evidence) -> Finding:
    """k03: what a padded prefill keeps beside the pool."""
    rows, longest = 32, 4096
    kept = rows * longest * shipped_config(MODEL).kv_bytes_per_token_factor * FP16_BYTES / 2**30
    measured = evidence.measured("closed_batches", batch("mixed", "paged", "chunked", "peak_transient_bytes"))
    why = f"its throwaway keys and values alone are {spoken(kept, 2)} GiB, by arithmetic; activations come on top"
    if measured is None:
        return Finding(exact(f"{spoken(kept, 2)} GiB"), PARTLY, why)
    return Finding(
        evidence.marked("closed_batches", f"{spoken(measured, 2)} times chunked's"), said(measured > 1), why
    )


def rounding_waste(row: Published, _: Evidence) -> Finding:
    """k04: half a block a request, if lengths were anything; the published draw's are multiples of 16."""
    totals = [one.prompt_tokens + one.new_tokens for one in workload("published").rows]
    wasted = [need_blocks(total, BLOCK_TOKENS) * BLOCK_TOKENS - total for total in totals]
    mean = sum(wasted) / len(wasted)
    near = row.value is not None and abs(mean / row.value - 1) <= 0.1
    why = (
        "half a block is the mean of arbitrary lengths; of this draw's lengths only the shortest prompt leaves a "
        "block unfilled"
    )
    return Finding(exact(f"{spoken(mean, 2)} tokens"), said(near), why)


def piggybacked(row: Published, evidence: Evidence) -> Finding:
    """k05: 32 decodes and a chunk of 512 in one forward."""

    def grows(stored: Stored) -> float:
        ride = policies.ride_table(stored.frame).set_index("chunk")
        return float(ride.loc[CHUNK_BUDGET, "step grows"])

    measured = evidence.measured("policies", grows)
    if measured is None:
        return Finding(None, AWAITS, "needs the chapter on policies")
    why = "free as long as a step waits for the weights; the arithmetic of a chunk is far past that here"
    return Finding(
        evidence.marked("policies", f"{spoken(measured, 2)} times the decodes alone"),
        said(measured <= NEARLY_FREE),
        why,
    )


def step_weight_bytes() -> int:
    """What a step of the published model reads of its weights, in fp16."""
    config = shipped_config(MODEL)
    return FP16_BYTES * (body_elements(config) + head_elements(config))


def intensity(work: Work) -> float:
    """FLOP per byte of one step of the published model in fp16."""
    config = shipped_config(MODEL)
    return flops(work, config) / moved_bytes(work, config, step_weight_bytes(), FP16_BYTES)


def prefill_intensity(row: Published, _: Evidence) -> Finding:
    sizes = (16, 64, CHUNK_BUDGET)
    low, middle, high = (intensity(chunk_work(0, size, 1)) for size in sizes)
    why = (
        f"by arithmetic, for chunks of {', '.join(map(str, sizes))}: "
        f"{', '.join(spoken(x, 2) for x in (low, middle, high))}; a small chunk is not compute-bound"
    )
    return Finding(exact(f"{spoken(high, 2)} FLOP/byte"), HOLDS if low > (row.value or 0) else PARTLY, why)


def decode_intensity(row: Published, _: Evidence) -> Finding:
    one, many = (intensity(decode_work(rows, 1024)) for rows in (1, 32))
    why = (
        f"by arithmetic, contexts of 1,024: one row {spoken(one, 2)}, 32 rows {spoken(many, 2)}; batching is what "
        "raises it"
    )
    holds = [value < (row.value or 0) for value in (one, many)]
    return Finding(
        exact(f"{spoken(one, 2)} FLOP/byte"), HOLDS if all(holds) else PARTLY if any(holds) else FAILS, why
    )


def tail_tpot(row: Published, evidence: Evidence) -> Finding:
    """k09: whole over chunked at the highest load below capacity."""
    percents = (99, 95, 90)

    def measure(stored: Stored) -> float | None:
        loads = [load for load in arrival_curves.curves(stored.frame)["load"] if load < 1]
        rows = arrival_curves.measured(stored.frame)
        near = rows[rows["load"] == max(loads)].dropna(subset=["tpot_s"])
        tails = []
        for engine in ("whole", "chunked"):
            own = near[near["engine"] == engine]["tpot_s"]
            known = [quantile(own, percent) for percent in percents]
            tails.append(next((value for value in known if value is not None), float(own.max())))
        return ratio(*tails)

    measured = evidence.measured("arrival_curves", measure)
    if measured is None:
        return Finding(None, AWAITS, "needs the chapter on arrival curves")
    why = (
        "TPOT is a mean over an answer, so one wait for a long prompt is spread over all its tokens; the longest "
        "gap differs far more"
    )
    return Finding(
        evidence.marked("arrival_curves", f"{spoken(measured, 2)} times"), said(within(row, measured)), why
    )


def slightly_slower(row: Published, evidence: Evidence) -> Finding:
    """p07, and its grade: on the uniform batch chunked was predicted slower and measured faster."""
    measured = evidence.measured("closed_batches", batch("uniform", "chunked", "paged"))
    if measured is None:
        return Finding(None, AWAITS, "needs the chapter on closed batches")
    slower = measured > 1
    text = f"{spoken(100 * abs(measured - 1), 2)}% {'slower' if slower else 'faster'}"
    why = "two forwards a step against a padded group that pads nothing"
    return Finding(evidence.marked("closed_batches", text), said(slower), why)


def stays_near_peak(row: Published, evidence: Evidence) -> Finding:
    """p06: past capacity chunked serves what it can, however many wait."""

    def measure(stored: Stored) -> float | None:
        own = arrival_curves.curves(stored.frame)
        own = own[(own["engine"] == "chunked") & (own["load"] >= 0.85)].sort_values("load")["served_rate"]
        return min((ratio(b, a) or 0.0 for a, b in pairwise(own)), default=None)

    measured = evidence.measured("arrival_curves", measure)
    if measured is None:
        return Finding(None, AWAITS, "needs the chapter on arrival curves")
    why = (
        "the served rate at each load near and past capacity over that at the load before, at the worst place"
    )
    return Finding(
        evidence.marked("arrival_curves", f"{spoken(measured, 3)} of the rate before"),
        said(measured >= 0.9),
        why,
    )


def _of_rows(measure: Callable[[Any], float | None]) -> Callable[[Stored], float | None]:
    return lambda stored: measure(stored.frame)


def faster_step(row: Published, evidence: Evidence) -> Finding:
    """p01, both halves: what a step of 15 ms gives, as the model says and scaled to the published peak of today; and
    that where the step does not move, the rate does not."""
    first = in_range("every part of a decode step shorter, also beside a chunk")(row, evidence)
    if first.found is None:
        return first
    rate, why = evidence.simulated[row.id], first.why
    held = [within(row, rate)]
    if (today := evidence.simulated.get("o02")) is not None:
        published = evidence.value("o02")
        scaled = rate * published / today
        held.append(within(row, scaled))
        why += (
            f"; the model's peak of today is {spoken(today, 3)}, the published one {spoken(published, 3)}, and so scaled "
            f"it is {spoken(scaled, 3)}"
        )
    unmoved = {
        "the A10 without its floor": evidence.measured(
            "recorded_decode", _of_rows(published_halves.rate_without_floor)
        ),
        "recorded decode here": evidence.measured("recorded_decode", _of_rows(published_halves.rate_here)),
    }
    known = {place: rate for place, rate in unmoved.items() if rate is not None}
    held += [published_halves.stays(rate) for rate in known.values()]
    if known:
        rates = ", ".join(f"{spoken(rate, 3)} times by {place}" for place, rate in known.items())
        why += f"; the second half, that the rate stays where the step does: {rates}"
    return Finding(first.found, HOLDS if all(held) else PARTLY if any(held) else FAILS, why)


FLOOR_WHY = (
    "follows from the floor of the calibrated step model, so it is consistent with the other figures, not "
    "tested by them"
)
JUDGES: dict[str, Judge] = {
    "k01": uniform_batch,
    "k02": about(0.1, FLOOR_WHY),
    "k03": padded_memory,
    "k04": rounding_waste,
    "k05": piggybacked,
    "k06": in_range(
        "the worst gap of the disturbance under `whole`, on the published GPU and its small model"
    ),
    "k07": prefill_intensity,
    "k08": decode_intensity,
    "k09": tail_tpot,
    "k10": below("p95 of 400 requests at rate 3; they do not support a p99"),
    "p01": faster_step,
    "p02": in_range("at rate 7, past capacity"),
    "p03": below("load below capacity: nobody waits longer than a step"),
    "p04": about(0.25, "one chunk of 512 and the decodes beside it"),
    "p05": about(0.15, "the prediction counted a chunk as dearer than it is"),
    "p06": stays_near_peak,
    "p07": slightly_slower,
    "p08": simulated("p08", lambda rate: rate < 4.0 * 0.95, "at rate 4 it falls behind"),
    "p09": in_range("predicted from the weight read alone; host work and attention take the rest"),
    "p10": below("load far below capacity"),
}
