"""Measures what this machine can do: streaming read, and float32 matrix products at many rows.

Both ceilings of the roofline, and the time of each linear path over row counts, on the threads that
runs here use. Knows torch and the model's shapes; not where a measurement is kept (`machine_store`)
nor what is made of it (`roofline`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch

from interleave.lab.devices import place
from interleave.lab.linear_table import (
    PATHS,
    chosen_paths,
    layer_inputs,
    linear_table,
    one_pass,
    packed_layers,
    path_lines,
    seconds,
    shapes,
)
from interleave.lab.machine_store import SCHEMA_VERSION, machine_identity
from interleave.lab.provenance import provenance, utc_now
from interleave.lab.spread import spread
from interleave.lab.timing import timing_lock
from interleave.model.config import ModelConfig
from interleave.model.config_hf import shipped_config

DEFAULT_CONFIG = "smollm2-135m"
GEMM_ROWS = 512
READ_BYTES = 512 * 2**20  # many times any cache
REPEATS = 9
ROW_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


def measure_machine(
    config_name: str = DEFAULT_CONFIG,
    *,
    repeats: int = REPEATS,
    read_bytes: int = READ_BYTES,
    row_counts: Sequence[int] = ROW_COUNTS,
    paths: dict[str, ModuleType] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Measure and return the document of this machine (data/schema/machine.schema.json).

    config_name: a shipped model config, whose shapes are multiplied. Holds the timing lock of the CPU.
    Raises ValueError for counts below 1 and an unknown config.
    """
    for name, value in (("repeats", repeats), ("read_bytes", read_bytes), *(("rows", n) for n in row_counts)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    config, here = shipped_config(config_name), place("cpu")
    torch.set_num_threads(here.threads)
    started_at = utc_now()
    with timing_lock("cpu", say), torch.inference_mode():
        say(f"streaming read of {read_bytes / 2**20:.0f} MiB, {repeats} times")
        read = read_rates(read_bytes, repeats)
        say(f"float32 products at {GEMM_ROWS} rows, {repeats} times on each path")
        gemm = gemm_rates(config, paths or PATHS, repeats)
        say("linear paths over row counts, weights cold")
        table = linear_table(config, paths or PATHS, row_counts, repeats, say)
    chosen = {"config": config_name, "repeats": repeats, "read_bytes": read_bytes, "gemm_rows": GEMM_ROWS}
    origin = provenance(chosen, device=here.device, threads=here.threads, started_at=started_at)
    return {
        "schema_version": SCHEMA_VERSION,
        **origin,
        "identity": machine_identity(here.device, here.threads),
        "read_bytes_per_s": read,
        "gemm_flops_per_s": gemm,
        "linear_paths": table,
        "chosen_paths": [{"up_to_rows": most, "path": path} for most, path in chosen_paths(table).limits],
    }


def read_rates(num_bytes: int, repeats: int) -> dict[str, Any]:
    """Bytes per second of reading a float32 array that no cache holds, all threads, the faster of a sum
    and a product with a vector."""
    width = 2048
    source = torch.ones(max(1, num_bytes // 4 // width), width)
    vector = torch.ones(width)
    ways: dict[str, Callable[[], object]] = {
        "sum": lambda: source.sum(),
        "product": lambda: torch.mv(source, vector),
    }
    found = {
        name: spread([source.nbytes / taken for taken in seconds(work, repeats)])
        for name, work in ways.items()
    }
    best = max(found, key=lambda name: found[name]["median"])
    return {**found[best], "path": best}


def gemm_rates(config: ModelConfig, paths: dict[str, ModuleType], repeats: int) -> dict[str, Any]:
    """Float operations per second of one layer's four products at GEMM_ROWS rows, on the fastest path."""
    found = {}
    for name, ops in paths.items():
        layers = packed_layers(config, ops, 1)
        inputs = layer_inputs(layers, GEMM_ROWS)
        work = sum(2 * GEMM_ROWS * rows * width for rows, width in shapes(config))
        found[name] = spread([work / taken for taken in seconds(one_pass(ops, layers, inputs), repeats)])
    best = max(found, key=lambda name: found[name]["median"])
    return {**found[best], "path": best}


def machine_lines(document: dict[str, Any]) -> list[str]:
    """A measurement as `name value` lines: both ceilings with their spread, and the linear paths."""
    read, gemm = document["read_bytes_per_s"], document["gemm_flops_per_s"]
    lines = {
        "device": f"{document['device']}, {document['threads']} threads",
        "read": f"{_giga(read)} GB/s ({read['path']})",
        "products": f"{_giga(gemm)} GFLOP/s at {GEMM_ROWS} rows ({gemm['path']})",
    }
    lines |= path_lines(document["linear_paths"])
    return [f"{name:12} {value}" for name, value in lines.items()]


def _giga(rates: dict[str, Any]) -> str:
    median, low, high = (rates[name] / 1e9 for name in ("median", "min", "max"))
    return f"{median:.1f} ({low:.1f} to {high:.1f}, {rates['n']} times)"
