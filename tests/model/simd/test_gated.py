"""The fused first half of SwiGLU gives the bits of its two steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, dequantize, quantize

from interleave.model.ops import reference, simd
from interleave.model.simd.forms import NAMES, PANEL
from interleave.model.simd.gated import DEPTH, fits, multiply_gated
from interleave.model.simd.linear import LinearPaths
from interleave.model.simd.pack import pack_matrix

pytestmark = pytest.mark.usefixtures("one_thread")


def weights(form: str, width: int, depth: int) -> np.ndarray:
    """Random weights whose narrowest exact form is `form`."""
    values = 0.05 * np.random.default_rng(0).standard_normal((width, depth), dtype=np.float32)
    if form in ("q4_1", "q8_0"):
        kind = GGMLQuantizationType[form.upper()]
        return dequantize(quantize(values, kind), kind).astype(np.float32)
    if form == "bf16":
        return (values.view(np.uint32) & 0xFFFF0000).view(np.float32)
    return values.astype(np.float16).astype(np.float32) if form == "fp16" else values


@pytest.mark.parametrize("form", NAMES)
@pytest.mark.parametrize("rows", [1, 11, 12, 13, 33])
@pytest.mark.parametrize("narrow_rows", [0, 64])
def test_the_bits_are_those_of_product_and_activation(form: str, rows: int, narrow_rows: int) -> None:
    matrix = pack_matrix(weights(form, 6 * PANEL, 96))
    x = np.random.default_rng(1).standard_normal((rows, 96), dtype=np.float32)
    out = np.full((rows, 3 * PANEL), np.nan, dtype=np.float32)
    multiply_gated(x, matrix, out, LinearPaths(narrow_rows))
    steps = simd.swiglu(simd.linear(torch.from_numpy(x), matrix))
    assert np.array_equal(out, steps.numpy())


@pytest.mark.parametrize(
    ("inner", "depth"), [(3 * PANEL, 64), (3 * PANEL + 8, 64), (PANEL, DEPTH + 32), (5, 7)]
)
def test_any_shape_agrees_with_the_reference(inner: int, depth: int) -> None:
    weight = torch.from_numpy(weights("fp32", 2 * inner, depth))
    x = torch.randn(5, depth, generator=torch.Generator().manual_seed(2))
    packed = simd.pack(weight)
    assert fits(packed) == (inner % PANEL == 0 and depth <= DEPTH)
    torch.testing.assert_close(simd.gated(x, packed), reference.gated(x, weight), rtol=1e-4, atol=1e-5)


def test_nan_reaches_the_product() -> None:
    x = torch.ones(2, 32)
    x[1, 3] = torch.nan
    out = simd.gated(x, simd.pack(torch.from_numpy(weights("q4_1", 2 * PANEL, 32))))
    assert out[0].isfinite().all()
    assert out[1].isnan().all()
