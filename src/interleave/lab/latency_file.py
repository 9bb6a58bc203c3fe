"""A fitted step-time model as a file: by device and model, with what it was fitted on and how well."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from interleave.documents import read_document
from interleave.lab.files import write_atomically
from interleave.lab.latency_fields import ModelParameters, complaint
from interleave.lab.latency_model import LatencyModel
from interleave.lab.paths import data_dir
from interleave.lab.step_fit import Fit, best_fit
from interleave.lab.step_traces import StepTrace, StepTraceError, fit_steps, step_errors

SCHEMA_VERSION = 1


def fit_document(traces: Sequence[StepTrace]) -> dict[str, Any]:
    """Fit all steps of `traces` together. StepTraceError for traces of different machines or models."""
    first = traces[0]
    for trace in traces[1:]:
        if trace.origin != first.origin:
            other = [name for name in first.origin if trace.origin[name] != first.origin[name]]
            found = " and ".join(
                f"{each.name} on {', '.join(f'{name} {each.origin[name]}' for name in other)}"
                for each in (first, trace)
            )
            raise StepTraceError(f"measured {found}: one model describes one device and one set of weights")
    steps = [step for trace in traces for step in trace.steps]
    fits = fit_steps(steps)
    chosen = best_fit(fits)
    return {
        "schema_version": SCHEMA_VERSION,
        **first.origin,
        "model_parameters": model_to_json(chosen.model),
        "num_steps": len(steps),
        "rms_error": chosen.rms,
        "residuals": step_errors(chosen.model, steps),
        "hypotheses": {name: _hypothesis(fit) for name, fit in fits.items()},
        "sources": [
            {"file": trace.name, "engine": trace.engine, "trace_sha256": trace.trace_sha256}
            for trace in traces
        ],
    }


def default_path(document: Mapping[str, Any]) -> Path:
    """data/latency/<device, threads>/<model, dtype>.json, in names that every file system takes."""

    def plain(text: str) -> str:
        return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")

    place = plain(f"{document['device']} {document['threads']} threads")
    return data_dir() / "latency" / place / f"{plain(document['model'] + ' ' + document['dtype'])}.json"


def _hypothesis(fit: Fit) -> dict[str, float]:
    return {"rms_error": fit.rms, "floor_s": fit.model.floor_s, "fixed_s": fit.model.fixed_s}


def model_to_json(model: LatencyModel) -> dict[str, Any]:
    return asdict(model)


def model_from_json(values: Mapping[str, Any]) -> LatencyModel:
    """The model of an object that `model_to_json` made; see `read_model` for one from elsewhere."""
    fitted = values["fitted"]
    return LatencyModel(
        values["overlap"],
        dict(values["per"]),
        values["floor_s"],
        values["fixed_s"],
        values["weights_s"],
        None if fitted is None else {name: (low, high) for name, (low, high) in fitted.items()},
    )


def write_fit(document: Mapping[str, Any], path: Path) -> None:
    """Strict JSON, all of it or nothing."""
    write_atomically(path, json.dumps(document, allow_nan=False, indent=1) + "\n")


def read_model(path: Path) -> LatencyModel:
    """The model in a file of `interleave fit`. ValueError naming the file and what is wrong."""
    document = read_document(path, what="as `interleave fit` writes it")
    version = document.get("schema_version") if isinstance(document, dict) else None
    if version != SCHEMA_VERSION:
        raise ValueError(f"{path}: schema_version must be {SCHEMA_VERSION}, got {version!r}")
    try:
        return model_from_json(ModelParameters.model_validate(document.get("model_parameters")).model_dump())
    except ValidationError as error:
        raise ValueError(f"{path}: model_parameters: {complaint(error.errors()[0])}") from error


def fit_lines(document: Mapping[str, Any]) -> list[str]:
    """What a person wants to see: parameters, hypotheses, residuals by kind."""
    parameters = document["model_parameters"]
    lines = [
        f"{document['model']} {document['dtype']} on {document['device']}, {document['threads']} threads"
    ]
    lines.append(f"overlap {parameters['overlap']}, floor {1e3 * parameters['floor_s']:.3f} ms, fixed "
                 f"{1e3 * parameters['fixed_s']:.3f} ms a step")  # fmt: skip
    lines += [f"  {name:18} {1e6 * value:.5g} us" for name, value in parameters["per"].items() if value]
    lines += [
        f"hypothesis {name}: rms {one['rms_error']:.2%}" for name, one in document["hypotheses"].items()
    ]
    return lines + error_lines(document["residuals"])


def error_lines(errors: Mapping[str, Mapping[str, float]]) -> list[str]:
    return [
        f"  {kind:17} n {one['n']:6}  median error {one['median_error']:6.2%}  p90 {one['p90_error']:6.2%}  "
        f"bias {one['bias']:+7.2%}  outside the fit {one['outside']}"
        for kind, one in errors.items()
    ]
