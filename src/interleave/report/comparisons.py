"""Published ratios beside ours: who wins in a report, in its simulation, and in the chapters measured here.

Times of different machines cannot be compared, ratios of two runs on one machine can. Each comparison names
its published rows, the same ratio of a stored chapter, and why the two may point in different directions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from interleave.report.evidence import Evidence, Stored
from interleave.report.figures import (
    arrival_curves,
    chunk_budget,
    closed_batches,
    kernel_layout,
    policies,
    step_trace,
)
from interleave.report.figures.graded import ratio
from interleave.report.phrases import SAME

Figures = Mapping[str, float]
SHORTER, SAME_THERE, LONGER = "below 1", "about 1", "above 1"


@dataclass(frozen=True)
class Comparison:
    """what: both sides of the ratio. rows: the published rows it needs; published: the ratio of their values
    (of simulated ones too). measure: the same of `experiment`; why: should it point elsewhere."""

    what: str
    rows: tuple[str, ...]
    published: Callable[[Figures], float]
    experiment: str
    measure: Callable[[Stored], float | None]
    why: str = ""


@dataclass(frozen=True)
class Compared:
    """A comparison with its numbers; None for what cannot be simulated, or has not run."""

    comparison: Comparison
    published: float
    simulated: float | None
    measured: float | None

    @property
    def same_direction(self) -> bool | None:
        """Whether ours points where the published ratio does; a ratio about 1 has no direction."""
        if self.measured is None:
            return None
        return direction(self.published) == direction(self.measured)


def direction(value: float) -> str:
    return SAME_THERE if 1 / (1 + SAME) < value < 1 + SAME else SHORTER if value < 1 else LONGER


def compare(evidence: Evidence) -> list[Compared]:
    """Every comparison, in order."""
    values = {row.id: row.value for row in evidence.published.values() if row.value is not None}
    found = []
    for one in COMPARISONS:
        known = set(one.rows) <= evidence.simulated.keys()
        found.append(
            Compared(
                one,
                one.published(values),
                one.published(evidence.simulated) if known else None,
                evidence.measured(one.experiment, one.measure),
            )
        )
    return found


def over(top: str, bottom: str) -> Callable[[Figures], float]:
    return lambda values: values[top] / values[bottom]


def itself(row: str) -> Callable[[Figures], float]:
    return lambda values: values[row]


def batch(kind: str, top: str, bottom: str, quantity: str = "wall_s") -> Callable[[Stored], float | None]:
    """Of the largest stored batch of a kind."""

    def measure(stored: Stored) -> float | None:
        table = closed_batches.medians(stored.frame)
        name = largest_batch(table["batch"], kind)
        return closed_batches.ratio(table, name, top, bottom, quantity)

    return measure


def largest_batch(names: Iterable[str], kind: str) -> str:
    """The name of the largest batch of a kind. KeyError without one."""
    sizes = {int(name.removeprefix(kind)): name for name in names if name.startswith(kind)}
    if not sizes:
        raise KeyError(kind)
    return sizes[max(sizes)]


def of_batch(kind: str, engine: str, top: str, bottom: str) -> Callable[[Stored], float | None]:
    """Two quantities of one engine on the largest batch of a kind."""

    def measure(stored: Stored) -> float | None:
        table = closed_batches.medians(stored.frame)
        name = largest_batch(table["batch"], kind)
        return ratio(
            closed_batches.at(table, name, engine, top), closed_batches.at(table, name, engine, bottom)
        )

    return measure


def between_batches(engine: str, quantity: str, top: str, bottom: str) -> Callable[[Stored], float | None]:
    def measure(stored: Stored) -> float | None:
        table = closed_batches.medians(stored.frame)
        sides = [
            closed_batches.at(table, largest_batch(table["batch"], kind), engine, quantity)
            for kind in (top, bottom)
        ]
        return ratio(*sides)

    return measure


def gaps(which: str, top: str, bottom: str) -> Callable[[Stored], float | None]:
    """Of the disturbance, at the most rows that ran."""

    def measure(stored: Stored) -> float | None:
        found = step_trace.of(stored.frame, "gap")
        own = found[found["rows"] == found["rows"].max()].groupby("engine")["gap_s"].agg(which)
        return ratio(float(own[top]), float(own[bottom]))

    return measure


def budget_wall(top: int, bottom: int) -> Callable[[Stored], float | None]:
    """Wall time of `chunked` at two published budgets."""

    def measure(stored: Stored) -> float | None:
        scale = stored.params.scale  # type: ignore[attr-defined]
        sides = [
            chunk_budget.at(stored.frame, "chunked", budget // scale, "wall_s") for budget in (top, bottom)
        ]
        return ratio(*sides)

    return measure


def pieces(number: int) -> Callable[[Stored], float | None]:
    """A long prompt in `number` pieces over the same in one."""

    def measure(stored: Stored) -> float | None:
        table = chunk_budget.pieces_table(stored.frame)
        (line,) = (row for _, row in table.iterrows() if re.match(rf"{number} x ", row["pieces"]))
        return float(line["against one piece"])

    return measure


def arrivals(engine: str, quantity: str, load: str, bottom: str) -> Callable[[Stored], float | None]:
    """An engine at the lowest or highest load, over another engine there, or over its own best (`peak`)."""

    def measure(stored: Stored) -> float | None:
        table = arrival_curves.curves(stored.frame)
        at = table["load"].max() if load == "highest" else table["load"].min()
        top = arrival_curves.at(table, engine, at, quantity)
        if bottom == "peak":
            return ratio(top, float(table[table["engine"] == engine][quantity].max()))
        return ratio(top, arrival_curves.at(table, bottom, at, quantity))

    return measure


def token_budget(budget: int, quantity: str) -> Callable[[Stored], float | None]:
    """Chapter 10's trace at the highest load: a token budget over the largest."""

    def measure(stored: Stored) -> float | None:
        frame = stored.frame
        table = policies.runs(frame)
        if quantity == "goodput":
            table = policies.limits(frame)
            table = table[table["pair"] == 0]
        own = policies.budgets(table)
        own = own[own["load"] == own["load"].max()].set_index("token_budget")[quantity]
        return ratio(float(own[budget]), float(own.iloc[-1]))

    return measure


