"""How torch's and numba's CPU threads wait for each other. Has to be said before torch is loaded."""

from __future__ import annotations

import os


def wait_passively() -> None:
    """Let a thread that waits at a barrier sleep instead of spin, unless the caller's environment says.

    A step has hundreds of barriers. Spinning gains nothing on an idle machine, and on a busy one the
    spinner holds the core that the thread it waits for needs: steps become tens of times slower.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
