"""The point store: exact round trips; spoiled files refused with file and line; full disks survived."""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interleave.lab.files import StorageError, check_writable
from interleave.lab.point_table import ResultsError
from interleave.lab.results import SCHEMA_VERSION, PointStore, point_key
from interleave.lab.tables import TableError

ROWS = [
    {"engine": "paged", "wall_s": 1.5, "requests": 8, "warm": True, "tpot_s": None},
    {"engine": "chunked", "wall_s": 2, "requests": 8, "warm": False, "tpot_s": None},
]
FROM = {"device": "cpu-a", "config": {"engine": "paged"}, "seed": 0}


@pytest.fixture
def store(tmp_path):
    return PointStore(tmp_path / "results", "quick", "closed_batches")


def refused(store, says, line, suffix="csv", key="k1", **load):
    path = store.folder / f"{key}.{suffix}"
    with pytest.raises(TableError, match=says) as caught:
        store.load(key, **load)
    assert str(caught.value).startswith(f"{path}:{line}: ")


def test_round_trip(store):
    assert store.load("k1") is None
    path = store.save("k1", ROWS, FROM)
    assert path == store.folder / "k1.csv"
    assert store.load("k1") == ROWS
    assert store.load_provenance("k1")["config"] == {"engine": "paged"}
    assert store.load_all() == [{"key": "k1", "device": "cpu-a", **row} for row in ROWS]
    assert sorted(p.name for p in store.folder.iterdir()) == ["k1.csv", "k1.json"]


names = st.text(st.characters(categories=("L", "N")), min_size=1, max_size=8).filter(
    lambda name: name not in ("key", "device", "row")
)
column = st.sampled_from(
    [
        st.none() | st.booleans(),
        st.none() | st.integers(),
        st.none() | st.floats(allow_nan=False, allow_infinity=False),
        st.none() | st.text(st.characters(exclude_characters="\r\n\0", codec="utf-8"), min_size=1),
    ]
)


@given(st.data())
def test_any_typed_rows_come_back_exactly(tmp_path_factory, data):
    columns = data.draw(st.dictionaries(names, column, min_size=1, max_size=4))
    rows = data.draw(st.lists(st.fixed_dictionaries(columns), min_size=1, max_size=6))
    store = PointStore(tmp_path_factory.mktemp("store"), "quick", "x")
    store.save("k", rows, FROM)
    again = store.load("k")
    assert again == rows
    assert [{k: type(v) for k, v in row.items()} for row in again] == [
        {k: type(v) for k, v in row.items()} for row in rows
    ]


def test_key_follows_everything_that_moves_a_number():
    base = {"code": "c", "device": "d", "versions": {"torch": "2.13.0"}}
    key = point_key({"engine": "paged", "seed": 0}, **base)
    assert re.fullmatch("[0-9a-f]{16}", key)
    assert key == point_key({"seed": 0, "engine": "paged"}, **base)
    others = [
        point_key({"engine": "paged", "seed": 1}, **base),
        *(
            point_key({"engine": "paged", "seed": 0}, **(base | {name: "other"}))
            for name in ("code", "device")
        ),
        point_key({"engine": "paged", "seed": 0}, **(base | {"versions": {"torch": "2.14.0"}})),
    ]
    assert len({key, *others}) == 5
    with pytest.raises(ValueError, match="JSON compliant"):
        point_key({"rate": float("nan")}, **base)


def test_measured_points_are_not_overwritten_unless_told(store):
    store.save("k1", ROWS, FROM)
    with pytest.raises(ResultsError, match="already measured; nothing was overwritten"):
        store.save("k1", ROWS[:1], FROM)
    assert store.load("k1") == ROWS
    store.save("k1", ROWS[:1], FROM, replace=True)
    assert store.load("k1")[0]["wall_s"] == 1.5


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([], "at least one row"),
        ([{"key": 1}], "column 'key' is the store's own"),
        ([{"a": 1}, {"b": 1}], "row 1 has columns"),
        ([{"a": 1}, {"a": "x"}], "column 'a' must hold one of bool, int, float, str; got int, str"),
        ([{"a": 1}, {"a": True}], "got bool, int"),
        ([{"a": [1]}], "got list"),
        ([{"a": float("nan")}], "'a': nan is no measurement"),
        ([{"a": float("inf")}, {"a": 1}], "inf is no measurement"),
        ([{"a": ""}], "'a': '' cannot be stored"),
        ([{"a": "x\ny"}], "cannot be stored"),
    ],
)
def test_rows_that_cannot_be_stored(store, rows, says):
    with pytest.raises(ValueError, match=says):
        store.save("k1", rows, FROM)
    assert not store.folder.exists()


