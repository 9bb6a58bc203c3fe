"""How torch's and numba's CPU threads wait for each other. Has to be said before torch is loaded."""

from __future__ import annotations

import os

SPINS = "10000"
"""Turns of libgomp's waiting loop before a thread sleeps: some tenths of a millisecond."""


def wait_passively() -> None:
    """Let a thread that waits at a barrier spin briefly and then sleep, unless the environment says.

    A step has hundreds of barriers. One that spins on holds, on a busy machine, the core that the thread
    it waits for needs: steps become tens of times slower. One that sleeps at once pays the way back up,
    which is a third of a step of few rows.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
