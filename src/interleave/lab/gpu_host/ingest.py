"""Takes the archive of a run on a borrowed GPU host: checks all of it, then files all of it or nothing.

It does not know what the points mean, only that each is whole, says where it came from, and lies with
its own kind: points of two devices never share a folder.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from interleave.documents import finding, parse_document
from interleave.lab.files import StorageError
from interleave.lab.gpu_host.run import MANIFEST, SCHEMA_VERSION, SUMMARY, num_failures
from interleave.lab.gpu_host.sections import PROFILE, SECTIONS
from interleave.lab.gpu_host.unpack import unpack
from interleave.lab.results import PointStore
from interleave.lab.tables import TableError

Text = Annotated[str, Field(min_length=1)]
EXPERIMENTS = {section.experiment_name for section in SECTIONS}


class Entry(BaseModel):
    """What became of a section; `experiment` if it was begun."""

    model_config = ConfigDict(strict=True)

    name: Text
    status: Text
    experiment: Text | None = None


class Manifest(BaseModel):
    """What filing needs to know of a run, as `run` writes it."""

    model_config = ConfigDict(strict=True)

    started_at: Annotated[str, Field(pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$")]
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
        unpack(archive, folder)
        manifest = _manifest(archive, folder)
        try:
            points = list(_checked(archive, folder, manifest, root))
            reason = "" if unsound else _why_unsound(folder, manifest)
        except TableError as error:
            raise ValueError(str(error).replace(f"{folder}/", f"{archive}: ")) from error
        if reason:
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


def _manifest(archive: Path, folder: Path) -> Manifest:
    try:
        found = parse_document((folder / MANIFEST).read_bytes(), Path(MANIFEST))
    except OSError as error:
        raise ValueError(f"{archive}: no sound {MANIFEST}: {error.strerror or error}") from error
    except ValueError as error:
        raise ValueError(f"{archive}: no sound {error}") from error
    version = found.get("schema_version") if isinstance(found, dict) else None
    if type(version) is not int or version != SCHEMA_VERSION:
        raise ValueError(
            f"{archive}: schema version {version} of {MANIFEST}, this code reads {SCHEMA_VERSION}"
        )
    try:
        manifest = Manifest.model_validate(found)
    except ValidationError as error:
        raise ValueError(f"{archive}: {MANIFEST}: {finding(error)}") from error
    for entry in manifest.sections:
        if entry.experiment not in (None, *EXPERIMENTS):
            raise ValueError(f"{archive}: {MANIFEST}: unknown experiment {entry.experiment!r}")
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
    for path in sorted((folder / "results" / PROFILE).glob("*")):
        if path.name not in EXPERIMENTS:
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
