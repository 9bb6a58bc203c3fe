"""The fused ops against their torch twins in float64, over odd shapes, strides and poisoned memory."""

from __future__ import annotations

import inspect
import math

import pytest
import torch
from bounds import assert_close
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interleave.engine.build import build_engine
from interleave.engine.loop import serve
from interleave.lab.gate import run_gate
from interleave.lab.gate_trials import prompt_ids
from interleave.model.decoder import Decoder
from interleave.model.ops import reference
from interleave.model.ops.finite import NOT_FINITE
from interleave.model.sources import load_model
from interleave.schedule.request import Request

pytest.importorskip("triton", reason="triton has wheels for Linux only")
from interleave.model.ops import triton as ops

FEW = settings(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
DTYPES = st.sampled_from([torch.float32, torch.float16])
# Triton's interpreter cuts a bfloat16 where a GPU rounds it, which a bound of half a step does not allow.
ALL_DTYPES = st.sampled_from([torch.float32, torch.float16, torch.bfloat16])


def strided(rows: int, width: int, dtype: torch.dtype, device: str) -> torch.Tensor:
    """Random [rows, width], a view with NaN on both sides of every row."""
    room = torch.full((rows, width + 7), math.nan, device=device, dtype=dtype)
    view = room[:, 3 : 3 + width]
    view.copy_(torch.randn(rows, width))
    return view


def intact(view: torch.Tensor) -> bool:
    """Whether what surrounds a `strided` view is as it was."""
    room = view._base
    assert room is not None
    return bool(room[:, :3].isnan().all() and room[:, 3 + view.shape[1] :].isnan().all())


@FEW
@given(rows=st.integers(1, 33), hidden=st.integers(1, 700), dtype=DTYPES, added=st.booleans())
def test_the_norm_adds_and_normalises(
    rows: int, hidden: int, dtype: torch.dtype, added: bool, device: str
) -> None:
    torch.manual_seed(0)
    x, weight = strided(rows, hidden, dtype, device), torch.randn(hidden).to(device, dtype)
    delta = strided(rows, hidden, dtype, device) if added else None
    before = x.clone()
    summed, out = ops.add_norm(x, delta, weight, 1e-5)
    exact = before.double() if delta is None else before.double() + delta.double()
    assert_close(summed, exact, dtype, 0.5)
    # What is normalised is the sum as it was stored.
    exact = reference.rms_norm(summed.double(), torch.ones(hidden, device=device).double(), 1e-5)
    assert_close(out, exact * weight.double(), dtype, 0.5 + 0.5 * float(weight.abs().max()) + 2.0)
    assert intact(x)
    if not added:
        assert torch.equal(summed, before)
        assert torch.equal(ops.rms_norm(x, weight, 1e-5), out)


@FEW
@given(rows=st.integers(1, 33), half=st.integers(1, 2100), dtype=ALL_DTYPES)
def test_swiglu(rows: int, half: int, dtype: torch.dtype, device: str) -> None:
    torch.manual_seed(0)
    x = strided(rows, 2 * half, dtype, device)
    x[0, 0] = -60.0  # exp overflows a float16 there, and must not
    assert_close(ops.swiglu(x), reference.swiglu(x.double()), dtype, 2.0)


@FEW
@given(
    rows=st.integers(1, 9),
    group=st.integers(1, 8),
    kv_heads=st.integers(1, 3),
    head_dim=st.sampled_from([16, 64, 80, 128]),
    dtype=ALL_DTYPES,
)
def test_rotating_and_writing(
    rows: int, group: int, kv_heads: int, head_dim: int, dtype: torch.dtype, device: str
) -> None:
    torch.manual_seed(0)
    heads = group * kv_heads
    total = heads + 2 * kv_heads
    flat = strided(rows, total * head_dim, dtype, device)
    qkv = flat.view(rows, total, head_dim)
    angle = 3.0 * torch.rand(rows, head_dim // 2, device=device)
    # The tables are rounded to the type first, in the reference as in the kernel.
    cos, sin = angle.cos().to(dtype).float(), angle.sin().to(dtype).float()
    slots = torch.randperm(40, device=device)[:rows]
    caches = torch.full((2, kv_heads, 40, head_dim), math.nan, dtype=dtype, device=device)
    expected = caches.double()
    q = reference.rotate_and_write(qkv.double(), cos, sin, slots, expected[0], expected[1])
    assert_close(ops.rotate_and_write(qkv, cos, sin, slots, caches[0], caches[1]), q, dtype, 3.0)
    assert torch.equal(caches.isnan(), expected.isnan())
    assert_close(caches.nan_to_num(), expected.nan_to_num(), dtype, 3.0)
    rotated = reference.rotate(qkv.double(), cos, sin, heads + kv_heads)
    assert_close(ops.rope(qkv, cos, sin)[:, : heads + kv_heads], rotated[:, : heads + kv_heads], dtype, 3.0)
    assert_close(ops.rotate(qkv, cos, sin, heads + kv_heads), rotated, dtype, 3.0)
    assert intact(flat)


@FEW
@given(
    rows=st.integers(1, 5),
    vocab=st.one_of(st.integers(1, 50), st.integers(8185, 8200), st.sampled_from([2048, 16384, 20001])),
    dtype=DTYPES,
    data=st.data(),
)
def test_the_lowest_of_the_highest_logits(
    rows: int, vocab: int, dtype: torch.dtype, data: st.DataObject, device: str
) -> None:
    torch.manual_seed(0)
    logits = strided(rows, vocab, dtype, device)
    tied = sorted(data.draw(st.sets(st.integers(0, vocab - 1), min_size=1, max_size=3)))
    logits[0, tied] = 9.0
    tokens = ops.greedy(logits)
    assert tokens.dtype == torch.int64
    assert tokens.tolist() == [row.index(max(row)) for row in logits.tolist()]
    assert int(tokens[0]) == tied[0]


def test_a_row_that_is_not_finite_has_no_greedy_token(device: str) -> None:
    logits = torch.zeros((4, 9000), device=device)
    logits[0] = -math.inf
    logits[1, 8999] = math.nan
    logits[2, [70, 8500]] = -math.inf
    assert ops.greedy(logits).tolist() == reference.greedy(logits).tolist() == [*[NOT_FINITE] * 3, 0]


def test_no_op_is_missing() -> None:
    """The decoder asks a module for its ops by name, and a CUDA device gets this one by default."""
    named = {name for name, value in vars(reference).items() if inspect.isfunction(value) and name[0] != "_"}
    assert named == set(ops.__all__)


@pytest.mark.parametrize("name", ["mixed", "recorded"])
def test_an_engine_on_the_fused_ops_generates_the_tokens_of_the_reference(name: str, device: str) -> None:
    """Keys are written as they are rotated, the head's rows decided by the kernel; `recorded` leaves
    splits empty, because it launches as many as its longest request would need."""
    plain = load_model("tiny-gqa3", device=device, ops=reference).decoder
    fused = Decoder(plain.config, plain.weights, ops)
    requests = [Request(str(length), list(range(length)), 4) for length in (5, 33)]

    def tokens(decoder: Decoder, backend: str) -> list[list[int]]:
        engine = build_engine(
            name,
            decoder,
            max_rows=2,
            chunk_budget=16,
            block_tokens=16,
            num_blocks=8,
            max_request_tokens=1200,
            backend=backend,
            warm_up=False,
        )
        return [record.tokens for record in serve(engine, requests).requests]

    assert tokens(fused, "triton") == tokens(plain, "reference")


@pytest.mark.slow
def test_engines_on_kernels_alone_pass_the_parity_gate(device: str) -> None:
    """Attention and ops both Triton's: the quick gate, its poisoned blocks and its pool of one request."""
    plain = load_model("tiny-gqa3", device=device)
    fused = Decoder(plain.config, plain.decoder.weights, ops)
    ids = prompt_ids(plain)
    report = run_gate(fused, ids, backends=["triton"], engines=("chunked", "mixed", "recorded"), quick=True)
    assert report.failures == report.ties == []
    assert report.distinct_tokens > 30
