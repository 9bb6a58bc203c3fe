"""Tiny real weights, and the few things that most tests of engines say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "schedule")]  # the machines of both folders keep the same ledger


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Tiny tensors gain nothing from threads, and a shared machine's threads wait for each other."""
    import torch

    torch.set_num_threads(1)