def edit(store, before, after, suffix="csv", key="k1"):
    path = store.folder / f"{key}.{suffix}"
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))


@pytest.mark.parametrize(
    ("before", "after", "line", "says"),
    [
        ("engine,wall_s", "engine,wall", 1, "header must be 'key,device,row,engine,wall_s"),
        ("k1,cpu-a,1,chunked,2.0,8,False,\n", "", 2, "half-written: 1 rows of 2"),
        ("k1,cpu-a,1,chunked,2.0,8,False,\n", "k1,cpu-a,1,chu", 3, "expected 8 cells"),
        ("2.0,8,False,\n", "2.0,8,False,", 3, "hash differs"),
        ("1.5", "1.4", 3, "hash differs"),
        ("1.5", "fast", 2, "column wall_s: expected float, got 'fast'"),
        ("1.5", "nan", 2, "column wall_s: expected float, got 'nan'"),
        (",8,True", ",8.0,True", 2, "column requests: expected int"),
        ("True", "1", 2, "column warm: expected bool"),
        ("True,", "True,0.1", 2, "column tpot_s: expected null"),
        ("k1,cpu-a,1", "k1,cpu-b,1", 3, "a row of another device: column device is 'cpu-b', not 'cpu-a'"),
        ("k1,cpu-a,1", "k2,cpu-a,1", 3, "a row of another key"),
        ("k1,cpu-a,1", "k1,cpu-a,0", 3, "duplicate or missing row: column row is '0', not '1'"),
    ],
)
def test_spoiled_csv(store, before, after, line, says):
    store.save("k1", ROWS, FROM)
    edit(store, before, after)
    spoiled = (store.folder / "k1.csv").read_bytes()
    refused(store, says, line)
    with pytest.raises(ResultsError, match="nothing was overwritten"):
        store.save("k1", ROWS, FROM)
    assert (store.folder / "k1.csv").read_bytes() == spoiled


@pytest.mark.parametrize(
    ("before", "after", "line", "says"),
    [
        (f'"schema_version": {SCHEMA_VERSION}', '"schema_version": 99', 2, "99 is newer than 1.*update"),
        ('"schema_version": 1,', "", 1, "no schema_version"),
        ('"num_rows": 2', '"num_rows": ', 18, "not JSON, or half-written"),
        ('"csv_sha256"', '"sha"', 1, "missing csv_sha256"),
        ('"key": "k1"', '"key": "k2"', 3, "duplicate key: this is point 'k2'"),
    ],
)
def test_spoiled_sidecar(store, before, after, line, says):
    store.save("k1", ROWS, FROM)
    edit(store, before, after, "json")
    refused(store, says, line, "json")


