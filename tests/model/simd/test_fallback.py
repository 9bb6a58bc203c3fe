"""Where the CPU has no fused multiply-add, or the model is not float32, the portable ways serve."""

from __future__ import annotations

import pytest
import torch

from interleave.engine.build import attention_backend
from interleave.model.attention.cpu import CpuAttention
from interleave.model.attention.simd import SimdAttention
from interleave.model.kv_cache import KVCache
from interleave.model.ops import cpu, reference, simd
from interleave.model.sources import load_model


def cache_of(config: object) -> KVCache:
    return KVCache(config, 2, 16, torch.float32, "cpu")  # type: ignore[arg-type]


@pytest.mark.skipif(not simd.HAS_FMA, reason="this CPU has no fused multiply-add")
def test_vectors_are_the_default() -> None:
    model = load_model("tiny")
    assert model.decoder.ops is simd
    assert isinstance(attention_backend(None, cache_of(model.config)), SimdAttention)


def test_a_cpu_without_fused_multiply_add(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simd, "HAS_FMA", False)
    model = load_model("tiny")
    assert model.decoder.ops is cpu
    assert isinstance(attention_backend("cpu", cache_of(model.config)), CpuAttention)


def test_half_precision() -> None:
    assert load_model("tiny", dtype="bf16").decoder.ops is reference
