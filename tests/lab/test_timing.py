"""One timing run a device: a second process waits, a child of the holder does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from interleave.lab.timing import HELD_VARIABLE, physical_device, timing_lock

CHILD = (
    "from interleave.lab.timing import timing_lock\n"
    "with timing_lock('cpu', say=lambda text: print(text, flush=True)):\n"
    "    print('held', flush=True)\n"
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERLEAVE_CACHE", str(tmp_path))
    monkeypatch.delenv(HELD_VARIABLE, raising=False)
    source = Path(__file__).resolve().parents[2] / "src"
    monkeypatch.setenv("PYTHONPATH", str(source))


def child(environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", CHILD], env=environment, stdout=subprocess.PIPE, text=True)


def test_another_run_waits_and_says_so() -> None:
    environment = dict(os.environ)
    with timing_lock("cpu"):
        other = child(environment)
        assert other.stdout is not None
        assert "another timing run holds cpu" in other.stdout.readline()
        assert other.poll() is None
    assert other.communicate(timeout=60)[0] == "held\n"


def test_a_kernel_started_by_the_holder_does_not_wait() -> None:
    with timing_lock("cpu"):
        assert child(dict(os.environ)).communicate(timeout=60)[0] == "held\n"
    assert HELD_VARIABLE not in os.environ


def test_devices_do_not_wait_for_one_another() -> None:
    said: list[str] = []
    with timing_lock("cuda:0", say=said.append), timing_lock("cuda:1", say=said.append):
        pass
    assert said == []


@pytest.mark.parametrize(
    ("device", "visible", "physical"),
    [
        ("cpu", "3", "cpu"),
        ("cuda", None, "cuda:0"),
        ("cuda:1", None, "cuda:1"),
        ("cuda", "3", "cuda:3"),
        ("cuda:1", "5, 7", "cuda:7"),
    ],
)
def test_one_device_under_two_names_is_one_device(
    device: str, visible: str | None, physical: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scheduler that shows a run one of several GPUs as its first must not make all runs wait for one lock."""
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert physical_device(device) == physical