def test_sidecar_cut_short_or_gone(store):
    path = store.save("k1", ROWS, FROM).with_suffix(".json")
    text = path.read_text()
    path.write_text(text[: len(text) // 2])
    with pytest.raises(ResultsError, match=r"k1.json:\d+: not JSON, or half-written"):
        store.load("k1")
    path.write_text("[1]")
    refused(store, "not the provenance of a point", 1, "json")
    path.unlink()
    refused(store, "cannot read the provenance of point k1", 1, "json")


def test_a_copied_point_is_a_duplicate(store):
    store.save("k1", ROWS, FROM)
    for suffix in ("csv", "json"):
        shutil.copy(store.folder / f"k1.{suffix}", store.folder / f"k2.{suffix}")
    with pytest.raises(ResultsError, match=r"k2.json:3: duplicate key"):
        store.load_all()


def test_devices_do_not_mix(store):
    store.save("k1", ROWS, FROM)
    store.save("k2", ROWS, FROM | {"device": "gpu-b"})
    refused(store, "measured on 'cpu-a', not on 'gpu-b'", 6, "json", device="gpu-b")
    with pytest.raises(ResultsError, match=r"k2.json:6: measured on 'gpu-b', not on 'cpu-a'"):
        store.load_all()
    assert store.load("k2", "gpu-b") == ROWS


def test_a_sidecar_alone_is_no_point(store):
    """What a crash between the two renames leaves: the point is measured again."""
    store.save("k1", ROWS, FROM)
    (store.folder / "k1.csv").unlink()
    assert store.load("k1") is None
    assert store.load_all() == []
    store.save("k1", ROWS[:1], FROM)
    assert len(store.load("k1")) == 1


@contextmanager
def closed(folder, mode):
    """`folder` with only these rights, for root too: root drops to an ordinary user meanwhile."""
    before = folder.stat().st_mode
    folder.chmod(mode)
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if was_root:
            os.seteuid(0)
        folder.chmod(before)


@contextmanager
def full_disk(num_bytes):
    """Writes fail with an OSError beyond this file size, as on a full disk."""
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


def test_read_only_folder_keeps_the_points():
    with tempfile.TemporaryDirectory() as root:  # pytest's own folders are closed to other users
        Path(root).chmod(0o755)
        store = PointStore(Path(root), "quick", "closed_batches")
        store.save("k1", ROWS, FROM)
        with (
            closed(store.folder, 0o555),
            pytest.raises(StorageError, match=r"cannot write .*k2.json: Permission denied; 1 measured"),
        ):
            store.save("k2", ROWS, FROM)
        assert store.load_all() == [{"key": "k1", "device": "cpu-a", **row} for row in ROWS]
        with (
            closed(store.folder, 0o444),
            pytest.raises(StorageError, match=r"cannot read .*k1.csv: Permission"),
        ):
            store.load("k1")


def test_full_disk_keeps_the_points_and_says_where(store):
    store.save("k1", ROWS, FROM)
    for limit in (100, 2000):  # the sidecar fails; the sidecar fits and the CSV fails
        with full_disk(limit), pytest.raises(StorageError) as caught:
            store.save("k2", ROWS * 100, FROM)
        assert re.search(r"cannot write .*k2\.(json|csv): ", str(caught.value))
        assert f"1 measured points are kept in {store.folder}" in str(caught.value)
        assert store.keys() == ["k1"]
        assert store.load("k1") == ROWS
    assert not list(store.folder.glob("*.tmp"))
    assert not list(store.folder.glob(".*"))
    store.save("k2", ROWS, FROM)
    assert store.keys() == ["k1", "k2"]


def test_full_disk_keeps_the_point_that_was_to_be_replaced(store):
    store.save("k1", ROWS, FROM)
    for limit in (100, 2000):  # as above
        with full_disk(limit), pytest.raises(StorageError, match="1 measured points are kept"):
            store.save("k1", ROWS * 100, FROM, replace=True)
        assert store.load("k1") == ROWS
        assert sorted(path.name for path in store.folder.iterdir()) == ["k1.csv", "k1.json"]


NEW_ROWS = [{"engine": "mixed", "wall_s": 0.5}]
REPLACED = f"""\
import os, signal, sys
from pathlib import Path
from interleave.lab.results import PointStore
left = [int(sys.argv[2])]
def end(event, arguments):
    if event in ("os.remove", "os.rename") and str(arguments[0]).startswith(sys.argv[1]):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(end)
PointStore(Path(sys.argv[1]), "quick", "closed_batches").save("k1", {NEW_ROWS}, {FROM}, replace=True)
"""


@pytest.mark.parametrize("instant", [1, 2, 3, 4])
def test_a_kill_while_a_point_is_replaced_needs_no_hand(store, instant):
    """Right before each change of a name in the folder; there are fewer than four of them."""
    store.save("k1", ROWS, FROM)
    command = [sys.executable, "-c", REPLACED, str(store.root), str(instant)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == (0 if instant == 4 else -signal.SIGKILL), done.stderr
    found = store.load("k1")
    assert found in ([NEW_ROWS] if instant == 4 else [ROWS, NEW_ROWS, None])
    assert store.load_all() == [{"key": "k1", "device": "cpu-a", **row} for row in found or []]
    store.save("k1", NEW_ROWS, FROM, replace=found is not None)
    assert store.load("k1") == NEW_ROWS
    assert sorted(path.name for path in store.folder.iterdir()) == ["k1.csv", "k1.json"]


def test_asking_a_full_disk_leaves_nothing_behind(tmp_path):
    with full_disk(1), pytest.raises(StorageError, match=r"cannot write .*out\.json: "):
        check_writable(tmp_path / "out.json")
    assert list(tmp_path.iterdir()) == []


def test_sidecar_is_strict_json(store):
    path = store.save("k1", ROWS, FROM).with_suffix(".json")
    json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(name))
    with pytest.raises(ValueError, match="JSON compliant"):
        store.save("k2", ROWS, FROM | {"rate": float("nan")})
    assert store.keys() == ["k1"]
