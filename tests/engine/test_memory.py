"""Peak memory while serving: at most weights + pool + one forward, however many requests come."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_engines import engine, kv_of, tiny

from interleave.engine.build import ENGINES
from interleave.engine.memory import default_pool_blocks
from interleave.model.decoder import Decoder

HERE = Path(__file__).resolve().parent
SLACK_BYTES = 6 * 2**20
"""The interpreter, the records of the run, and an allocator that keeps pages in pieces."""

needs_peaks = pytest.mark.skipif(
    not os.access("/proc/self/clear_refs", os.W_OK), reason="this system does not tell peak memory"
)


def run_alone(*arguments: str) -> str:
    """What an interpreter of its own prints, on one thread."""
    src = HERE.parents[1] / "src"
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": str(src), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def measured(name: str) -> dict[str, object]:
    return json.loads(run_alone(str(HERE / "peak_of_serving.py"), name))


@needs_peaks
@pytest.mark.parametrize(
    "name",
    [name if name == "chunked" else pytest.param(name, marks=pytest.mark.slow) for name in ENGINES],
)
def test_peak_is_bounded(name: str) -> None:
    """Once libraries are warm, serving adds at most the pool's pages, one forward and a fixed slack.

    A padded group's forward includes its throwaway cache and mask. Five times the requests, whose K
    and V would not fit below the bound, add nothing.
    """
    figures = measured(name)
    once, five_times = figures["peaks"]  # type: ignore[misc]
    bound = figures["pool"] + figures["forward"] + figures["group"] + SLACK_BYTES  # type: ignore[operator]
    assert once <= bound
    assert five_times <= bound
    if not figures["group"]:  # big freed pieces come and go from run to run, and hide more than they show
        assert five_times <= once + SLACK_BYTES
    assert figures["kv_of_all"] > 4 * SLACK_BYTES, "too little is served to show a leak"  # type: ignore[operator]


@needs_peaks
def test_peak_memory_sees_what_comes_and_goes() -> None:
    """In a process of its own: a long session gives idle pages back while a peak is taken."""
    code = (
        "import torch; from interleave.engine.memory import PeakMemory\n"
        "torch.ones(1024)\n"
        "with PeakMemory(torch.device('cpu')) as peak:\n"
        "    block = torch.ones(16 * 2**20, dtype=torch.float32)\n"
        "    del block\n"
        "print(peak.peak_bytes)"
    )
    assert 60 * 2**20 < int(run_alone("-c", code)) < 80 * 2**20


def block_bytes(decoder: Decoder) -> int:
    """Keys and values of 64 positions over all layers, in float32."""
    config = decoder.config
    return 2 * 64 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * 4


def test_default_pool_takes_no_more_than_can_be_used() -> None:
    """Rows x blocks of the longest request, where memory allows it."""
    subject = engine("chunked", tiny(), max_rows=3, max_request_tokens=130, num_blocks=None)
    assert subject.scheduler.pool.num_blocks == 3 * 3
    assert kv_of(subject).nbytes == 9 * block_bytes(tiny())


def test_pool_size_in_gib() -> None:
    subject = engine("chunked", tiny(), pool_gib=1 / 1024)
    assert kv_of(subject).nbytes == 2**20 // block_bytes(tiny()) * block_bytes(tiny())


def test_no_room_for_a_single_block() -> None:
    with pytest.raises(ValueError, match="no room for a KV pool"):
        default_pool_blocks(tiny(), block_bytes=2**60, wanted_blocks=4, transient=0)
    with pytest.raises(ValueError, match="no room for a KV pool"):
        default_pool_blocks(tiny(), block_bytes=1024, wanted_blocks=4, transient=2**60)
