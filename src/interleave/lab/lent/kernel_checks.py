"""Every kernel against its plain twin on the device at hand, in each type. A point is one type.

An error is measured in steps of the type: the distance of two neighbouring numbers as large as the
largest of the answer. The bound counts the roundings that a kernel makes; it is not fitted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from interleave.lab.lent import attention_calls as calls
from interleave.lab.lent.choices import Choices
from interleave.lab.measure import Point
from interleave.lab.point_table import Row
from interleave.model.config import ModelConfig
from interleave.model.config_hf import shipped_config
from interleave.model.ops import reference
from interleave.model.sources import DTYPES

MODULES = ("lent/attention_calls",)
BOUND_STEPS = 4.0
"""Two roundings of what goes in and one of what comes out, and one to spare. In float32 sums of many
products round more often than that: 64 there."""
BOUND_STEPS_FP32 = 64.0
DECODES = [(1, 1), (63, 1), (64, 1), (65, 1), (700, 1), (2049, 1)]
CHUNKS = [(100, 100), (700, 130), (33, 2)]


def points(params: Choices) -> list[Point]:
    """Real shapes in reach, one type each."""
    return [
        Point(dtype, params.config("block_tokens") | {"dtype": dtype, "deepest": _deepest(params)})
        for dtype in params.dtypes
    ]


def _deepest(params: Choices) -> int:
    return max(context for context, _ in DECODES) if params.device == "cuda" else 100


def estimate_s(params: Choices) -> list[float]:
    return [12.0] * len(params.dtypes)


def prepare(params: Choices) -> None:
    """Refuses a device that the kernels cannot run on."""
    from interleave.model.ops import triton

    triton.swiglu(torch.zeros((1, 32), device=params.device))


def measure(point: Point, _setting: None, _earlier: Mapping[str, list[Row]]) -> list[Row]:
    """A row per kernel: the largest error in steps, and whether it is within the bound."""
    config = point.config
    dtype, device = DTYPES[config["dtype"]], config["device"]
    shape = shipped_config(config["model"])
    found = _ops(shape, dtype, device) | _attention(config, shape, dtype, device)
    bound = BOUND_STEPS_FP32 if dtype == torch.float32 else BOUND_STEPS
    return [
        {
            "kernel": name,
            "dtype": config["dtype"],
            "steps": steps,
            "bound_steps": bound,
            "failed": int(not steps <= bound),
        }
        for name, steps in found.items()
    ]


def _steps(got: Tensor, right: Tensor, dtype: torch.dtype) -> float:
    if bool(got.isnan().any()):
        return 1e9
    largest = right.double().abs().max()
    return float((got.double() - right.double()).abs().max() / (largest * torch.finfo(dtype).eps))


def _ops(shape: ModelConfig, dtype: torch.dtype, device: str) -> dict[str, float]:
    from interleave.model.ops import triton as ops

    generator = torch.Generator(device).manual_seed(0)

    def normal(*sizes: int) -> Tensor:
        return torch.empty(sizes, dtype=dtype, device=device).normal_(generator=generator)

    heads, kv_heads, dim = shape.num_attention_heads, shape.num_key_value_heads, shape.head_dim
    n = 33
    x, delta, weight = normal(n, shape.hidden_size), normal(n, shape.hidden_size), normal(shape.hidden_size)
    summed = (x + delta).double()
    right_norm = reference.rms_norm(summed, weight.double(), shape.rms_norm_eps)
    found = {"rms_norm": _steps(ops.add_norm(x, delta, weight, shape.rms_norm_eps)[1], right_norm, dtype)}
    gate_up = normal(n, 2 * shape.intermediate_size)
    found["swiglu"] = _steps(ops.swiglu(gate_up), reference.swiglu(gate_up.double()), dtype)
    qkv = normal(n, heads + 2 * kv_heads, dim)
    cos, sin = (table[:n].to(dtype).float() for table in reference.rope_table(shape, torch.device(device)))
    slots = torch.randperm(64, generator=generator, device=device)[:n]
    caches = torch.zeros((2, kv_heads, 64, dim), dtype=dtype, device=device)
    right_caches = caches.double()
    right = reference.rotate_and_write(qkv.double(), cos, sin, slots, right_caches[0], right_caches[1])
    got = ops.rotate_and_write(qkv, cos, sin, slots, caches[0], caches[1])
    found["rope_write"] = max(_steps(got, right, dtype), _steps(caches, right_caches, dtype))
    logits = normal(n, shape.vocab_size).float()
    logits[:, shape.vocab_size // 2 :] = logits[:, : shape.vocab_size - shape.vocab_size // 2].clone()
    ids = torch.arange(shape.vocab_size, device=device)
    highest = logits == logits.max(-1, keepdim=True).values
    lowest = torch.where(highest, ids, shape.vocab_size).min(-1).values
    found["argmax"] = float((ops.argmax(logits) != lowest).sum()) * 1e9  # the lowest of the highest, or wrong
    return found


def _attention(
    config: Mapping[str, object], shape: ModelConfig, dtype: torch.dtype, device: str
) -> dict[str, float]:
    from dataclasses import replace

    shape = replace(shape, num_hidden_layers=1)
    deepest, size = int(str(config["deepest"])), int(str(config["block_tokens"]))
    decodes = [row for row in DECODES if row[0] <= deepest]
    chunks = [row for row in CHUNKS if row[0] <= deepest]
    scenes: list[tuple[str, list[tuple[int, int]], Callable[[calls.Scene], calls.Call]]] = [
        ("paged_decode", decodes, calls.by_plan),
        ("packed_prefill", chunks, calls.by_plan),
        ("segmented", decodes + chunks, calls.by_segments),
        ("union_tiles", decodes, calls.by_union),
    ]
    found = {}
    for name, rows, made in scenes:
        one = calls.scene(shape, rows, size, dtype, device)
        # Errors scale with the values that are averaged, not with their mean: those are about 1.
        got, right = made(one)(0), calls.exact(one)
        largest = one.cache.v[0].abs().max().double()
        found[name] = float((got.double() - right.double()).abs().max() / (largest * torch.finfo(dtype).eps))
    return found
