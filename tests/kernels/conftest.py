"""Where the kernels run: on a GPU if there is one, else under Triton's interpreter on the CPU."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture
def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"
