"""The rehearsal leaves the engine as new, and nothing for a measured step to compile."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numba
import pytest
from tiny_engines import EVERY_ENGINE, engine, expected, micro, request, tokens_of

from interleave.engine import warm_up as module
from interleave.engine.compilations import compilations
from interleave.engine.loop import serve


@pytest.fixture(autouse=True)
def _nothing_rehearsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_rehearsed", set())


def test_an_engine_like_another_is_not_rehearsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    drain = module._drain
    monkeypatch.setattr(module, "_drain", lambda stage: (built.append(stage.name), drain(stage)))
    for name, rows in (("chunked", 2), ("chunked", 2), ("chunked", 3), ("mixed", 2)):
        engine(name, max_rows=rows, warm_up=True)
    # Twice each, deep and then wide; again where the limits differ, since they are shapes of forwards.
    assert built == ["chunked"] * 4 + ["mixed"] * 2


@EVERY_ENGINE
def test_an_engine_begins_as_if_nothing_had_happened(name: str) -> None:
    requests = [request("a", 40, 6), request("b", 9, 12), request("c", 17, 1)]
    cold = serve(engine(name), requests)
    subject = engine(name, warm_up=True)
    assert subject.scheduler.pool.num_free == subject.scheduler.pool.num_blocks
    log = serve(subject, requests)
    assert tokens_of(log) == tokens_of(cold) == expected(requests)
    assert [step.step for step in log.steps] == [step.step for step in cold.steps]
    assert [record.admit_step for record in log.requests] == [r.admit_step for r in cold.requests]


@EVERY_ENGINE
@pytest.mark.parametrize(("limit", "blocks"), [(1, 1), (2, 1), (3, 2), (64, 5)])
def test_a_rehearsal_fits_the_smallest_engine(name: str, limit: int, blocks: int) -> None:
    subject = engine(
        name, micro(), max_rows=2, max_request_tokens=limit, num_blocks=blocks, block_tokens=16, warm_up=True
    )
    subject.check()
    assert not subject.has_work


MEASURED = """
import sys
sys.path.insert(0, sys.argv[2])
import torch
torch.set_num_threads(1)
from tiny_engines import engine, request
from interleave.engine.compilations import compilations
from interleave.engine.loop import serve

with compilations() as building:
    subject = engine(sys.argv[1], max_rows=12, chunk_budget=64, warm_up=True)
requests = [request(f"r{n}", (1, 5, 16, 70, 300)[n % 5], 1 + n) for n in range(16)]
with compilations() as measured:
    serve(subject, requests)
print(building.numba, measured.numba)
"""


@pytest.mark.parametrize("name", ["chunked", "recorded"])
def test_no_measured_step_compiles(name: str) -> None:
    """In a process of its own, where nothing is compiled before the engine is built."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, name, str(Path(__file__).parent)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=True,
    )
    building, measured = map(int, done.stdout.split())
    assert building > 5
    assert measured == 0


def test_the_counter_sees_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    @numba.njit
    def double(x):
        return x + x

    module = SimpleNamespace(double=double, again=double)
    monkeypatch.setitem(sys.modules, "interleave.somewhere", module)
    with compilations() as count:
        double(1)
        double(2)
        double(1.5)
    assert (count.numba, count.total) == (2, 2)
    with compilations() as count:
        double(3)
    assert count.total == 0


def test_the_counter_sees_triton() -> None:
    """Triton calls the hook after compiling, or loading, a version; whoever listened before still hears."""
    knobs = pytest.importorskip("triton", reason="triton has wheels for Linux only").knobs
    heard: list[str] = []

    def earlier(**named: str) -> None:
        heard.append(named["key"])

    before = knobs.runtime.jit_post_compile_hook
    knobs.runtime.jit_post_compile_hook = earlier
    try:
        with compilations() as count:
            knobs.runtime.jit_post_compile_hook(key="one")
            knobs.runtime.jit_post_compile_hook(key="two")
        knobs.runtime.jit_post_compile_hook(key="three")
        assert heard == ["one", "two", "three"]
        assert (count.triton, count.total) == (2, 2)
        assert knobs.runtime.jit_post_compile_hook is earlier
    finally:
        knobs.runtime.jit_post_compile_hook = before


def test_triton_calls_the_hook_by_the_name_that_is_set() -> None:
    """The place in triton that the counter depends on, read, since no version is compiled here."""
    triton = pytest.importorskip("triton", reason="triton has wheels for Linux only")
    source = (Path(triton.__file__).parent / "runtime" / "jit.py").read_text()
    assert "self._call_hook(knobs.runtime.jit_post_compile_hook" in source.replace("\n", " ")
