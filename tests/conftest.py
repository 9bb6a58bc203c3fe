"""Marks that need hardware or a browser skip with their reason; the embedded weights are fetched once."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from interleave.openmp import wait_passively

# A loaded machine is slow, not wrong: no example fails for the time it took.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
wait_passively()
sys.path.insert(0, str(Path(__file__).parent))  # `hostile` is for tests of every layer
# Without a GPU the kernels run under Triton's interpreter. Triton settles that for its own functions
# when it is imported, which a test far from the kernels may do.
if not Path("/dev/nvidia0").exists():
    os.environ["TRITON_INTERPRET"] = "1"


def _no_gpu() -> str | None:
    import torch

    return None if torch.cuda.is_available() else "no CUDA device on this machine"


def _no_browser() -> str | None:
    if not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))):
        return "no Chromium on this machine (Debian: apt-get install chromium chromium-driver)"
    return (
        None
        if shutil.which("chromedriver")
        else "no driver of Chromium (Debian: apt-get install chromium-driver)"
    )


MISSING = {"gpu": _no_gpu, "browser": _no_browser}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ask about a GPU or a browser only when a collected test is marked as needing it."""
    reasons: dict[str, str | None] = {}
    for item in items:
        for mark, missing in MISSING.items():
            if item.get_closest_marker(mark) is None:
                continue
            if mark not in reasons:
                reasons[mark] = missing()
            if reasons[mark]:
                item.add_marker(pytest.mark.skip(reason=str(reasons[mark])))


@pytest.fixture(scope="session")
def smollm2_folder() -> Path:
    """The embedded model's float32 folder, fetched on first use; skips where it cannot be had."""
    from interleave.model.config import ModelError
    from interleave.model.weights_gguf import ensure_smollm2

    try:
        return ensure_smollm2()
    except ModelError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Tiny tensors gain nothing from threads, and on a loaded machine threads wait for each other."""
    import numba
    import torch

    before = torch.get_num_threads(), numba.get_num_threads()
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    yield
    torch.set_num_threads(before[0])
    numba.set_num_threads(before[1])
