"""Every kernel against its plain twin on the device at hand, in each type. A point is one type.

An error is measured in steps of the type: the distance of two neighbouring numbers as large as the
largest of the answer. The bound counts the roundings that a kernel makes; it is not fitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from interleave.lab.gpu_host.choices import Choices
from interleave.lab.layout_calls import layouts, make_call
from interleave.lab.measure import Point
from interleave.lab.point_table import Row
from interleave.model.attention.reference import ReferenceAttention
from interleave.model.config import ModelConfig
from interleave.model.config_hf import shipped_config
from interleave.model.ops import reference
from interleave.model.sources import DTYPES

MODULES = ("layout_calls",)
BOUND_STEPS = 4.0
"""Two roundings of what goes in and one of what comes out, and one to spare. In float32 sums of many
products round more often than that: 64 there."""
BOUND_STEPS_FP32 = 64.0
CONTEXTS, CHUNK = [1, 63, 64, 65, 700, 2049], 130
"""Around the edges of blocks and of splits of the context, and tiles that a chunk does not fill."""


def points(params: Choices) -> list[Point]:
    """Real shapes, one type each."""
    real = params.device == "cuda"
    sizes = {"contexts": CONTEXTS if real else CONTEXTS[:4], "chunk": CHUNK if real else 33}
    return [Point(dtype, params.config() | sizes | {"dtype": dtype}) for dtype in params.dtypes]


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
    found = _ops(shape, dtype, device)
    found |= _attention(shape, config["contexts"], config["chunk"], dtype, device)
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
    found["argmax"] = float((ops.greedy(logits) != lowest).sum()) * 1e9  # the lowest of the highest, or wrong
    return found


def _attention(
    shape: ModelConfig, contexts: list[int], chunk: int, dtype: torch.dtype, device: str
) -> dict[str, float]:
    """Errors in steps of the largest value that is averaged: the averages themselves may be near 0."""
    found: dict[str, float] = {}
    for beside in (0, chunk):
        call = make_call(replace(shape, num_hidden_layers=1), contexts, beside, dtype, device)
        oracle = ReferenceAttention(call.cache)
        oracle.plan(call.together)
        # On values as they are stored, in float32 throughout: the answer is not rounded to the type.
        right = oracle.run(0, call.q.float(), call.k, call.v)
        largest = call.cache.v[0].abs().max().double()
        for layout, attend in layouts(call, "triton").items():
            got = attend(0).double()
            steps = float((got - right.double()).abs().max() / (largest * torch.finfo(dtype).eps))
            found[f"{layout}, chunk of {beside}" if beside else layout] = 1e9 if steps != steps else steps
    return found
