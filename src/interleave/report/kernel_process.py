"""The process of a kernel: ipykernel's, but it never outlives the process that started it.

ipykernel waits to be adopted by process 1. Where a service manager adopts orphans it would wait forever, and
go on measuring for a runner that was killed, beside the run that goes on in its place.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

PARENT_VARIABLE = "JPY_PARENT_PID"  # set by jupyter_client
LOOK_EVERY_S = 0.5


def end_with(parent: int) -> None:
    """Once `parent` is gone, kill this process with all that it started (it leads a process group)."""
    while os.getppid() == parent:
        time.sleep(LOOK_EVERY_S)
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


def main() -> None:
    """As ipykernel's own launcher, which imports nothing from the working directory."""
    if Path(sys.path[0]) in (Path(), Path.cwd()):
        del sys.path[0]
    parent = int(os.environ.get(PARENT_VARIABLE, os.getppid()))
    threading.Thread(target=end_with, args=(parent,), daemon=True).start()
    from ipykernel import kernelapp

    kernelapp.launch_new_instance()


if __name__ == "__main__":
    main()
