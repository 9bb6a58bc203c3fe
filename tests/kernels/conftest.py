"""Where the kernels run: on a GPU if there is one, else under Triton's interpreter on the CPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

# The bounds are importable from every test of a kernel.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"
