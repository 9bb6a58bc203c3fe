"""Archives for `interleave ingest` that no run has made: nothing of them is filed, nothing outside is touched."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hostile import damaged, refuse_or_take
from interleave.cli.main import main
from interleave.lab import paths
from interleave.lab.files import StorageError
from interleave.lab.gpu_host import unpack
from interleave.lab.gpu_host.ingest import file_archive
from interleave.lab.results import PointStore

EXAMPLES = int(os.environ.get("INTERLEAVE_FUZZ", "40"))
KEY = "0123456789abcdef"
POINT = f"results/gpu/recorded_decode/{KEY}"
MANIFEST = {
    "schema_version": 1,
    "started_at": "2026-01-01T00:00:00Z",
    "device": "NVIDIA X",
    "size": "full",
    "git_commit": None,
    "sections": [{"name": "decode", "status": "done", "experiment": "recorded_decode"}],
    "sound": True,
}
Change = Callable[[dict[str, bytes]], Any]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, bytes]:
    """What the archive of a sound run with one point holds."""
    store = PointStore(tmp_path / "made", "gpu", "recorded_decode")
    path = store.save(KEY, [{"step_s": 0.5}], {"device": "NVIDIA X"})
    return {
        "manifest.json": json.dumps(MANIFEST).encode(),
        "summary.txt": b"it was fine\n",
        f"{POINT}.json": path.with_suffix(".json").read_bytes(),
        f"{POINT}.csv": path.read_bytes(),
    }


def member(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0, link: str = "") -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type, found.size, found.linkname = kind, size, link
    return found


def packed(path: Path, files: dict[str, bytes], *more: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            tar.addfile(member(name, size=len(content)), io.BytesIO(content))
        for info, content in more:
            tar.addfile(info, io.BytesIO(content))
    return path


def outside(folder: Path, archive: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path != archive}


def refused(archive: Path, says: str) -> None:
    folder, root = archive.parent, archive.parent / "results"
    before = outside(folder, archive)
    with pytest.raises(ValueError, match=says) as caught:
        file_archive(archive, root)
    assert str(archive) in str(caught.value)
    assert "/tmp/tmp" not in str(caught.value).replace(str(folder), "")  # a folder that is gone by then
    assert outside(folder, archive) == before


def test_a_sound_one_is_filed(files: dict[str, bytes], tmp_path: Path) -> None:
    said = file_archive(packed(tmp_path / "a.tar.gz", files), tmp_path / "results")
    assert said[0] == "recorded_decode: 1 points filed"


@pytest.mark.parametrize(
    "odd",
    [
        member("../x", size=1),
        member("/etc/x", size=1),
        member("results/../../x", size=1),
        member("results/gpu/recorded_decode/../../../x.csv", size=1),
        member("x", size=1),
        member("results/gpu/recorded_decode/x.csv", size=1),
        member("results/cpu/recorded_decode/0123456789abcdef.csv", size=1),
        member("results\\gpu\\x", size=1),
        member("manifest.json\n", size=1),
        member("summary.txt/", size=1),
        member(f"{POINT}.txt", size=1),
        member("l", tarfile.SYMTYPE, link="/etc/passwd"),
        member(f"{POINT}.csv", tarfile.SYMTYPE, link="/etc/passwd"),
        member("l", tarfile.LNKTYPE, link="../../x"),
        member("d", tarfile.CHRTYPE),
        member("d", tarfile.BLKTYPE),
        member("d", tarfile.FIFOTYPE),
        member("manifest.json", tarfile.CONTTYPE, size=1),
        member("summary.txt", tarfile.GNUTYPE_SPARSE, size=1),
    ],
    ids=lambda info: f"{info.name!r} {info.type.decode()}",
)
def test_what_no_run_packs(files: dict[str, bytes], tmp_path: Path, odd: tarfile.TarInfo) -> None:
    refused(
        packed(tmp_path / "a.tar.gz", files, (odd, b"x" * odd.size)), "no plain file of a run|not an archive"
    )


def test_a_name_twice(files: dict[str, bytes], tmp_path: Path) -> None:
    twice = (member("summary.txt", size=1), b"x")
    refused(packed(tmp_path / "a.tar.gz", files, twice), "'summary.txt' is in it twice")


def test_a_file_that_was_being_written_is_left_out(files: dict[str, bytes], tmp_path: Path) -> None:
    left = (member("results/gpu/recorded_decode/.k.csv.host-12.tmp", size=1), b"x")
    root = tmp_path / "results"
    file_archive(packed(tmp_path / "a.tar.gz", files, left), root)
    assert not list(root.rglob(".*"))


@pytest.mark.parametrize("how", ["one file", "many files", "a long name", "said", "negative"])
def test_bombs(files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Refused after at most MAX_BYTES, whatever the archive says of itself."""
    monkeypatch.setattr(unpack, "MAX_BYTES", 2**20)
    monkeypatch.setattr(unpack, "MAX_FILES", 200)
    path = tmp_path / "a.tar.gz"
    if how == "one file":
        packed(path, files, (member("summary.txt", size=2**21), bytes(2**21)))
    elif how == "many files":
        packed(path, files, *[(member(f"d{number}", tarfile.DIRTYPE), b"") for number in range(300)])
    else:
        kind = tarfile.GNUTYPE_LONGNAME if how == "a long name" else tarfile.REGTYPE
        size = {"a long name": 2**33, "said": 2**40, "negative": -512}[how]
        header = bytearray(member("manifest.json", kind).tobuf(tarfile.GNU_FORMAT))
        header[124:136] = (b"\xff" if size < 0 else b"\x80") + size.to_bytes(11, "big", signed=True)
        header[148:156] = b"%06o\0 " % tarfile.calc_chksums(bytes(header[:512]))[0]
        with gzip.open(path, "wb") as stream:
            stream.write(bytes(header[:512]) + bytes(2**16))
    refused(path, "more than 1048576 bytes|not an archive of `gpu-run`, or cut short")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda f: f.pop("manifest.json"), "no sound manifest.json"),
        (lambda f: f.pop("summary.txt"), "no summary.txt"),
        (lambda f: f.pop(f"{POINT}.json"), f"{KEY}.json:1: cannot read the provenance"),
        (lambda f: f.update({f"{POINT}.json": b"[" * 10_000}), f"{KEY}.json: not JSON"),
        (lambda f: f.update({f"{POINT}.csv": f[f"{POINT}.csv"] + b"\n"}), f"{KEY}.csv:3: expected"),
        (lambda f: f.update({"manifest.json": b'{"schema_version": true}'}), "schema version True"),
        (lambda f: f.update({"manifest.json": b'{"a": 1, "a": 2}'}), "'a' stands twice"),
        (lambda f: f.update({"manifest.json": b"[" * 100_000}), "nested too deeply"),
        (
            lambda f: f.update({"manifest.json": f["manifest.json"].replace(b"recorded_decode", b"../../../x")}),
            "unknown experiment '../../../x'",
        ),
        (
            lambda f: f.update({"manifest.json": f["manifest.json"].replace(b"NVIDIA X", b"NVIDIA Y")}),
            "is of 'NVIDIA X', the run of 'NVIDIA Y'",
        ),
        (
            lambda f: f.update({f"{POINT}.json": f[f"{POINT}.json"].replace(b'"gpu"', b'"cpu"')}),
            f"{KEY}.json:4: a point of profile 'cpu', not 'gpu'",
        ),
        (
            lambda f: f.update({f"{POINT}.json": f[f"{POINT}.json"].replace(b'"step_s": "float"', b'"device": "float"')}),
            "column 'device' is the store's own",
        ),
        (lambda f: f.update({k.replace("recorded", "nonesuch"): f.pop(k) for k in (f"{POINT}.json", f"{POINT}.csv")}),
         "unknown experiment 'nonesuch_decode'"),
    ],
)  # fmt: skip
def test_what_is_in_it(files: dict[str, bytes], tmp_path: Path, change: Change, says: str) -> None:
    change(files)
    refused(packed(tmp_path / "a.tar.gz", files), re.escape(says))


