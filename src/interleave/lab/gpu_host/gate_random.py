"""The quick parity gate on a borrowed GPU host: on random weights in two types, and on real ones where they lie.

Random weights are untied and of few layers: a tied random model repeats its last token, and then no
engine can be caught. A point is one gate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from interleave.lab.gate import gate_model
from interleave.lab.gpu_host.choices import Choices
from interleave.lab.measure import Point
from interleave.lab.point_table import Row
from interleave.model.config_hf import shipped_config
from interleave.model.decoder import Decoder
from interleave.model.sources import DEFAULT, DTYPES, LoadedModel, default_ops, load_model
from interleave.model.weights import random_weights
from interleave.model.weights_gguf import smollm2_folder

RANDOM_LAYERS = 4


def points(params: Choices) -> list[Point]:
    """Random weights in half precision and float32; then the embedded model, if this host has it."""
    layers = min(params.layers or RANDOM_LAYERS, RANDOM_LAYERS)
    found = [
        Point(f"random, {dtype}", params.config() | {"layers": layers, "dtype": dtype})
        for dtype in dict.fromkeys((params.dtype, "fp32"))
    ]
    if params.device == "cuda" and (smollm2_folder() / "config.json").is_file():
        found.append(Point("real, fp16", params.config() | {"model": DEFAULT, "dtype": "fp16"}))
    return found


def estimate_s(params: Choices) -> list[float]:
    return [25.0 if params.device == "cuda" else 10.0] * len(points(params))


def prepare(params: Choices) -> None:
    return None


def measure(point: Point, _setting: None, _earlier: Mapping[str, list[Row]]) -> list[Row]:
    """How many requests were compared and how that ended, over all engines; then engine by engine."""
    config = point.config
    name, dtype, device = config["model"], config["dtype"], config["device"]
    if name == DEFAULT:
        model = load_model(name, dtype, device)
    else:
        shape = replace(shipped_config(name), tie_word_embeddings=False, num_hidden_layers=config["layers"])
        weights = random_weights(shape, 0, DTYPES[dtype], device)
        decoder = Decoder(shape, weights, default_ops(weights))
        model = LoadedModel(
            shape, decoder, None, f"{name}, {config['layers']} layers, untied (random, seed 0)"
        )
    document = gate_model(model, quick=True, backends=[config["backend"]])
    rows: list[Row] = []
    for engine in ("all engines", *dict.fromkeys(trial["engine"] for trial in document["trials"])):
        trials = [t for t in document["trials"] if engine in ("all engines", t["engine"])]
        counts = {k: sum(t[k] for t in trials) for k in ("requests", "exact", "near_ties", "failed")}
        rows.append({"weights": point.label, "engine": engine, **counts})
    first = document["failures"][0] if document["failures"] else None
    said = None if first is None else f"{first['engine']}, {first['workload']}: {first['reason']}"
    return [{**row, "first_failure": said} for row in rows]
