"""The kernels that an engine can reach, compiled ahead of time: registers, shared memory, spills.

Reach means: the shipped model configs, in float16 and bfloat16, with blocks of 16 and 64. Needs no
GPU. It does not know how a kernel is compiled, only what the engine would launch.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from interleave.lab.provenance import cpu_name, provenance
from interleave.model.config import ModelConfig
from interleave.model.config_hf import shipped_config, shipped_config_names
from interleave.schedule.names import nearest

SCHEMA_VERSION = 1
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
BLOCK_SIZES = (16, 64)
BENCHED = ("qwen2.5-1.5b", "smollm2-135m")
"""Models of the layout bench, the only user of the union tiles."""
MOST_CONFIGURATIONS = 150
_ROWS, _BLOCKS, _POSITIONS = 32, 24, 544


def kernel_document(
    archs: Sequence[str] = (), processes: int | None = None, say: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """Compile everything in reach for `archs` (default: all) and return the table with its provenance.

    processes: default one a core, as far as this process may use them. Strict JSON, see
    data/schema/kernels.schema.json. Raises ValueError for an unknown arch or count, and RuntimeError
    naming a kernel that does not compile.
    """
    # Triton decides when it is imported whether its functions are compiled or interpreted.
    os.environ.pop("TRITON_INTERPRET", None)
    from interleave_kernels.compile import TARGETS, compile_table, ptxas_path

    wanted = tuple(archs) or tuple(TARGETS)
    for arch in wanted:
        if arch not in TARGETS:
            raise ValueError(nearest("arch", arch, TARGETS))
    if processes is None:
        processes = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if processes < 1:
        raise ValueError(f"processes must be at least 1, got {processes}")
    users = engine_launches()
    source = provenance(
        {"archs": list(wanted), "dtypes": list(DTYPES), "block_tokens": list(BLOCK_SIZES)},
        device=cpu_name(),
        threads=processes,
    )
    started = time.perf_counter()
    rows = compile_table(list(users), wanted, processes, say)
    models = [", ".join(names) for names in users.values() for _ in wanted]
    return {
        "schema_version": SCHEMA_VERSION,
        "configurations": len(users),
        "rows": [
            {key: value for key, value in row.items() if key != "seconds"} | {"models": users_of}
            for row, users_of in zip(rows, models, strict=True)
        ],
        "compile_s": round(sum(row["seconds"] for row in rows), 1),
        "wall_s": round(time.perf_counter() - started, 1),
        "ptxas": _ptxas_version(str(ptxas_path())),
        **source,
    }


def _ptxas_version(path: str) -> str:
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)
    return done.stdout.strip().splitlines()[-1]


def engine_launches() -> dict[Any, list[str]]:
    """Each distinct compilation in reach, with the shipped configs that need it."""
    from interleave_kernels.launches import recording

    families = (
        "argmax kv_write packed_prefill paged_decode rms_norm rope_write segmented swiglu union_tiles".split()
    )
    users: dict[Any, list[str]] = {}
    for name in shipped_config_names():
        config = shipped_config(name)
        for dtype in DTYPES.values():
            with recording(*families) as found:
                launch_ops(config, dtype)
                for block_tokens in BLOCK_SIZES:
                    launch_attention(config, dtype, block_tokens)
                    if name in BENCHED:
                        launch_union(config, dtype, block_tokens)
            for launch in found:
                if name not in users.setdefault(launch, []):
                    users[launch].append(name)
    if len(users) > MOST_CONFIGURATIONS:
        raise RuntimeError(f"{len(users)} configurations in reach, more than {MOST_CONFIGURATIONS}")
    return users


def launch_ops(config: ModelConfig, dtype: torch.dtype) -> None:
    """Every fused op once, on tensors shaped as in a decoder's forward."""
    from interleave.model.ops import triton as ops

    heads, kv_heads, dim = config.num_attention_heads, config.num_key_value_heads, config.head_dim
    n = _POSITIONS
    residual, weight = _empty((n, config.hidden_size), dtype), _empty((config.hidden_size,), dtype)
    ops.add_norm(residual, None, weight, config.rms_norm_eps)
    ops.add_norm(residual, residual.clone(), weight, config.rms_norm_eps)
    ops.swiglu(_empty((n, 2 * config.intermediate_size), dtype))
    qkv = _empty((n, heads + 2 * kv_heads, dim), dtype)
    cos = _empty((n, dim // 2), torch.float32)
    ops.rotate(qkv, cos, cos, heads + kv_heads)
    cache = _cache(config, dtype, 64)
    ops.rotate_and_write(qkv, cos, cos, _empty((n,), torch.int64), cache, cache)
    ops.greedy(_empty((_ROWS, config.vocab_size), torch.float32))


def launch_attention(config: ModelConfig, dtype: torch.dtype, block_tokens: int) -> None:
    """The cache write and each attention kernel once, as the `triton` backend calls them."""
    from interleave_kernels.kv_write import kv_write
    from interleave_kernels.packed_prefill import packed_prefill
    from interleave_kernels.paged_decode import paged_decode
    from interleave_kernels.segmented import FIELDS, segmented

    q, k, out = _attended(config, dtype)
    cache = _cache(config, dtype, block_tokens)
    tables = _i32(_ROWS, _BLOCKS)
    kv_write(k, k, _empty((len(k),), torch.int64), cache, cache)
    tiles = (_i32(9), _i32(9), _i32(_ROWS + 1), _i32(_ROWS))
    packed_prefill(q, cache, cache, *tiles, tables, block_tokens, 0.1, out)
    rows, lens = _empty((_ROWS,), torch.int64), _i32(_ROWS)
    paged_decode(q, cache, cache, rows, tables, lens, lens, 1000, block_tokens, 0.1, out)
    segmented(q, cache, cache, _i32(40, FIELDS), _i32(3, 4), 6, tables, block_tokens, 0.1, out)


def launch_union(config: ModelConfig, dtype: torch.dtype, block_tokens: int) -> None:
    """The union tiles once, as the layout bench calls them."""
    from interleave_kernels.union_tiles import union_tiles

    q, _, out = _attended(config, dtype)
    cache = _cache(config, dtype, block_tokens)
    blocks = (_i32(2), _i32(_ROWS * _BLOCKS), _i32(_ROWS * _BLOCKS), _i32(_ROWS * _BLOCKS))
    rows = _empty((_ROWS,), torch.int64)
    union_tiles(q, cache, cache, rows, _i32(_ROWS), *blocks, block_tokens, 0.1, out)


def _attended(config: ModelConfig, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Queries and keys as views of a fused QKV, and the output."""
    heads, kv_heads, dim = config.num_attention_heads, config.num_key_value_heads, config.head_dim
    qkv = _empty((_POSITIONS, heads + 2 * kv_heads, dim), dtype)
    q, k, _ = qkv.split([heads, kv_heads, kv_heads], dim=1)
    return q, k, _empty((_POSITIONS, heads, dim), dtype)


def _cache(config: ModelConfig, dtype: torch.dtype, block_tokens: int) -> Tensor:
    return _empty((config.num_key_value_heads, _ROWS * _BLOCKS * block_tokens, config.head_dim), dtype)


def _i32(*shape: int) -> Tensor:
    return _empty(shape, torch.int32)


def _empty(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A tensor without data: launchers look at shapes, strides and types."""
    return torch.empty(shape, dtype=dtype, device="meta")


def document_text(document: dict[str, Any]) -> str:
    """Strict JSON with a line per row, so that a change of the table reads as one."""
    head = json.dumps({key: value for key, value in document.items() if key != "rows"}, indent=1)
    rows = ",\n".join("  " + json.dumps(row, allow_nan=False) for row in document["rows"])
    return head.removesuffix("\n}") + ',\n "rows": [\n' + rows + "\n ]\n}\n"


def table_faults(document: dict[str, Any]) -> list[str]:
    """A line per row that spills, or that no block of its GPU has the shared memory for."""
    from interleave_kernels.compile import SHARED_LIMITS

    faults = []
    for row in document["rows"]:
        where = f"{row['kernel']} ({row['config']}) on {row['arch']}"
        if row["spills"]:
            faults.append(f"{where} spills {row['spills']} registers")
        limit = SHARED_LIMITS[row["arch"]]
        if row["shared_bytes"] > limit:
            faults.append(f"{where} wants {row['shared_bytes']} bytes of shared memory of {limit}")
    return faults


def table_lines(document: dict[str, Any]) -> list[str]:
    """A line per kernel and arch: configurations, most registers and shared memory, spills."""
    lines = [f"{'kernel':14} {'arch':7} {'configs':>7} {'registers':>9} {'shared':>8} {'spills':>6}"]
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in document["rows"]:
        groups.setdefault((row["kernel"], row["arch"]), []).append(row)
    for (kernel, arch), rows in sorted(groups.items()):
        most = [max(row[key] for row in rows) for key in ("registers", "shared_bytes")]
        spills = sum(row["spills"] for row in rows)
        lines.append(f"{kernel:14} {arch:7} {len(rows):7} {most[0]:9} {most[1]:8} {spills:6}")
    wall = f"{document['wall_s']} s in {document['threads']} processes"
    return [*lines, f"{document['configurations']} configurations, {len(document['rows'])} compiled, {wall}"]