@pytest.mark.parametrize("where", ["bytes", "tar", "gzip"])
def test_any_damage(files: dict[str, bytes], tmp_path: Path, where: str) -> None:
    sound = packed(tmp_path / "sound.tar.gz", files).read_bytes()
    tar = gzip.decompress(sound).rstrip(b"\0") + bytes(1024)
    contents = {
        "bytes": st.binary(max_size=200),
        "gzip": damaged(sound),
        "tar": damaged(tar).map(lambda content: gzip.compress(content, 1)),
    }

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), database=None)
    @given(contents[where])
    def try_them(content: bytes) -> None:
        root = tmp_path / "results"
        path = tmp_path / "a.tar.gz"
        if not refuse_or_take(lambda path: file_archive(path, root), path, content):
            assert not list(root.rglob("*.csv"))
        for left in sorted(root.rglob("*"), reverse=True):
            left.rmdir() if left.is_dir() else left.unlink()

    try_them()


def test_a_disk_that_is_full_while_it_is_unpacked(
    files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = packed(tmp_path / "a.tar.gz", files)
    full = Path("/dev/full").open("wb")  # noqa: SIM115
    monkeypatch.setattr(Path, "open", lambda *_, **__: full)
    with pytest.raises(StorageError, match=r"cannot unpack into .*: No space left on device"):
        file_archive(archive, tmp_path / "results")


def test_the_command_says_it_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "data_dir", lambda: tmp_path / "data")
    archive = packed(tmp_path / "a.tar.gz", {"../../evil": b"x"})
    done = CliRunner().invoke(main, ["ingest", str(archive)])
    assert done.exit_code == 2
    assert done.stderr == f"interleave: {archive}: '../../evil' is no plain file of a run\n"
    assert not (tmp_path / "data").exists()
