"""A short soak in a process of its own (see `soak`): nothing is kept of the requests that are gone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


@pytest.mark.slow
@pytest.mark.parametrize("name", ["chunked", "mixed"])
def test_nothing_grows_with_the_requests(name: str) -> None:
    """Torch's own kernels: compiled ones are kept for every new number of rows, which looks like growth for long."""
    done = subprocess.run(
        [sys.executable, str(HERE / "soak.py"), "--requests", "1000", "--engine", name, "--plain"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        found = json.loads(line)
        assert found["length"] + found["abort"] == found["requests"] == 1000
        assert found["abort"] > 50
        assert (found["preempted"] > 0) == (found["allocation"] == "progressive")
        assert found["tensors_kept"] <= 10  # a decoder's own, made once; a request's would be hundreds
        assert found["objects_a_request"] < 0.5
        assert found["bytes_a_request"] < 1000  # the allocator takes a page now and then
