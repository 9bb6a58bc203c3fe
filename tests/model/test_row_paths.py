"""Which path serves which row count: tables in order, read or fixed, and the same numbers whatever they say."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

import pytest
import torch

from interleave.engine.build import build_engine
from interleave.engine.loop import serve
from interleave.model.ops import cpu, reference, simd
from interleave.model.ops.by_rows import OpsByRows
from interleave.model.row_paths import RowPaths, best_paths, fixed_paths, paths_file, stored_paths
from interleave.model.sources import load_model
from interleave.schedule.request import Request

SHAPES = [(8, 4), (4, 4), (16, 4), (4, 8)]
TWO = RowPaths(((4, "reference"), (None, "cpu")), "measured")
MODULES = {"reference": reference, "cpu": cpu}


def test_a_row_count_has_one_path() -> None:
    paths = RowPaths(((1, "simd"), (16, "cpu"), (None, "simd")), "measured")
    assert [paths.path_for(rows) for rows in (1, 2, 16, 17, 4096)] == ["simd", "cpu", "cpu", "simd", "simd"]
    assert paths.names == ("simd", "cpu")
    assert paths.described == "simd to 1 rows, cpu to 16 rows, simd beyond (measured)"
    assert fixed_paths(True).described == "simd (fixed)"
    assert fixed_paths(False).path_for(7) == "cpu"


@pytest.mark.parametrize(
    "limits", [(), ((4, "cpu"),), ((None, "cpu"), (None, "simd")), ((4, "cpu"), (4, "simd"), (None, "cpu"))]
)
def test_limits_out_of_order_are_refused(limits: tuple[tuple[int | None, str], ...]) -> None:
    with pytest.raises(ValueError, match="must ascend and end without one"):
        RowPaths(limits, "measured")


def test_an_unknown_path_is_refused() -> None:
    with pytest.raises(ValueError, match="did you mean 'simd'"):
        RowPaths(((None, "sim"),), "measured")


def test_a_path_has_to_be_clearly_faster() -> None:
    """Within a twentieth of the usual one it is not worth a second layout of the weights."""
    seconds = {1: {"simd": 1.0, "cpu": 0.96}, 32: {"simd": 1.0, "cpu": 0.9}, 64: {"simd": 1.0, "cpu": 0.5}}
    assert best_paths(seconds, "simd").limits == ((1, "simd"), (None, "cpu"))
    assert best_paths({512: {"simd": 2.0, "cpu": 3.0}}, "simd").limits == ((None, "simd"),)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"limits": []}', '{"limits": [[null, "other"]]}', '{"limits": 3}']
)
def test_a_table_that_cannot_be_used_counts_as_none(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERLEAVE_CACHE", str(tmp_path))
    assert stored_paths(SHAPES) is None
    path = paths_file(SHAPES)
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert stored_paths(SHAPES) is None
    path.write_text('{"limits": [[4, "reference"], [null, "cpu"]]}')
    assert stored_paths(SHAPES) == TWO
    assert stored_paths(SHAPES[::-1]) is None  # other shapes


def test_rows_go_where_the_table_says(one_thread: None) -> None:
    ops, weight = OpsByRows(TWO, MODULES), torch.randn(48, 24)
    packed, bias = ops.pack(weight), torch.randn(48)
    assert packed.nbytes == 2 * packed.read_nbytes == 2 * weight.nbytes
    for rows in (1, 4, 5, 40):
        x, module = torch.randn(rows, 24), MODULES[TWO.path_for(rows)]
        assert torch.equal(ops.linear(x, packed, bias), module.linear(x, module.pack(weight), bias))
        assert torch.equal(ops.gated(x, packed), module.gated(x, module.pack(weight)))


@pytest.mark.parametrize("usual", [reference, cpu, simd])
def test_no_op_is_missing(usual: ModuleType) -> None:
    """Linear layers go by rows, every other op is the first path's."""
    assert set(cpu.__all__) >= {"add_norm", "rotate_and_write", "greedy"}
    name, other = usual.__name__.rpartition(".")[2], cpu if usual is reference else reference
    paths = RowPaths(((4, name), (None, other.__name__.rpartition(".")[2])), "measured")
    ops = OpsByRows(paths, {"simd": simd, **MODULES})
    for op in set(cpu.__all__) & vars(usual).keys():
        assert (getattr(ops, op) is getattr(usual, op)) == (op not in ("pack", "linear", "gated")), op


@pytest.mark.parametrize("backend", ["cpu", "triton"])
def test_the_tokens_are_those_of_one_path(backend: str, one_thread: None) -> None:
    """Untied random weights, so that answers differ; and a step's floor counts one layout, memory both."""
    if backend == "triton":
        pytest.importorskip("triton", reason="triton has wheels for Linux only")
        if os.environ.get("TRITON_INTERPRET") != "1":
            pytest.skip("this table is for a CPU, where the kernels need Triton's interpreter")
    answers, plain = [], load_model("tiny-gqa3", ops=reference).decoder
    mixed = load_model("tiny-gqa3", ops=OpsByRows(TWO, MODULES)).decoder
    for decoder in (plain, mixed):
        engine = build_engine(
            "mixed", decoder, max_rows=8, chunk_budget=24, max_request_tokens=48, backend=backend
        )
        log = serve(engine, [Request(f"r{n}", tuple(range(1, 4 + 3 * n)), 12) for n in range(8)])
        answers.append([record.tokens for record in log.requests])
    assert answers[0] == answers[1]
    assert len({token for tokens in answers[0] for token in tokens}) > 10
    assert mixed.step_weight_bytes == plain.step_weight_bytes
    assert mixed.weight_bytes > plain.weight_bytes
