"""Measures what this machine can do: streaming read, and float32 matrix products at many rows.

Both ceilings of the roofline, and the time of each linear path over row counts, on the threads that
runs here use. Knows torch and the model's shapes; not where a measurement is kept (`machine_store`)
nor what is made of it (`roofline`).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from interleave.lab.devices import place
from interleave.lab.machine_store import SCHEMA_VERSION, machine_identity
from interleave.lab.provenance import provenance, utc_now
from interleave.lab.timing import timing_lock
from interleave.model.config import ModelConfig
from interleave.model.config_hf import shipped_config
from interleave.model.ops import cpu, reference, simd

DEFAULT_CONFIG = "smollm2-135m"
GEMM_ROWS = 512
READ_BYTES = 512 * 2**20  # many times any cache
REPEATS = 9
ROW_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
Q4_1_RUN = 32

PATHS: dict[str, ModuleType] = {"reference": reference, "cpu": cpu} | ({"simd": simd} if simd.HAS_FMA else {})
"""Modules of `model/ops` with `pack` and `linear`; a further path of linear layers is one more entry."""


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
    }


def spread(values: Sequence[float]) -> dict[str, float | int]:
    """Median, lowest, highest and number of repeated measurements."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "n": len(values)}


def seconds(work: Callable[[], object], repeats: int, warmup: int = 2) -> list[float]:
    """Wall seconds of each of `repeats` calls, after some that are thrown away."""
    taken = []
    for number in range(warmup + repeats):
        start = time.perf_counter()
        work()
        if number >= warmup:
            taken.append(time.perf_counter() - start)
    return taken


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


def linear_table(
    config: ModelConfig,
    paths: dict[str, ModuleType],
    row_counts: Sequence[int],
    repeats: int,
    say: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Seconds of the linear layers of the whole body, one line for each path and row count.

    One pass goes through every layer's own matrices, so that each of them has left the caches when it
    is needed again, as in a real step.
    """
    table = []
    for name, ops in paths.items():
        layers = packed_layers(config, ops, config.num_hidden_layers)
        for rows in row_counts:
            taken = seconds(one_pass(ops, layers, layer_inputs(layers[:1], rows)), repeats, warmup=1)
            table.append({"path": name, "rows": rows, "seconds": spread(taken)})
            say(f"{name:10} {rows:4} rows: {statistics.median(taken) * 1e3:8.2f} ms")
    return table


def fastest_paths(table: Sequence[dict[str, Any]]) -> dict[int, str]:
    """The path with the lowest median for each row count of a table."""
    best: dict[int, tuple[float, str]] = {}
    for line in table:
        candidate = (line["seconds"]["median"], line["path"])
        best[line["rows"]] = min(best.get(line["rows"], candidate), candidate)
    return {rows: path for rows, (_, path) in sorted(best.items())}


def shapes(config: ModelConfig) -> list[tuple[int, int]]:
    """[out, in] of one layer's linear layers: QKV, output, gate and up, down."""
    heads, kv_heads, dim = config.num_attention_heads, config.num_key_value_heads, config.head_dim
    hidden, inner = config.hidden_size, config.intermediate_size
    return [
        ((heads + 2 * kv_heads) * dim, hidden),
        (hidden, heads * dim),
        (2 * inner, hidden),
        (hidden, inner),
    ]


Layer = list[tuple[Any, int]]
"""Packed matrices of one layer, each with the width that it takes."""


def packed_layers(config: ModelConfig, ops: ModuleType, count: int) -> list[Layer]:
    """`count` layers of random matrices, each laid out by `ops.pack`; random, since zeros draw less power."""
    generator = torch.Generator().manual_seed(0)
    return [
        [(ops.pack(four_bit_matrix(rows, width, generator)), width) for rows, width in shapes(config)]
        for _ in range(count)
    ]


def four_bit_matrix(rows: int, width: int, generator: torch.Generator) -> Tensor:
    """Random float32 values [rows, width] as the embedded model's are: in each run of 32 a 4-bit number
    times a scale plus a minimum, both float16 (Q4_1). A path that keeps such weights narrow is timed so.
    """
    whole = width - width % Q4_1_RUN
    steps = torch.randint(0, 16, (rows, whole // Q4_1_RUN, Q4_1_RUN), generator=generator).float()
    steps[..., 0], steps[..., 1] = 0, 15  # a quantiser uses the whole range of every run
    scale = ((torch.rand(rows, whole // Q4_1_RUN, 1, generator=generator) + 0.5) / width**0.5 / 5).half()
    matrix = (steps * scale.float() - (scale * 7.5).half().float()).view(rows, whole)
    rest = torch.randn(rows, width - whole, generator=generator) / width**0.5
    return torch.cat((matrix, rest), dim=1)


def layer_inputs(layers: Sequence[Layer], rows: int) -> list[Tensor]:
    """One random input [rows, width] for each matrix of a layer."""
    return [torch.randn(rows, width) for _, width in layers[0]]


def one_pass(ops: ModuleType, layers: Sequence[Layer], inputs: Sequence[Tensor]) -> Callable[[], None]:
    """A callable that multiplies once with every matrix of every layer."""

    def work() -> None:
        for layer in layers:
            for (weight, _), x in zip(layer, inputs, strict=True):
                ops.linear(x, weight)

    return work


def machine_lines(document: dict[str, Any]) -> list[str]:
    """A measurement as `name value` lines: both ceilings with their spread, and the linear paths."""
    read, gemm = document["read_bytes_per_s"], document["gemm_flops_per_s"]
    lines = {
        "device": f"{document['device']}, {document['threads']} threads",
        "read": f"{_giga(read)} GB/s ({read['path']})",
        "products": f"{_giga(gemm)} GFLOP/s at {GEMM_ROWS} rows ({gemm['path']})",
    }
    table = document["linear_paths"]
    names = sorted({line["path"] for line in table})
    found = {(line["path"], line["rows"]): line["seconds"]["median"] * 1e3 for line in table}
    best = fastest_paths(table)
    lines |= {
        f"{rows} rows": ", ".join(f"{name} {found[name, rows]:.1f} ms" for name in names) + f": {best[rows]}"
        for rows in best
    }
    return [f"{name:12} {value}" for name, value in lines.items()]


def _giga(rates: dict[str, Any]) -> str:
    median, low, high = (rates[name] / 1e9 for name in ("median", "min", "max"))
    return f"{median:.1f} ({low:.1f} to {high:.1f}, {rates['n']} times)"
