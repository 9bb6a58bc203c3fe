"""Writing files that are either whole or absent. Does not know what is in them."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from pathlib import Path

_HERE = re.sub(r"[^A-Za-z0-9]+", "", platform.node()) or "here"
"""This machine, in the names of temporary files: a folder may be shared, and process numbers are not."""


class StorageError(ValueError):
    """A file or folder could not be written; the message names it and the system's reason."""


def write_atomically(path: Path, text: str) -> None:
    """Write `text` (UTF-8, line ends as given) to a temporary file beside `path`, then rename it.

    A reader sees the old file or the new one. On failure (full disk, read-only folder) `path` is as
    it was, no temporary file stays behind, and StorageError names the path and the reason. What a process
    of this machine left behind that was killed while it wrote into the folder is removed.
    """
    _write([(path, text)])


def write_pair(first: tuple[Path, str], last: tuple[Path, str]) -> None:
    """Write two files of one folder, (path, text) each, of which the last one says that both are there.

    Both are written completely under temporary names before anything is touched that is there: on a full disk
    both are as they were. An earlier `last` goes before the first of them gets its name, so that whoever is
    killed in between leaves no `last`, and never a new file beside an old one. Otherwise as `write_atomically`.
    """
    _write([first, last])


def _write(texts: Sequence[tuple[Path, str]]) -> None:
    path = texts[0][0]
    written: list[tuple[Path, Path]] = []
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_left_behind(path.parent)
        try:
            for path, text in texts:
                temporary = path.with_name(f".{path.name}.{_HERE}-{os.getpid()}.tmp")
                written.append((temporary, path))
                with temporary.open("w", encoding="utf-8", newline="") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
            if len(texts) > 1:
                path.unlink(missing_ok=True)
            for temporary, path in written:
                temporary.replace(path)
        except BaseException:
            for temporary, _ in written:
                temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error


def _remove_left_behind(folder: Path) -> None:
    for left in folder.glob(f".*.{_HERE}-*.tmp"):
        pid = left.name.removesuffix(".tmp").rpartition("-")[2]
        if pid.isdecimal() and not _is_running(int(pid)):
            left.unlink(missing_ok=True)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # somebody else's
    return True


def check_writable(path: Path) -> None:
    """Raise StorageError now if a JSON document could not be written to `path` later; leaves nothing behind.

    For the start of a long run: a folder that is missing, read-only or on a full disk is better
    found before the work than after it. So is a file that is there and holds anything else than a
    JSON document: it is not ours to overwrite.
    """
    if path.is_dir():
        raise StorageError(f"cannot write {path}: it is a folder")
    if path.is_file() and _holds_something_else(path):
        raise StorageError(f"cannot write {path}: it exists and is not a JSON document; choose another name")
    probe = path.with_name(f".{path.name}.{os.getpid()}.probe")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            probe.write_text("writable?", encoding="utf-8")
        finally:
            probe.unlink(missing_ok=True)  # a full disk takes its name, and then not its text
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error


def _holds_something_else(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            start = file.read(64).lstrip()
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}") from error
    return bool(start) and not start.startswith(b"{")
