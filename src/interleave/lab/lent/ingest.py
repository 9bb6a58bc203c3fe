"""Takes the archive of a run on a lent host: checks all of it, then files all of it or nothing.

It does not know what the points mean, only that each is whole, says where it came from, and lies with
its own kind: points of two devices never share a folder.
"""

from __future__ import annotations

import json
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from interleave.lab.files import StorageError
from interleave.lab.lent.run import MANIFEST, SCHEMA_VERSION, SUMMARY
from interleave.lab.lent.sections import PROFILE, SECTIONS
from interleave.lab.results import PointStore

MAX_BYTES = 512 * 2**20
"""Of everything unpacked: an archive that would fill the disk is refused."""


def file_archive(archive: Path, root: Path) -> Iterator[str]:
    """Check and file; yields a line per thing filed, then where the summary is.

    root: of the point stores. Raises ValueError naming the file and what is wrong with it; then nothing
    was filed.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _unpack(archive, folder)
        manifest = _manifest(archive, folder)
        points = list(_checked(archive, folder, manifest, root))
        for source, target in points:
            target.folder.mkdir(parents=True, exist_ok=True)
            came, there = source.keys(), target.keys()
            fresh = [key for key in came if key not in there]
            for key in fresh:
                for suffix in (".json", ".csv"):  # the CSV last: a point exists when its CSV does
                    _copy(source.folder / f"{key}{suffix}", target.folder / f"{key}{suffix}")
            known = len(came) - len(fresh)
            yield f"{target.experiment}: {len(fresh)} points filed" + (f", {known} known" if known else "")
        stamp = manifest["started_at"].replace(":", "").replace("-", "")
        runs = root / PROFILE / "runs"
        runs.mkdir(parents=True, exist_ok=True)
        for name in (MANIFEST, SUMMARY):
            _copy(folder / name, runs / f"{stamp}-{name}")
        yield f"summary: {runs / f'{stamp}-{SUMMARY}'}"


def _unpack(archive: Path, folder: Path) -> None:
    try:
        with tarfile.open(archive, "r:gz") as tar:
            members = tar.getmembers()
            for member in members:
                path = PurePosixPath(member.name)
                if path.is_absolute() or ".." in path.parts or not (member.isfile() or member.isdir()):
                    raise ValueError(f"{archive}: {member.name!r} is no plain file of a run")
            if sum(member.size for member in members) > MAX_BYTES:
                raise ValueError(f"{archive}: more than {MAX_BYTES} bytes when unpacked")
            tar.extractall(folder, filter="data")
    except (tarfile.TarError, EOFError, OSError) as error:
        raise ValueError(f"{archive}: not an archive of `gpu-run`, or cut short: {error}") from error


def _manifest(archive: Path, folder: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        version, size = manifest["schema_version"], manifest["size"]
        missing = {"device", "started_at", "git_commit", "sections"} - manifest.keys()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{archive}: no sound {MANIFEST}: {error}") from error
    if missing:
        raise ValueError(f"{archive}: {MANIFEST} lacks {', '.join(sorted(missing))}")
    if version != SCHEMA_VERSION:
        raise ValueError(
            f"{archive}: schema version {version} of {MANIFEST}, this code reads {SCHEMA_VERSION}"
        )
    if size != "full":
        raise ValueError(f"{archive}: a dry run of size {size!r}: there is nothing to file")
    if not (folder / SUMMARY).is_file():
        raise ValueError(f"{archive}: no {SUMMARY}")
    return manifest


def _checked(
    archive: Path, folder: Path, manifest: dict[str, Any], root: Path
) -> Iterator[tuple[PointStore, PointStore]]:
    """(what came, where it goes) of each experiment, once every point of it has been read."""
    known = {section.experiment_name for section in SECTIONS}
    for path in sorted((folder / "results" / PROFILE).glob("*")):
        if path.name not in known:
            raise ValueError(f"{archive}: unknown experiment {path.name!r}")
        source = PointStore(folder / "results", PROFILE, path.name)
        target = PointStore(root, PROFILE, path.name)
        came, there = source.keys(), target.keys()
        for key in came:
            sidecar = source.load_provenance(key)
            if sidecar["device"] != manifest["device"]:
                raise ValueError(
                    f"{archive}: {path.name}/{key} is of {sidecar['device']!r}, the run of {manifest['device']!r}"
                )
            source.load(key)
        for key in there:
            other = target.load_provenance(key)["device"]
            if other != manifest["device"]:
                raise ValueError(
                    f"{target.folder} holds points of {other!r}; these are of {manifest['device']!r} and may not "
                    "be mixed with them. Nothing was filed"
                )
        yield source, target


def _copy(source: Path, target: Path) -> None:
    try:
        shutil.copyfile(source, target)
    except OSError as error:
        raise StorageError(f"cannot write {target}: {error.strerror or error}") from error
