"""Unpacks the archive of a run, trusting nothing in it: only plain files with the names that a run has.

It writes no link, no device, no owner and no mode, and stops as soon as an archive turns out too large. What
the files hold is for `ingest.py` to judge.
"""

from __future__ import annotations

import gzip
import io
import re
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from interleave.lab.files import StorageError
from interleave.lab.gpu_host.run import MANIFEST, SUMMARY
from interleave.lab.gpu_host.sections import PROFILE

MAX_BYTES = 512 * 2**20
"""Of everything unpacked: an archive that would fill the disk is refused."""
MAX_FILES = 20_000
_MAX_READ = 2**20  # tarfile reads headers at once, and files in smaller pieces
_POINT = rf"results/{PROFILE}/\w{{1,64}}/[0-9a-f]{{16}}\.(csv|json)"
_NAME = re.compile(rf"{re.escape(MANIFEST)}|{re.escape(SUMMARY)}|{_POINT}", re.ASCII)
_LEFT_BY_A_KILL = re.compile(
    r"results/.*/\.[^/]*", re.ASCII
)  # a file that was being written; see `lab.files`
_BROKEN = (tarfile.TarError, EOFError, OSError, zlib.error, ValueError, OverflowError, RecursionError)


class TooLarge(ValueError):
    """Unpacked, an archive would be larger than a run can be."""


class _Bounded(io.RawIOBase):
    """A stream that ends with TooLarge after `limit` bytes, however they are asked for."""

    def __init__(self, stream: Any, limit: int) -> None:
        self._stream, self._limit = stream, limit

    def tell(self) -> int:
        return self._stream.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence != io.SEEK_SET or not 0 <= offset <= self._limit:
            raise TooLarge
        return self._stream.seek(offset)

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _MAX_READ or self.tell() + size > self._limit:
            raise TooLarge
        return self._stream.read(size)


class Refused(ValueError):
    """A file that no run has; the message names archive and file."""


def unpack(archive: Path, folder: Path) -> None:
    """Write the files of `archive` into the empty `folder`.

    Raises ValueError naming the archive, and the file in it, for anything else than the files of a run, each
    once; StorageError for a disk that is full.
    """
    try:
        with gzip.open(archive) as stream:
            bounded = _Bounded(stream, MAX_BYTES)
            with tarfile.open(fileobj=bounded, mode="r:") as tar:
                _extract(tar, archive, folder)
    except TooLarge as error:
        raise ValueError(
            f"{archive}: more than {MAX_BYTES} bytes or {MAX_FILES} files when unpacked"
        ) from error
    except (StorageError, Refused):
        raise
    except _BROKEN as error:
        raise ValueError(f"{archive}: not an archive of `gpu-run`, or cut short: {error}") from error


def _extract(tar: tarfile.TarFile, archive: Path, folder: Path) -> None:
    seen: set[str] = set()
    for number, member in enumerate(tar):
        if number == MAX_FILES or not 0 <= member.size <= MAX_BYTES:
            raise TooLarge
        plain = member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and member.sparse is None
        if member.isdir() or (plain and _LEFT_BY_A_KILL.fullmatch(member.name)):
            continue
        if not plain or not _NAME.fullmatch(member.name):
            raise Refused(f"{archive}: {member.name!r} is no plain file of a run")
        if member.name in seen:
            raise Refused(f"{archive}: {member.name!r} is in it twice")
        seen.add(member.name)
        content = tar.extractfile(member)
        assert content is not None  # a plain file has content
        target = folder / member.name
        with _writing(folder):
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as file:
                shutil.copyfileobj(content, file)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """What the system refuses in here is the disk's fault, not the archive's."""
    try:
        yield
    except gzip.BadGzipFile:
        raise
    except OSError as error:
        raise StorageError(f"cannot unpack into {folder}: {error.strerror or error}") from error
