"""The processor that a run computes on: its name, driver and threads. Torch only if it is a GPU."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass

from interleave.lab.provenance import cpu_name


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run computes; a CPU has no driver."""

    device: str
    driver: str | None
    threads: int


def place(kind: str) -> Place:
    """What `cpu`, `cuda`, `cuda:1` or `mps` means on this machine. Raises ValueError for a GPU it lacks."""
    if not kind.startswith(("cuda", "mps")):
        return Place(cpu_name(), None, num_threads())
    import torch

    if kind.startswith("mps"):
        if not torch.backends.mps.is_available():
            raise ValueError(f"device {kind!r}: this machine has no MPS device")
        # On one chip with the CPU and without a name of its own: what runs on it is never taken for the CPU's.
        return Place(f"{cpu_name()}, GPU", f"MPS, macOS {platform.mac_ver()[0]}", num_threads())
    if not torch.cuda.is_available():
        raise ValueError(f"device {kind!r}: this machine has no CUDA device")
    driver = f"{_nvidia_driver()}CUDA {torch.version.cuda}"
    return Place(torch.cuda.get_device_name(kind), driver, num_threads())


def num_threads() -> int:
    """CPU threads of a run: OMP_NUM_THREADS where set, else the cores that this process may use."""
    chosen = os.environ.get("OMP_NUM_THREADS", "")
    if chosen.isdigit() and int(chosen) > 0:
        return int(chosen)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _nvidia_driver() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return f"{done.stdout.split()[0]}, " if done.stdout.strip() else ""
