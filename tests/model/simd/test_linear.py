"""Narrow weights lose no bit, and linear layers on them agree with float64 at every shape."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind
from gguf import dequantize, quantize

from interleave.model.simd import linear
from interleave.model.simd.forms import NAMES, PANEL
from interleave.model.simd.linear import DEPTH, LinearPaths, multiply
from interleave.model.simd.pack import pack_matrix
from interleave.model.simd.queue import new_queue

pytestmark = pytest.mark.usefixtures("one_thread")


def weights(form: str, width: int, depth: int, seed: int = 0) -> np.ndarray:
    """Random weights whose narrowest exact form is `form`."""
    values = 0.05 * np.random.default_rng(seed).standard_normal((width, depth), dtype=np.float32)
    if form in ("q4_1", "q8_0"):
        kind = Kind[form.upper()]
        return dequantize(quantize(values, kind), kind).astype(np.float32)
    if form == "bf16":
        return (values.view(np.uint32) & 0xFFFF0000).view(np.float32)
    return values.astype(np.float16).astype(np.float32) if form == "fp16" else values


def product(x: np.ndarray, matrix: object, paths: LinearPaths = LinearPaths()) -> np.ndarray:  # noqa: B008
    out = np.full((len(x), matrix.width), np.nan, dtype=np.float32)  # type: ignore[attr-defined]
    multiply(x, matrix, out, paths=paths)  # type: ignore[arg-type]
    return out


EVERY_FORM = pytest.mark.parametrize("form", NAMES)
SIZES = [(PANEL, 32), (3 * PANEL, 96), (5 * PANEL + 3, 64), (PANEL - 1, 32), (1, 64)]
ODD_DEPTHS = [(PANEL + 5, 90), (7, 1), (2 * PANEL, 33)]


@EVERY_FORM
@pytest.mark.parametrize(("width", "depth"), SIZES)
def test_every_bit_comes_back(form: str, width: int, depth: int) -> None:
    """A product with the identity is the weights themselves, by both paths."""
    original = weights(form, width, depth)
    matrix = pack_matrix(original)
    assert matrix.form_name == form
    identity = np.eye(depth, dtype=np.float32)
    for narrow_rows in (0, depth):
        back = product(identity, matrix, LinearPaths(narrow_rows)).T
        assert np.array_equal(back.view(np.uint32), (original + np.float32(0)).view(np.uint32))


@EVERY_FORM
def test_one_foreign_value_rules_a_form_out(form: str) -> None:
    """The last value of the last panel, changed by one bit, is kept too: in float32."""
    original = weights(form, 2 * PANEL, 64)
    bits = original.view(np.uint32)
    bits[-1, -1] ^= 1
    matrix = pack_matrix(original)
    assert matrix.form_name == "fp32"
    back = product(np.eye(64, dtype=np.float32), matrix).T
    assert np.array_equal(back.view(np.uint32), bits)


@pytest.mark.parametrize("rows", [*range(1, 34), 64, 65])
def test_rows(rows: int) -> None:
    """Every way of cutting rows into tiles, against float64."""
    for form in ("q4_1", "fp32"):
        original = weights(form, 2 * PANEL + 5, 96)
        x = np.random.default_rng(rows).standard_normal((rows, 96), dtype=np.float32)
        right = x.astype(np.float64) @ original.T.astype(np.float64)
        assert np.abs(product(x, pack_matrix(original)) - right).max() < 1e-5


@EVERY_FORM
@pytest.mark.parametrize(("width", "depth"), [*SIZES, *ODD_DEPTHS, (40, DEPTH + 64)])
def test_a_row_does_not_depend_on_its_company(form: str, width: int, depth: int) -> None:
    """The same bits alone, among others, and by either path: what makes greedy tokens repeatable."""
    original = weights(form if depth % 32 == 0 else "bf16", width, depth)
    matrix = pack_matrix(original)
    x = np.random.default_rng(1).standard_normal((29, depth), dtype=np.float32)
    together = product(x, matrix)
    right = x.astype(np.float64) @ original.T.astype(np.float64)
    assert np.abs(together - right).max() < 2e-6 * depth**0.5
    for narrow_rows in (0, 40):
        assert np.array_equal(product(x, matrix, LinearPaths(narrow_rows)), together)
        for rows in (1, 2, 3, 7, 13):
            assert np.array_equal(product(x[:rows].copy(), matrix, LinearPaths(narrow_rows)), together[:rows])


@pytest.mark.parametrize("width", [PANEL, PANEL + 3])
@pytest.mark.parametrize("form", ["q4_1", "fp32"])
@pytest.mark.parametrize("narrow_rows", [0, 5])
def test_sums_go_on_from_what_is_there(width: int, form: str, narrow_rows: int) -> None:
    """A product over the depth in two parts, the second added to the first, has the bits of the whole."""
    whole, paths = weights(form, width, 96), LinearPaths(narrow_rows)
    x = np.random.default_rng(2).standard_normal((5, 96), dtype=np.float32)
    out = product(x[:, :32].copy(), pack_matrix(whole[:, :32].copy()), paths)
    multiply(x[:, 32:].copy(), pack_matrix(whole[:, 32:].copy()), out, add=True, paths=paths)
    assert np.array_equal(out, product(x, pack_matrix(whole), paths))


def test_equal_weights_and_zeros_have_a_form() -> None:
    """A block of equal values has no scale; one of zeros has neither scale nor minimum."""
    original = np.zeros((PANEL, 64), dtype=np.float32)
    original[:, 32:] = 0.25
    matrix = pack_matrix(original)
    assert matrix.form_name == "q4_1"
    assert np.array_equal(product(np.eye(64, dtype=np.float32), matrix).T, original)


def test_nan_reaches_the_product() -> None:
    matrix = pack_matrix(weights("q4_1", PANEL, 32))
    x = np.ones((2, 32), dtype=np.float32)
    x[1, 3] = np.nan
    out = product(x, matrix)
    assert np.isfinite(out[0]).all()
    assert np.isnan(out[1]).all()


def test_paths_are_checked() -> None:
    with pytest.raises(ValueError, match="at least 0, got -1"):
        LinearPaths(-1)


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize(("rows", "size"), [(3, 2), (3, 7), (40, 2), (40, 1)])
def test_threads_take_parts_without_changing_a_bit(threads: int, rows: int, size: int) -> None:
    """More threads than cores too: whoever comes late finds the queue empty."""
    matrix = pack_matrix(weights("q4_1", 200, 96))
    x = np.random.default_rng(1).standard_normal((rows, 96), dtype=np.float32)
    out = np.full((rows, 200), np.nan, dtype=np.float32)
    scratch = np.empty((threads, linear._scratch(1).shape[1]), dtype=np.float32)
    linear._multiply(x, matrix.panels, matrix.form, out, False, 8, size, new_queue(), threads, scratch)
    assert np.array_equal(out, product(x, matrix))
