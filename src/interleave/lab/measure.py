"""Turns the points of an experiment into rows: stored ones are read, missing ones measured and stored.

The only loop over points. It knows the point store and the protocol of an experiment module (see
`Experiment`); not notebooks, and not what is measured. Imports no torch unless the device is a GPU.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from interleave.lab.code_hash import code_hash, measured_sources
from interleave.lab.devices import place
from interleave.lab.paths import repo_root
from interleave.lab.point_table import Row
from interleave.lab.provenance import KEY_PACKAGES, cpu_name, package_versions, provenance, utc_now
from interleave.lab.results import PointStore, point_key
from interleave.lab.timing import timing_lock

if TYPE_CHECKING:
    import pandas as pd


class MissingPoint(ValueError):
    """A point that is not stored, in a run that may not measure."""


@dataclass(frozen=True, slots=True)
class Point:
    """One configuration to measure once.

    label: for progress lines. config: all that was chosen and can move a number, seed and trace
    hash included; strict JSON. seed, trace_sha256: repeated beside the results.
    """

    label: str
    config: Mapping[str, Any]
    seed: int | None = None
    trace_sha256: str | None = None


class Experiment(Protocol):
    """What a module in `lab/experiments` offers to this loop (`Params` is a pydantic model)."""

    __name__: str
    __file__: str | None

    def points(self, params: Any) -> list[Point]: ...
    def estimate_s(self, params: Any) -> list[float]:
        """Seconds to measure each of `points(params)`, in that order."""
        ...

    def prepare(self, params: Any) -> Any:
        """What measuring needs (weights, prompts), made once and only if something is measured."""
        ...

    def measure(self, point: Point, setting: Any, earlier: Mapping[str, list[Row]]) -> list[Row]:
        """earlier: the rows of the points before this one, by label; a point may build on them."""
        ...


@dataclass(frozen=True, slots=True)
class Measured:
    """The points of a run, in the experiment's order, each with its rows and provenance."""

    keys: list[str]
    rows: list[list[Row]]
    sidecars: list[dict[str, Any]]

    @property
    def frame(self) -> pd.DataFrame:
        """One line per row of every point, with the point's key and device in front."""
        import pandas as pd

        return pd.DataFrame(
            {"key": key, "device": sidecar["device"], **row}
            for key, rows, sidecar in zip(self.keys, self.rows, self.sidecars, strict=True)
            for row in rows
        )

    def origin(self) -> dict[str, Any]:
        """Where the numbers came from, over all points: JSON-able, the same on every rendering."""
        first = self.sidecars[0] if self.sidecars else {}
        versions = first.get("versions", {})
        duration_s = sum(sidecar["wall_s"] for sidecar in self.sidecars)
        return {
            "device": first.get("device"),
            "driver": first.get("driver"),
            "threads": first.get("threads"),
            "python": versions.get("python"),
            "torch": versions.get("torch"),
            "commit": first.get("git_commit"),
            "dirty": any(sidecar.get("git_dirty") for sidecar in self.sidecars),
            "started": min((sidecar["started_at"] for sidecar in self.sidecars), default=None),
            "duration_s": round(duration_s, 1),
        }


def collect(
    experiment: Experiment,
    params: Any,
    store: PointStore,
    *,
    measure: bool = True,
    force: bool = False,
    prediction_sha256: str | None = None,
    progress: Callable[[int, int, str, float, float], None] | None = None,
    say: Callable[[str], None] = print,
) -> Measured:
    """Every point of `experiment` at `params`, reading what is stored, measuring the rest.

    measure=False reads points of the same configuration wherever and whenever they were measured, all
    of them with one code, device and set of versions. force measures all of them again.
    progress(done, total, label, seconds, seconds_left) is called after each measured point; say hears
    of waiting for another timing run.
    An interruption keeps the points stored so far. Raises MissingPoint naming what is missing.
    """
    points = experiment.points(params)
    if not measure and not force:
        return _stored_anywhere(experiment, points, store)
    device_kind = getattr(params, "device", "cpu")
    here = place(device_kind)
    code = experiment_code(experiment)
    known = {**asdict(here), "versions": package_versions(KEY_PACKAGES)}
    keys = [_key(point.config, code, known) for point in points]
    stored = [None if force else store.load(key, here.device) for key in keys]
    earlier = {point.label: rows for point, rows in zip(points, stored, strict=True) if rows is not None}
    todo = [i for i, rows in enumerate(stored) if rows is None]
    if todo:
        seconds = experiment.estimate_s(params)
        with timing_lock(device_kind, say):
            setting = experiment.prepare(params)
            for done, i in enumerate(todo, 1):
                started_at, start = utc_now(), time.perf_counter()
                rows = earlier[points[i].label] = experiment.measure(points[i], setting, earlier)
                wall_s = time.perf_counter() - start
                origin = provenance(
                    points[i].config,
                    device=here.device,
                    driver=here.driver,
                    threads=here.threads,
                    seed=points[i].seed,
                    trace_sha256=points[i].trace_sha256,
                    prediction_sha256=prediction_sha256,
                    started_at=started_at,
                )
                store.save(keys[i], rows, {**origin, "code": code, "wall_s": round(wall_s, 3)}, replace=force)
                if progress:
                    progress(done, len(todo), points[i].label, wall_s, sum(seconds[j] for j in todo[done:]))
    return _load(store, keys)


