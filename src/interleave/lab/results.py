"""The point store: one configuration measured once, kept as a CSV and a sidecar that says whence.

    <root>/<profile>/<experiment>/<key>.csv    key, device, row, then the experiment's columns
    <root>/<profile>/<experiment>/<key>.json   provenance, column types, row count, the CSV's SHA-256

Both are written completely before either gets its name, the sidecar first and the CSV last: a point exists
when its CSV does. Does not know what is measured, nor when a point should be measured again: the key says that.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interleave.lab.files import StorageError, write_pair
from interleave.lab.point_table import ResultsError, Row, Value, column_types, csv_text, read_rows
from interleave.lab.sidecar import SCHEMA_VERSION, line_of, read_sidecar


def point_key(
    config: Mapping[str, Any], *, code: str, device: str, versions: Mapping[str, str | None]
) -> str:
    """The name of a point: 16 hex digits of the SHA-256 of all that can move its numbers.

    config: everything that was chosen, seed and trace hash included; strict JSON.
    code: `code_hash` of what is measured; versions: of the packages that compute.
    """
    identity = {"config": config, "code": code, "device": device, "versions": versions}
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class PointStore:
    """The stored points of one experiment under one profile."""

    root: Path
    profile: str
    experiment: str

    @property
    def folder(self) -> Path:
        return self.root / self.profile / self.experiment

    def keys(self) -> list[str]:
        return sorted(path.stem for path in self.folder.glob("*.csv"))

    def save(
        self,
        key: str,
        rows: Sequence[Mapping[str, Value]],
        provenance: Mapping[str, Any],
        *,
        replace: bool = False,
    ) -> Path:
        """Store a measured point; returns the CSV's path.

        rows: at least one, all with the same columns; values bool, int, float, str or None.
        provenance: strict JSON with a `device`. replace: write over a point that is already there.
        Raises ValueError for rows that cannot be stored and for a point that is there already;
        StorageError when the folder cannot be written: earlier points are untouched, also the one to be
        replaced. Who is killed while replacing a point leaves the old one, the new one or none.
        """
        path = self.folder / f"{key}.csv"
        if _exists(path) and not replace:
            raise ResultsError(f"{path}:1: point {key} is already measured; nothing was overwritten")
        columns = column_types(rows)
        text = csv_text(key, str(provenance["device"]), columns, rows)
        sidecar = {
            "schema_version": SCHEMA_VERSION,
            "key": key,
            "profile": self.profile,
            "experiment": self.experiment,
            **provenance,
            "columns": columns,
            "num_rows": len(rows),
            "csv_sha256": hashlib.sha256(text.encode()).hexdigest(),
        }
        told = json.dumps(sidecar, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
        try:
            write_pair((path.with_suffix(".json"), told), (path, text))
        except StorageError as error:
            kept = len(self.keys())
            raise StorageError(f"{error}; {kept} measured points are kept in {self.folder}") from error
        return path

    def load(self, key: str, device: str | None = None) -> list[Row] | None:
        """The rows of a point, without key and device, or None if it is not measured.

        device: the only device whose rows are wanted. Raises ResultsError (file and line) for anything
        that is not exactly what `save` wrote, or was measured elsewhere.
        """
        path = self.folder / f"{key}.csv"
        if not _exists(path):
            return None
        sidecar = self.load_provenance(key)
        if device is not None and sidecar["device"] != device:
            line = line_of(path.with_suffix(".json"), "device")
            raise ResultsError(f"{line}: measured on {sidecar['device']!r}, not on {device!r}")
        return read_rows(
            path,
            key=key,
            device=str(sidecar["device"]),
            columns=sidecar["columns"],
            num_rows=sidecar["num_rows"],
            sha256=sidecar["csv_sha256"],
        )

    def load_all(self, device: str | None = None) -> list[Row]:
        """Every stored row in key order, each with its key and device in front.

        device: as for `load`; None takes the first point's, since rows of two devices never mix.
        """
        found: list[Row] = []
        for key in self.keys():
            device = device or str(self.load_provenance(key)["device"])
            for row in self.load(key, device) or []:
                found.append({"key": key, "device": device, **row})
        return found

    def load_provenance(self, key: str) -> dict[str, Any]:
        """The sidecar of a point. Raises ResultsError if it is missing, broken, newer or another's."""
        path = self.folder / f"{key}.json"
        sidecar = read_sidecar(path)
        if sidecar["key"] != key:
            raise ResultsError(f"{line_of(path, 'key')}: duplicate key: this is point {sidecar['key']!r}")
        for name, mine in (("profile", self.profile), ("experiment", self.experiment)):
            if sidecar[name] != mine:
                raise ResultsError(
                    f"{line_of(path, name)}: a point of {name} {sidecar[name]!r}, not {mine!r}"
                )
        return sidecar


def _exists(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}") from error
    return True
