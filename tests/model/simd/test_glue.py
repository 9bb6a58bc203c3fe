"""The ops in explicit vectors against their torch twins, at widths that are not whole vectors too."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from interleave.model.ops import reference, simd

pytestmark = pytest.mark.usefixtures("one_thread")
ROWS = [1, 2, 33]


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("width", [1, 8, 24, 31, 576])
@pytest.mark.parametrize("adding", [True, False])
def test_add_norm(rows: int, width: int, adding: bool) -> None:
    residual, weight = random(rows, width), random(width, seed=1)
    delta = random(rows, width, seed=2) if adding else None
    right = reference.add_norm(residual.clone(), delta, weight, 1e-5)
    got = simd.add_norm(residual.clone(), delta, weight, 1e-5)
    assert torch.equal(got[0], right[0])
    torch.testing.assert_close(got[1], right[1], rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("dim", [2, 16, 64, 80, 128])
def test_rotate(rows: int, dim: int) -> None:
    qkv, angles = random(rows, 7, dim), 100 * random(rows, dim // 2, seed=1)
    right = reference.rotate(qkv.clone(), angles.cos(), angles.sin(), 5)
    got = simd.rotate(qkv.clone(), angles.cos(), angles.sin(), 5)
    torch.testing.assert_close(got, right, rtol=1e-6, atol=1e-6)
    assert torch.equal(got[:, 5:], qkv[:, 5:])


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("width", [1, 16, 30, 1536])
def test_swiglu(rows: int, width: int) -> None:
    gate_up = 5 * random(rows, 2 * width)
    torch.testing.assert_close(simd.swiglu(gate_up), reference.swiglu(gate_up), rtol=1e-6, atol=1e-6)


def test_swiglu_far_out() -> None:
    """Where e**-x leaves float32's range the gate is 0 or x, and NaN stays NaN."""
    gate = torch.tensor([-1e30, -200.0, -89.0, -80.0, 80.0, 89.0, 200.0, 1e30, float("nan")]).repeat(1, 8)
    got = simd.swiglu(torch.cat((gate, torch.ones_like(gate)), dim=1))
    right = reference.swiglu(torch.cat((gate, torch.ones_like(gate)), dim=1))
    torch.testing.assert_close(got, right, rtol=1e-6, atol=1e-7, equal_nan=True)


@pytest.mark.parametrize("rows", ROWS)
def test_linear_with_a_bias(rows: int) -> None:
    x, weight, bias = random(rows, 70), random(45, 70, seed=1), random(45, seed=2)
    got = simd.linear(x, simd.pack(weight), bias)
    torch.testing.assert_close(got, reference.linear(x, weight, bias), rtol=1e-5, atol=1e-5)
