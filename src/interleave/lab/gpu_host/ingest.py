"""Takes the archive of a run on a borrowed GPU host: checks all of it, then files all of it or nothing.

It does not know what the points mean, only that each is whole, says where it came from, and lies with
its own kind: points of two devices never share a folder.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from interleave.lab.files import StorageError
from interleave.lab.gpu_host.run import MANIFEST, SCHEMA_VERSION, SUMMARY, num_failures
from interleave.lab.gpu_host.sections import PROFILE, SECTIONS
from interleave.lab.results import PointStore

MAX_BYTES = 512 * 2**20
"""Of everything unpacked: an archive that would fill the disk is refused."""
Text = Annotated[str, Field(min_length=1)]


class Entry(BaseModel):
    """What became of a section; `experiment` if it was begun."""

    model_config = ConfigDict(strict=True)

    name: Text
    status: Text
    experiment: Text | None = None


class Manifest(BaseModel):
    """What filing needs to know of a run, as `run` writes it."""

    model_config = ConfigDict(strict=True)

    started_at: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")]
    device: Text
    size: Text
    git_commit: str | None
    sections: Annotated[list[Entry], Field(min_length=1)]
    sound: bool


def file_archive(archive: Path, root: Path, *, unsound: bool = False) -> list[str]:
    """Check and file; a line per thing filed, then where the summary is.

    root: of the point stores. unsound: take a run too of which a section ended early or a check failed.
    Raises ValueError naming the file and what is wrong with it, or StorageError; then nothing was filed.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _unpack(archive, folder)
        manifest = _manifest(archive, folder)
        points = list(_checked(archive, folder, manifest, root))
        if not unsound and (reason := _why_unsound(folder, manifest)):
            raise ValueError(f"{archive}: the run was not sound: {reason}; --unsound files it all the same")
        said, copies = [], []
        for source, target in points:
            came, there = source.keys(), target.keys()
            fresh = [key for key in came if key not in there]
            names = [f"{key}{suffix}" for suffix in (".json", ".csv") for key in fresh]
            copies += [(source.folder / name, target.folder / name) for name in names]
            known = len(came) - len(fresh)
            said.append(
                f"{target.experiment}: {len(fresh)} points filed" + (f", {known} known" if known else "")
            )
        stamp = manifest.started_at.replace(":", "").replace("-", "")
        for name in (MANIFEST, SUMMARY):
            copies.append((folder / name, root / PROFILE / "runs" / f"{stamp}-{name}"))
        _place(copies, root)
        return [*said, f"summary: {copies[-1][1]}"]


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
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageError(f"cannot unpack {archive} in {folder}: {error.strerror}") from error
        raise ValueError(f"{archive}: not an archive of `gpu-run`, or cut short: {error}") from error


def _manifest(archive: Path, folder: Path) -> Manifest:
    try:
        found = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{archive}: no sound {MANIFEST}: {error}") from error
    version = found.get("schema_version") if isinstance(found, dict) else None
    if version != SCHEMA_VERSION:
        raise ValueError(
            f"{archive}: schema version {version} of {MANIFEST}, this code reads {SCHEMA_VERSION}"
        )
    try:
        manifest = Manifest.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"{archive}: {MANIFEST}: {where}: {first['msg']}, got {first['input']!r}") from error
    if manifest.size != "full":
        raise ValueError(f"{archive}: a dry run of size {manifest.size!r}: there is nothing to file")
    if not (folder / SUMMARY).is_file():
        raise ValueError(f"{archive}: no {SUMMARY}")
    return manifest


def _why_unsound(folder: Path, manifest: Manifest) -> str:
    """What went wrong in the run, as its points and the manifest tell it; empty where nothing did."""
    begun = {entry.name: entry for entry in manifest.sections if entry.experiment is not None}
    faults = [f"{name} {entry.status}" for name, entry in begun.items() if entry.status != "done"]
    if failed := num_failures(folder, [entry.experiment or "" for entry in begun.values()]):
        faults.append(f"{failed} checks failed")
    if not faults and not manifest.sound:
        faults.append("its manifest says so")
    return ", ".join(faults)


def _checked(
    archive: Path, folder: Path, manifest: Manifest, root: Path
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
            if sidecar["device"] != manifest.device:
                raise ValueError(
                    f"{archive}: {path.name}/{key} is of {sidecar['device']!r}, the run of {manifest.device!r}"
                )
            source.load(key)
        for key in there:
            other = target.load_provenance(key)["device"]
            if other != manifest.device:
                raise ValueError(
                    f"{target.folder} holds points of {other!r}; these are of {manifest.device!r} and may not "
                    "be mixed with them. Nothing was filed"
                )
        yield source, target


def _place(copies: Sequence[tuple[Path, Path]], root: Path) -> None:
    """Copy all files or none: first beside their places, where a full disk is noticed, then by renames."""
    placed: list[Path] = []
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".ingest-", dir=root) as aside:
            fresh = [(source, target) for source, target in copies if not _is_there(source, target)]
            for number, (source, _) in enumerate(fresh):
                _copy(source, Path(aside, str(number)))
            for number, (_, target) in enumerate(fresh):
                target.parent.mkdir(parents=True, exist_ok=True)
                Path(aside, str(number)).rename(target)
                placed.append(target)
    except BaseException as error:
        for target in placed:
            target.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise StorageError(
                f"cannot write to {root}: {error.strerror or error}. Nothing was filed"
            ) from error
        raise


def _is_there(source: Path, target: Path) -> bool:
    """Whether it is filed already. ValueError where another file has its name."""
    if not target.exists():
        return False
    if target.read_bytes() != source.read_bytes():
        raise ValueError(f"{target} is of another run that began in the same second. Nothing was filed")
    return True


def _copy(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
    with target.open("rb") as file:
        os.fsync(file.fileno())
