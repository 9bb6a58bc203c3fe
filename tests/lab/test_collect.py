"""A store that cannot be written while points are being measured: what was measured so far stands."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_results import closed, full_disk

from interleave.lab.experiments import closed_batches
from interleave.lab.files import StorageError
from interleave.lab.measure import Measured, collect
from interleave.lab.results import PointStore


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that other users may enter, which pytest's own are not, with a timing lock of its own."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        monkeypatch.setenv("INTERLEAVE_CACHE", str(Path(folder) / "cache"))
        monkeypatch.setattr(closed_batches, "prepare", lambda params: None)
        yield Path(folder)


def measured(
    store: PointStore, monkeypatch: pytest.MonkeyPatch, third: Any = None, *, force: bool = False
) -> tuple[Measured, list[str]]:
    """Collect made-up points, and the labels of those that were measured. third: called while that point is; force:
    measure what is there too, and find larger numbers."""
    labels: list[str] = []

    def measure(point: Any, *_: Any) -> list[dict[str, Any]]:
        labels.append(point.label)
        if third is not None and len(labels) == 3:
            third()
        return [{"label": point.label, "number": number} for number in range(500 * force, 500 * force + 500)]

    monkeypatch.setattr(closed_batches, "measure", measure)
    params = closed_batches.Params()
    return collect(closed_batches, params, store, force=force, say=lambda line: None), labels


def assert_completed(store: PointStore, monkeypatch: pytest.MonkeyPatch, kept: int) -> None:
    """The next call measures what is missing, and nothing twice."""
    points = closed_batches.points(closed_batches.Params())
    assert len(store.keys()) == kept
    found, labels = measured(store, monkeypatch)
    assert labels == [point.label for point in points[kept:]]
    assert [rows[0]["label"] for rows in found.rows] == [point.label for point in points]


def test_a_disk_that_fills_up_while_a_run_is_going(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = PointStore(root, "quick", "closed_batches")
    full = full_disk(6000)  # the sidecar still fits
    try:
        with pytest.raises(
            StorageError, match=rf"cannot write .*; 2 measured points are kept in {store.folder}"
        ):
            measured(store, monkeypatch, third=full.__enter__)
    finally:
        full.__exit__(None, None, None)
    assert not list(store.folder.glob(".*"))
    assert_completed(store, monkeypatch, kept=2)


def test_a_disk_that_fills_up_while_points_are_measured_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every point can be read afterwards: two are new, and from the one that found no room on all are old."""
    store = PointStore(root, "quick", "closed_batches")
    before, labels = measured(store, monkeypatch)
    full = full_disk(6000)  # the sidecar still fits
    try:
        with pytest.raises(
            StorageError, match=rf"cannot write .*; {len(labels)} measured points are kept in {store.folder}"
        ):
            measured(store, monkeypatch, third=full.__enter__, force=True)
    finally:
        full.__exit__(None, None, None)
    assert not list(store.folder.glob(".*"))
    again, labels = measured(store, monkeypatch)
    assert (labels, again.keys, again.rows[2:]) == ([], before.keys, before.rows[2:])
    new, labels = measured(store, monkeypatch, force=True)
    assert labels == [rows[0]["label"] for rows in before.rows]
    assert again.rows[:2] == new.rows[:2] != before.rows[:2]


@pytest.mark.skipif(os.name != "posix", reason="rights as POSIX has them")
def test_a_folder_that_is_closed_while_a_run_is_going(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = PointStore(root, "quick", "closed_batches")
    opened: list[Any] = []

    def close() -> None:
        opened.append(closed(store.folder, 0o555))
        opened[0].__enter__()

    try:
        with pytest.raises(
            StorageError, match=rf"Permission denied; 2 measured points are kept in {store.folder}"
        ):
            measured(store, monkeypatch, third=close)
    finally:
        opened[0].__exit__(None, None, None)
    assert_completed(store, monkeypatch, kept=2)
