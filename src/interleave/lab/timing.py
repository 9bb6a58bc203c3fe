"""One timing run at a time on each device: a lock in the user's cache folder.

Knows nothing of what is timed. A process that holds the lock marks its environment, so that a
kernel it starts does not wait for its own parent.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from filelock import FileLock, Timeout

from interleave.model.user_cache import cache_folder

HELD_VARIABLE = "INTERLEAVE_TIMING_HELD"


def physical_device(device: str) -> str:
    """The device behind a name, which CUDA_VISIBLE_DEVICES may have renumbered: `cuda` is the first visible one."""
    kind, _, number = device.partition(":")
    if kind != "cuda":
        return device
    visible = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    index = int(number or 0)
    return f"cuda:{visible[index] if index < len(visible) else index}"


@contextmanager
def timing_lock(device: str, say: Callable[[str], None] = print) -> Iterator[None]:
    """Hold `device` (`cpu`, `cuda`, `cuda:1`) for timing; waits for whoever holds it, and says so.

    Raises OSError when the cache folder cannot be written.
    """
    device = physical_device(device)
    if os.environ.get(HELD_VARIABLE) == device:
        yield
        return
    folder = cache_folder() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / f"timing-{device.replace(':', '-')}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        say(f"another timing run holds {device}; waiting for it to end ({lock.lock_file})")
        lock.acquire()
    before = os.environ.get(HELD_VARIABLE)
    os.environ[HELD_VARIABLE] = device
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(HELD_VARIABLE, None)
        else:
            os.environ[HELD_VARIABLE] = before
        lock.release()
