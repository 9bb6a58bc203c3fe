"""The layout bench: one attention call over decode rows as separate rows, segments and union tiles.

A point is one set of context lengths. Calls go through the cache's layers in turn, so that keys and
values come from memory and not from a cache; on a GPU a pass over all layers is one graph, so that
what is timed is the kernels and not their launching from Python.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import torch

from interleave.engine.recording import recorder
from interleave.lab.layout_model import mid_run_contexts
from interleave.lab.lent import attention_calls as calls
from interleave.lab.lent.choices import Choices
from interleave.lab.measure import Point
from interleave.lab.point_table import Row
from interleave.model.config_hf import shipped_config
from interleave.model.sources import DTYPES

MODULES = ("lent/attention_calls", "layout_model")
LAYOUTS: dict[str, Callable[[calls.Scene], calls.Call]] = {
    "separate": calls.by_plan,
    "segmented": calls.by_segments,
    "union": calls.by_union,
}
UNIFORM = 1024


def points(params: Choices) -> list[Point]:
    """The published call's assumed rows, then rows of one length."""
    chosen = params.config("dtype", "block_tokens", "repeats")
    if params.device != "cuda":
        return [Point("3 rows", chosen | {"contexts": [5, 20, 33]})]
    sets = {"32 rows of the mixed draw, mid-run": mid_run_contexts(32)}
    sets |= {f"{rows} rows of {UNIFORM}": [UNIFORM] * rows for rows in (8, 32, 128)}
    return [Point(label, chosen | {"contexts": contexts}) for label, contexts in sets.items()]


def estimate_s(params: Choices) -> list[float]:
    return [5.0] * len(points(params))


def prepare(params: Choices) -> None:
    return None


def measure(point: Point, _setting: None, _earlier: Mapping[str, list[Row]]) -> list[Row]:
    """A row per layout: seconds a layer (median and range over repeats), and a step's of all layers."""
    config, contexts = point.config, point.config["contexts"]
    shape = shipped_config(config["model"])
    rows = [(context, 1) for context in contexts]
    found = calls.scene(shape, rows, config["block_tokens"], DTYPES[config["dtype"]], config["device"])
    kv_bytes = sum(contexts) * found.cache.bytes_per_token // shape.num_hidden_layers
    return [
        {
            "contexts": point.label,
            "rows": len(contexts),
            "layout": name,
            **_timed(made(found), shape.num_hidden_layers, config["repeats"], config["device"]),
            "layers": shape.num_hidden_layers,
            "kv_bytes_per_layer": kv_bytes,
        }
        for name, made in LAYOUTS.items()
    ]


def _timed(call: calls.Call, layers: int, repeats: int, device: str) -> Row:
    def one_pass() -> None:
        for layer in range(layers):
            call(layer)

    one_pass()
    recording = recorder(graphs=device == "cuda")(one_pass)
    recording.replay()
    seconds = [each / layers for each in timed(recording.replay, repeats, device)]
    return {
        "layer_s": statistics.median(seconds),
        "layer_min_s": min(seconds),
        "layer_max_s": max(seconds),
        "n": repeats,
    }


def timed(work: Callable[[], object], repeats: int, device: str) -> Sequence[float]:
    """Seconds of each repetition: between events on a GPU, of the host's clock elsewhere."""
    if device != "cuda":
        taken = []
        for _ in range(repeats):
            start = time.perf_counter()
            work()
            taken.append(time.perf_counter() - start)
        return taken
    pairs = [
        (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeats)
    ]
    for begin, end in pairs:
        begin.record()
        work()
        end.record()
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) / 1e3 for begin, end in pairs]