def is_fresh(store: PointStore, key: str, code: str) -> bool:
    """Whether a stored point is what today's `code` would have been measured as, on its own device."""
    sidecar = store.load_provenance(key)
    return key == _key(sidecar["config"], code, sidecar)


def experiment_code(experiment: Experiment) -> str:
    """The hash of all code that an experiment's measurements depend on.

    An experiment that measures with modules of the lab that others don't need names them in `MODULES`.
    """
    root = repo_root()
    own = [Path(experiment.__file__ or "")]
    own += [root / "src/interleave/lab" / f"{name}.py" for name in getattr(experiment, "MODULES", ())]
    return code_hash(measured_sources(root, *own), root)


def _stored_anywhere(experiment: Experiment, points: Sequence[Point], store: PointStore) -> Measured:
    """For every point a stored one of equal configuration, all measured under the same conditions.

    Of several complete sets the one with today's code is taken, then this device's, then the newest.
    """
    code, here = experiment_code(experiment), cpu_name()
    stored: dict[tuple[Any, ...], dict[str, str]] = {}  # conditions -> configuration -> key
    begun: dict[tuple[Any, ...], str] = {}
    keys = store.keys()
    for key in keys:
        sidecar = store.load_provenance(key)
        conditions = _conditions(sidecar)
        stored.setdefault(conditions, {})[_config_text(sidecar["config"])] = key
        begun[conditions] = max(sidecar["started_at"], begun.get(conditions, ""))
    wanted = [_config_text(point.config) for point in points]
    complete = [conditions for conditions, keys in stored.items() if keys.keys() >= set(wanted)]
    if not complete:
        anywhere = {config for keys in stored.values() for config in keys}
        missing = [
            point.label for point, config in zip(points, wanted, strict=True) if config not in anywhere
        ]
        what = (
            f"not measured yet: {', '.join(missing)}"
            if missing
            else "no one device, code and set of versions has measured all points"
        )
        raise MissingPoint(f"{store.experiment}, profile {store.profile}: {what} (and measure is false)")
    best = max(complete, key=lambda found: (found[0] == code, found[1] == here, begun[found]))
    return _load(store, [stored[best][config] for config in wanted])


def _conditions(sidecar: Mapping[str, Any]) -> tuple[Any, ...]:
    """What must be equal for two points to share a figure: code, device, driver, threads, versions."""
    versions = tuple(sidecar["versions"].get(name) for name in KEY_PACKAGES)
    return sidecar.get("code"), sidecar["device"], sidecar["driver"], sidecar["threads"], versions


def _load(store: PointStore, keys: Sequence[str]) -> Measured:
    rows = [store.load(key) or [] for key in keys]
    return Measured(list(keys), rows, [store.load_provenance(key) for key in keys])


def _key(config: Mapping[str, Any], code: str, origin: Mapping[str, Any]) -> str:
    """On a CPU the number of threads is part of the device; `origin` is a sidecar or looks like one."""
    device = str(origin["device"])
    place = device if origin["driver"] else f"{device}, {origin['threads']} threads"
    versions = {name: origin["versions"].get(name) for name in KEY_PACKAGES}
    return point_key(config, code=code, device=place, versions=versions)


def _config_text(config: Mapping[str, Any]) -> str:
    return json.dumps(config, sort_keys=True)
