"""Times of the linear layers by path and row count, the choice that follows, and where it is kept.

Knows torch and the model's shapes. The choice is read whenever a model is loaded (`model/row_paths.py`).
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from interleave.lab.files import write_atomically
from interleave.lab.spread import spread
from interleave.model.config import ModelConfig
from interleave.model.ops import cpu, reference, simd
from interleave.model.row_paths import RowPaths, best_paths, fixed_paths, paths_file, stored_paths

Q4_1_RUN = 32

PATHS: dict[str, ModuleType] = {"reference": reference, "cpu": cpu} | ({"simd": simd} if simd.HAS_FMA else {})
"""Modules of `model/ops` with `pack` and `linear`, by the names in `row_paths.PATHS`."""


def seconds(work: Callable[[], object], repeats: int, warmup: int = 2) -> list[float]:
    """Wall seconds of each of `repeats` calls, after some that are thrown away."""
    taken = []
    for number in range(warmup + repeats):
        start = time.perf_counter()
        work()
        if number >= warmup:
            taken.append(time.perf_counter() - start)
    return taken


def linear_table(
    config: ModelConfig,
    paths: dict[str, ModuleType],
    row_counts: Sequence[int],
    repeats: int,
    say: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Seconds of the linear layers of the whole body, one line for each path and row count.

    One pass goes through every layer's own matrices, so that each of them has left the caches when it
    is needed again, as in a real step. The paths take turns, so that a neighbour slows all of them.
    """
    layers = {name: packed_layers(config, ops, config.num_hidden_layers) for name, ops in paths.items()}
    table = []
    for rows in row_counts:
        work = {
            name: one_pass(ops, layers[name], layer_inputs(layers[name][:1], rows))
            for name, ops in paths.items()
        }
        taken: dict[str, list[float]] = {name: [] for name in paths}
        for number in range(1 + repeats):  # the first of them is thrown away
            for name, once in work.items():
                taken[name] += seconds(once, 1, warmup=0)[: number > 0]
        table += [{"path": name, "rows": rows, "seconds": spread(times)} for name, times in taken.items()]
        found = ", ".join(f"{name} {statistics.median(times) * 1e3:.2f}" for name, times in taken.items())
        say(f"{rows:4} rows: {found} ms")
    return table


def chosen_paths(table: Sequence[dict[str, Any]]) -> RowPaths:
    """What a table asks for: the usual path of this processor wherever no other is clearly faster.

    It compares each path's best time: a neighbour can only add to one, and a choice stays.
    """
    times: dict[int, dict[str, float]] = {}
    for line in table:
        times.setdefault(line["rows"], {})[line["path"]] = line["seconds"]["min"]
    usual = fixed_paths("simd" in {line["path"] for line in table}).limits[0][1]
    return best_paths(times, usual)


def save_paths(config: ModelConfig, threads: int, table: Sequence[dict[str, Any]]) -> bool:
    """Keep what a table asks for, for models with these shapes on so many threads. Raises StorageError.

    Returns whether they multiply in another way from now on.
    """
    usual = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        path, before = paths_file(shapes(config)), stored_paths(shapes(config))
    finally:
        torch.set_num_threads(usual)
    chosen = chosen_paths(table)
    write_atomically(path, json.dumps({"limits": chosen.limits}) + "\n")
    return chosen.limits != (before or fixed_paths("simd" in PATHS)).limits


def path_lines(table: Sequence[dict[str, Any]]) -> dict[str, str]:
    """The table for a terminal: a line a row count, with the path that it takes."""
    names = sorted({line["path"] for line in table})
    found = {(line["path"], line["rows"]): line["seconds"]["median"] * 1e3 for line in table}
    chosen = chosen_paths(table)
    return {
        f"{rows} rows": f"{', '.join(f'{name} {found[name, rows]:.1f} ms' for name in names)}: {chosen.path_for(rows)}"
        for rows in sorted({line["rows"] for line in table})
    }


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
