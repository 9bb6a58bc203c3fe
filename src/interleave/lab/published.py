"""The published experiment side by side with its simulation: rows, errors, parameters, in one document."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from interleave.lab.published_calibration import calibrate
from interleave.lab.published_runs import SPEAKS, WORDS, PublishedRuns
from interleave.lab.published_unmeasured import unmeasured
from interleave.lab.reference import Published, load_published
from interleave.lab.step_fit import Fit, best_fit

RATIO_TOLERANCE = 0.02


def published_document(rows: Sequence[Published] | None = None) -> dict[str, Any]:
    """Calibrate, simulate and compare. JSON-able.

    rows: one object per row the simulator can speak to (id, engine, workload, quantity, unit, use,
    published, simulated, error), then the figures that nobody printed, with published null.
    hypotheses: each overlap with its calibration error and, for comparison only, its holdout errors.
    """
    published = load_published() if rows is None else rows
    fits = calibrate(published)
    chosen = best_fit(fits)
    runs = PublishedRuns(chosen.model)
    compared = compare_rows(published, runs)
    for number, figure in enumerate(unmeasured(runs), 1):
        fields = figure._asdict()
        simulated = fields.pop("simulated")
        compared.append(
            {"id": f"u{number:02d}", **fields, "use": "unpublished", "published": None}
            | {"simulated": simulated, "error": None}
        )
    return {
        "overlap": chosen.model.overlap,
        "parameters": parameters(chosen),
        "calibration_errors": chosen.errors,
        "holdout": holdout_summary(compared),
        "hypotheses": [
            {
                "overlap": name,
                "calibration_rms": fit.rms,
                "parameters": parameters(fit),
                "holdout": holdout_summary(compare_rows(published, PublishedRuns(fit.model), ("holdout",))),
            }
            for name, fit in fits.items()
        ],
        "rows": compared,
    }


def parameters(fit: Fit) -> dict[str, float]:
    """Seconds per count, and the constants of the model."""
    model = fit.model
    named = {f"{name}_s": value for name, value in model.per.items() if value > 0}
    return {"floor_s": model.floor_s, "fixed_s": model.fixed_s, "weights_s": model.weights_s, **named}


def compare_rows(
    published: Sequence[Published], runs: PublishedRuns, uses: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """A row for each published figure that the simulator can speak to, in words that say what was simulated."""
    compared = []
    for row in published:
        if row.id not in SPEAKS or (uses is not None and row.use not in uses):
            continue
        simulated = SPEAKS[row.id](runs)
        scored = row.use in ("calibrate", "holdout")
        quantity, unit = WORDS.get(row.id, (row.quantity, row.unit))
        compared.append(
            {
                "id": row.id,
                "engine": row.engine,
                "workload": row.workload,
                "quantity": quantity,
                "unit": unit,
                "use": row.use,
                "published": row.value,
                "simulated": simulated,
                "error": error_of(row, simulated) if scored else None,
            }
        )
    return compared


def error_of(row: Published, simulated: float) -> float:
    """Relative error; 0 for a row that is met.

    A row is met when it rounds to the published value at its printed precision, a ratio also within
    0.02 of it; another ratio's error is relative to its distance from 1.
    """
    assert row.value is not None
    assert row.printed is not None
    digits = len(row.printed.partition(".")[2])
    if round(simulated, digits) == row.value:
        return 0.0
    if row.unit == "ratio":
        if abs(simulated - row.value) <= RATIO_TOLERANCE:
            return 0.0
        return abs(simulated - row.value) / abs(row.value - 1.0)
    return (simulated - row.value) / row.value


def holdout_summary(compared: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Median and largest absolute error of the holdout rows, and those above a tenth."""
    errors = {row["id"]: abs(row["error"]) for row in compared if row["use"] == "holdout"}
    return {
        "num_rows": len(errors),
        "median_error": statistics.median(errors.values()) if errors else None,
        "largest_error": max(errors.values(), default=None),
        "above_10_percent": sorted(name for name, error in errors.items() if error > 0.1),
    }


def published_lines(document: Mapping[str, Any]) -> list[str]:
    """The table for a terminal."""
    lines = [f"overlap {document['overlap']}, calibrated on rows marked calibrate only"]
    lines += [f"  {name:20} {value:.6g}" for name, value in document["parameters"].items()]
    lines += ["", "hypothesis      calibration rms   holdout median   largest"]
    for one in document["hypotheses"]:
        held = one["holdout"]
        lines.append(
            f"{one['overlap']:15} {one['calibration_rms']:15.2%} {held['median_error']:16.2%} "
            f"{held['largest_error']:9.1%}"
        )
    lines += [
        "",
        f"{'id':4} {'use':11} {'engine':10} {'published':>9} {'simulated':>9} {'error':>7}  quantity",
    ]
    for row in document["rows"]:
        lines.append(
            f"{row['id']:4} {row['use']:11} {row['engine']:10} {_cell(row['published'])} "
            f"{_cell(row['simulated'])} {_percent(row['error'])}  {row['quantity']} ({row['unit']}), "
            f"{row['workload']}"
        )
    held = document["holdout"]
    lines += ["", f"holdout: {held['num_rows']} rows, median error {held['median_error']:.2%}, above 10%: "
              f"{', '.join(held['above_10_percent']) or 'none'}"]  # fmt: skip
    return lines


def _cell(value: float | None) -> str:
    return f"{'-':>9}" if value is None else f"{value:9.4g}"


def _percent(value: float | None) -> str:
    return f"{'-':>7}" if value is None else f"{value:7.1%}"
