"""The layout experiment: every layout attends alike, and points follow parameters.

The kernels run under Triton's interpreter here (tests/conftest.py).
"""

from __future__ import annotations

import pytest
import torch
from experiment_choices import CHOICES
from pydantic import ValidationError
from torch import Tensor

from interleave.lab.experiments import kernel_layout as experiment
from interleave.lab.experiments.kernel_layout import Params
from interleave.lab.layout_calls import LAYOUTS, Call, layouts, make_call
from interleave.lab.union_attention import UnionAttention
from interleave.model.attention.reference import ReferenceAttention

SMALL = CHOICES["kernel_layout"].small


def oracle(call: Call, layer: int) -> Tensor:
    attention = ReferenceAttention(call.cache)
    attention.plan(call.together)
    return attention.run(layer, call.q, call.k, call.v)


@pytest.mark.parametrize("backend", ["cpu", "triton"])
@pytest.mark.parametrize("chunk", [0, 70])
@pytest.mark.parametrize(
    "contexts", [[1], [64], [65, 3, 128, 200], [5 + 3 * row for row in range(33)]], ids=len
)
def test_layouts_attend_alike(contexts: list[int], chunk: int, backend: str) -> None:
    """Also more rows than a tile holds; against the oracle, which gathers each row's history."""
    setting = experiment.prepare(Params(**{**SMALL, "shape": "smollm2-135m"}))
    call = make_call(setting, contexts, chunk, torch.float32, "cpu")
    expected = oracle(call, 1)
    run = layouts(call, backend)
    assert tuple(run) == LAYOUTS
    for attend in run.values():
        torch.testing.assert_close(attend(1), expected, rtol=1e-5, atol=1e-5)


def test_union_tiles_do_not_need_blocks_in_order() -> None:
    setting = experiment.prepare(Params(**SMALL))
    call = make_call(setting, [70, 130, 20], 0, torch.float32, "cpu")
    batch = call.decoding
    # Rows exchange their second blocks; what was written there is random, so nothing else changes.
    batch.tables[0, 1], batch.tables[1, 1] = batch.tables[1, 1], batch.tables[0, 1]
    size = batch.block_tokens
    batch.slots[:] = torch.tensor(
        [
            batch.tables[row, (length - 1) // size] * size + (length - 1) % size
            for row, length in enumerate((70, 130, 20))
        ]
    )
    union, reference = UnionAttention(call.cache), ReferenceAttention(call.cache)
    union.plan(batch)
    reference.plan(batch)
    expected = reference.run(0, call.q, call.k, call.v)
    torch.testing.assert_close(union.run(0, call.q, call.k, call.v), expected, rtol=1e-5, atol=1e-5)


def test_union_tiles_refuse_a_chunk() -> None:
    setting = experiment.prepare(Params(**SMALL))
    call = make_call(setting, [70], 5, torch.float32, "cpu")
    with pytest.raises(ValueError, match="decode rows"):
        UnionAttention(call.cache).plan(call.together)


def test_a_point_times_every_layout_in_turn() -> None:
    params = Params(**SMALL)
    setting = experiment.prepare(params)
    point = experiment.points(params)[-1]
    rows = experiment.measure(point, setting, {})
    assert [(row["repeat"], row["layout"]) for row in rows] == [
        (repeat, name) for repeat in range(3) for name in LAYOUTS
    ]
    assert all(row["call_s"] > 0 for row in rows)
    assert {(row["rows"], row["cached"], row["chunk"]) for row in rows} == {(3, 60, 5)}


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_half_precision_is_refused_on_a_cpu(dtype: str) -> None:
    with pytest.raises(ValidationError, match=f"dtype {dtype} needs device cuda: on the cpu"):
        Params(dtype=dtype)
    assert Params(dtype=dtype, device="cuda").dtype == dtype