def separate_rows(stored: Stored) -> float | None:
    """One attention call over 32 decode rows: each on its own over all in union tiles."""
    return ratio(1.0, kernel_layout.at(kernel_layout.calls(stored.frame), 32, "union_ratio"))


def not_here(_: Stored) -> float | None:
    return None


CHAPTER = (
    ("TTFT p50", "s10", "s15", "s20", "ttft_s"),
    ("TTFT p95", "s11", "s16", "s21", "ttft_p95_s"),
    ("ITL p50", "s12", "s17", "s22", "gap_p50_s"),
    ("output rate", "s13", "s18", "s23", "output_rate"),
    ("goodput", "s14", "s19", "s24", "goodput"),
)
FEW_ROWS = (
    "In a miniature answers shrink with the scale and rows do not, so here nearly every step carries a prompt, and a "
    "large budget makes it a long one; in chapter 10 most steps only decode."
)
COMPARISONS = (
    Comparison("wall time, mixed batch: chunked / paged", ("c01", "c02"), over("c01", "c02"), "closed_batches",
               batch("mixed", "chunked", "paged")),
    Comparison("wall time, uniform batch: chunked / paged", ("c05", "c06"), over("c05", "c06"), "closed_batches",
               batch("uniform", "chunked", "paged"),
               "Nothing is padded here, so what is left is the second pass over the weights against a dense prefill "
               "and a copy; on a CPU the pass is dear and the copy cheap."),
    Comparison("wall time, mixed batch: paged / continuous", ("c02", "c16"), lambda v: v["c02"] * v["c16"] / 5440,
               "closed_batches", batch("mixed", "paged", "continuous"),
               "`continuous` attends over the widest row for all rows; at a small scale that row is short."),
    Comparison("paged, mixed batch: last first token / wall time", ("c03", "c02"), over("c03", "c02"),
               "closed_batches", of_batch("mixed", "paged", "ttft_max_s", "wall_s")),
    Comparison("decode rate of paged: mixed / uniform batch", ("c04", "c07"), over("c04", "c07"), "closed_batches",
               between_batches("paged", "decode_rate", "mixed", "uniform")),
    Comparison("worst gap, disturbance: chunked / paged", ("c08", "c09"), over("c08", "c09"), "step_trace",
               gaps("max", "chunked", "paged")),
    Comparison("median gap, disturbance: chunked / paged", ("c10",), itself("c10"), "step_trace",
               gaps("median", "chunked", "paged")),
    Comparison("wall time, chunk budget 128 / 512", ("c14",), itself("c14"), "chunk_budget", budget_wall(128, 512)),
    Comparison("wall time, chunk budget 1024 / 512", ("c15",), itself("c15"), "chunk_budget", budget_wall(1024, 512)),
    Comparison("attention call: separate rows / rows in union tiles", ("c12", "c13"), over("c12", "c13"),
               "kernel_layout", separate_rows),
    Comparison("served rate past capacity: chunked / paged", ("o01", "o05"), over("o01", "o05"), "arrival_curves",
               arrivals("chunked", "served_rate", "highest", "paged")),
    Comparison("chunked, served rate past capacity / its peak", ("o01", "o02"), over("o01", "o02"), "arrival_curves",
               arrivals("chunked", "served_rate", "highest", "peak")),
    Comparison("paged, served rate past capacity / its peak", ("o05", "o04"), over("o05", "o04"), "arrival_curves",
               arrivals("paged", "served_rate", "highest", "peak"),
               "Admission groups grow with the queue, and a short trace ends before they have grown."),
    Comparison("queue wait at low load: chunked / paged", ("o03", "o06"), over("o03", "o06"), "arrival_curves",
               arrivals("chunked", "queue_wait_s", "lowest", "paged"),
               "Both waits are the rest of a step that is under way; published to two digits they are equal, here "
               "the steps of the two engines differ."),
    Comparison("small pool, rate 2: chunked / paged", ("o08", "o07"), over("o08", "o07"), "small_pool", not_here),
    Comparison("small pool, rate 3: chunked / paged", ("o10", "o09"), over("o10", "o09"), "small_pool", not_here),
    Comparison("long prompt alone: 6 pieces / 1", ("s02", "s01"), over("s02", "s01"), "chunk_budget", pieces(6),
               "There attention computes the whole square of scores in memory, which pieces keep small; ours is "
               "tiled, so that pieces only add passes over the weights."),
    Comparison("long prompt alone: 24 pieces / 1", ("s03", "s01"), over("s03", "s01"), "chunk_budget", pieces(24),
               "As above: pieces help an attention that writes its scores to memory, and cost one that does not."),
    *(Comparison(f"chapter 10, {name}: token budget {budget} / 8192", (row, last), over(row, last), "policies",
                 token_budget(budget, column), FEW_ROWS)
      for name, first, second, last, column in CHAPTER for budget, row in ((64, first), (512, second))),
)  # fmt: skip
