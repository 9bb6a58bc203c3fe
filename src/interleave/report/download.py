"""Packs a built site as one file that holds one folder, to open anywhere without a network. Builds nothing."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

FOLDER = "interleave-book"
LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the earliest time that the format knows: equal sites give equal files


def pack(site: Path) -> Path:
    """Zip the folder `site` beside it as `interleave-book.zip`, replaced by a rename; returns its path."""
    packed = site.parent / f"{FOLDER}.zip"
    unfinished = packed.with_name(f".{packed.name}.{os.getpid()}.tmp")
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(path for path in site.rglob("*") if path.is_file()):
            entry = zipfile.ZipInfo(f"{FOLDER}/{path.relative_to(site).as_posix()}", LONG_AGO)
            entry.external_attr = 0o644 << 16
            file.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
    unfinished.replace(packed)
    return packed
