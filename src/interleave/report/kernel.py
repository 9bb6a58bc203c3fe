"""The process that a notebook runs in: always the running interpreter's, private, watched.

Knows processes, not notebooks: it starts one kernel, keeps its peak memory and exit status, and can
end it. Which kernels Jupyter has installed makes no difference.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager

from interleave.lab.devices import num_threads

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass
class KernelWatch:
    """What is known about the kernel's process, alive or dead.

    peak_bytes: its largest resident memory so far, None before the first look.
    """

    process: subprocess.Popen[bytes] | None = None
    peak_bytes: int | None = None
    children_before: int = field(default_factory=lambda: _children_peak_bytes())

    def look(self) -> None:
        """Update the peak from the living process (call it now and then)."""
        if self.process is None or self.process.returncode is not None:
            return
        now = _peak_bytes(self.process.pid)
        if now is not None:
            self.peak_bytes = max(now, self.peak_bytes or 0)

    def end(self) -> None:
        """Kill the kernel and everything it started, if any of it still runs; idempotent."""
        if self.process is None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)  # the kernel leads its own process group
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=5)

    def describe_death(self) -> str:
        """How the process ended and how much memory it had held, in words."""
        code = None if self.process is None else self.process.poll()
        if code is None:
            how = "stopped answering"
        elif code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        else:
            how = f"exited with code {code}"
        # Known for sure once the kernel is waited for, if it is the largest child so far. On Linux a
        # child also inherits the peak of the process that forked it, so ours is no evidence of its own.
        children = _children_peak_bytes()
        exact = children if children > max(self.children_before, _own_peak_bytes()) else 0
        peak = max(self.peak_bytes or 0, exact)
        return f"{how}; peak memory {peak / 2**30:.2f} GiB" if peak else how


def kernel_manager(
    watch: KernelWatch, environment: Mapping[str, str], folder: Path
) -> type[AsyncKernelManager]:
    """A kernel manager class that runs `sys.executable`'s ipykernel whatever name it is asked for.

    environment: added to this process's; folder: where its connection file lives.
    """
    escaped = {name: value.replace("$", "$$") for name, value in environment.items()}
    command = [sys.executable, "-m", "interleave.report.kernel_process", "-f", "{connection_file}"]

    class OwnKernelManager(AsyncKernelManager):
        def __init__(self, **options: Any) -> None:
            super().__init__(connection_file=str(folder / "kernel.json"), **options)

        @property
        def kernel_spec(self) -> KernelSpec:
            return KernelSpec(argv=command, display_name="Python 3", language="python", env=escaped)

        async def _async_launch_kernel(self, kernel_cmd: list[str], **options: Any) -> None:
            await super()._async_launch_kernel(kernel_cmd, **options)
            watch.process = getattr(self.provisioner, "process", None)

    return OwnKernelManager


def kernel_environment(folder: Path, seed: int = 0) -> dict[str, str]:
    """Private IPython and Jupyter folders, a fixed hash seed, and a thread count that is said once."""
    threads = str(num_threads())
    return {
        **{name: os.environ.get(name, threads) for name in THREAD_VARIABLES},
        "PYTHONHASHSEED": str(seed),
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",  # else the debugger writes about frozen modules
        "IPYTHONDIR": str(folder / "ipython"),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTER_PLATFORM_DIRS": "1",
        "NO_COLOR": "1",
    }


def _peak_bytes(pid: int) -> int | None:
    """Largest resident size of a living process: the system's own record, or its size now."""
    with suppress(OSError, ValueError, IndexError):
        status = Path(f"/proc/{pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024
    import psutil

    with suppress(psutil.Error):
        return int(psutil.Process(pid).memory_info().rss)
    return None


def _children_peak_bytes() -> int:
    return _usage_peak_bytes(resource.RUSAGE_CHILDREN)


def _own_peak_bytes() -> int:
    return _usage_peak_bytes(resource.RUSAGE_SELF)


def _usage_peak_bytes(who: int) -> int:
    peak = resource.getrusage(who).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
