"""Vectors inside kernels, and the same kernels compiled for a CPU with half as wide registers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from interleave.model.simd.compiled import code_folder, compiled
from interleave.model.simd.vector import CPU_FEATURES, LANES, vexp, vload, vpower, vstore

HASWELL = "+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+sse,+sse2,+sse3,+sse4.1,+sse4.2,+ssse3"


@compiled
def _exponentials(x: np.ndarray, out: np.ndarray) -> None:
    for at in range(0, len(x), LANES):
        vstore(out, at, vexp(vload(x, at)))


def exponentials(x: np.ndarray) -> np.ndarray:
    out = np.empty_like(x)
    _exponentials(x, out)
    return out


def test_exponential_is_right_to_two_units_in_the_last_place() -> None:
    x = np.linspace(-87.0, 88.0, 64 * 20_000, dtype=np.float32)
    right = np.exp(x.astype(np.float64))
    units = np.abs(exponentials(x) - right) / np.spacing(right.astype(np.float32))
    assert units.max() < 2.0


def test_exponential_of_the_far_ends() -> None:
    x = np.array([-np.inf, -1e30, -88.0, 0.0, 88.0, 1e30, np.inf, np.nan], dtype=np.float32).repeat(16)
    out = exponentials(x)[::16]
    assert out[:3].tolist() == [0.0, 0.0, 0.0]
    assert out[3] == 1.0
    assert np.all((out[4:7] > 1e38) & np.isfinite(out[4:7]))
    assert np.isnan(out[7])


@compiled
def _powers(x: np.ndarray, out: np.ndarray) -> None:
    for at in range(0, len(x), LANES):
        vstore(out, at, vpower(vload(x, at)))


def powers(x: np.ndarray) -> np.ndarray:
    out = np.empty_like(x)
    _powers(x, out)
    return out


def test_power_of_two_is_right_to_a_unit_and_a_half_in_the_last_place() -> None:
    x = np.concatenate((np.linspace(-126.0, 20.0, 64 * 20_000), -np.geomspace(1e-8, 1.0, 64 * 2_000)))
    x = x.astype(np.float32)
    right = np.exp2(x.astype(np.float64))
    units = np.abs(powers(x) - right) / np.spacing(right.astype(np.float32))
    assert units.max() < 1.5


def test_power_of_two_of_the_far_ends() -> None:
    """Whole powers are exact, and there is no denormal number between the least one and 0."""
    x = np.array([-np.inf, -1e30, -150.0, -126.9, -126.0, -1.0, 0.0, 8.0, np.nan], dtype=np.float32).repeat(
        16
    )
    out = powers(x)[::16]
    assert out[:4].tolist() == [0.0] * 4
    assert out[4:8].tolist() == [2.0**-126, 0.5, 1.0, 256.0]
    assert np.isnan(out[8])


def test_machine_code_is_kept_by_source_and_cpu() -> None:
    assert code_folder().parent.name == "kernels"
    assert len(code_folder().name) == 16


@pytest.mark.slow
@pytest.mark.skipif("+avx2" not in CPU_FEATURES, reason="this CPU does not run code for Haswell")
def test_on_narrower_registers() -> None:
    """The tests of this package and of attention, with the kernels compiled for AVX2."""
    here = Path(__file__).resolve().parent
    chosen = [here / "test_linear.py", here / "test_glue.py", here.parent / "attention"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *map(str, chosen)],
        cwd=here.parents[2],
        env={**os.environ, "NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": HASWELL},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
