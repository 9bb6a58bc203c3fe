"""Where the project keeps what it fetched or derived on this machine, outside the repository."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """`$INTERLEAVE_CACHE`, or `~/.cache/interleave`; created by whoever writes there."""
    chosen = os.environ.get("INTERLEAVE_CACHE")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "interleave"
