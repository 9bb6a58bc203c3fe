"""Runs the sections on a borrowed GPU host within a time budget, each in a process of its own.

A fault on the device or a hang ends one section and costs no other; every point is stored as it is
measured. It knows processes, time and one folder; not what a section measures.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from interleave.lab.devices import place
from interleave.lab.files import write_atomically
from interleave.lab.gpu_host.sections import PROFILE, SECTIONS, Section
from interleave.lab.gpu_host.summary import failures, summary_lines
from interleave.lab.measure import collect
from interleave.lab.paths import repo_root
from interleave.lab.provenance import git_state, package_versions, utc_now
from interleave.lab.results import PointStore

SCHEMA_VERSION = 1
MANIFEST, ARCHIVE, SUMMARY = "manifest.json", "gpu-run.tar.gz", "summary.txt"
MAX_ARCHIVE_BYTES = 16 * 2**20
FINISH_S = 10.0
"""Kept back for the archive and the summary."""
LEAST_S = 15.0
"""A section is not begun with less: it would load its model and be stopped."""
KILL_AFTER_S = 5.0
"""A section that is past its time gets so long to store what it has."""

Say = Callable[[str], None]


class OutOfTime(RuntimeError):
    """The deadline of a section has passed."""


def run_sections(
    out: Path,
    *,
    device: str,
    size: str,
    budget_s: float,
    expected: str | None = None,
    chosen: Sequence[str] = (),
    say: Say = print,
) -> dict[str, Any]:
    """Measure what fits into `budget_s`, archive it, and return the manifest.

    out: a folder for points, manifest, summary and archive. expected: the device's name, or a part of it;
    another is recorded and said, and its results stay apart. chosen: sections by name, default all.
    Raises ValueError for a device that is not there.
    """
    started = time.monotonic()
    here = place(device)
    commit, dirty = git_state(repo_root())
    sections = [section for section in SECTIONS if not chosen or section.name in chosen]
    manifest: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "started_at": utc_now(),
        "device": here.device,
        "driver": here.driver,
        "expected": expected,
        "as_expected": expected is None or expected.lower() in here.device.lower(),
        "size": size,
        "budget_s": budget_s,
        "git_commit": commit,
        "git_dirty": dirty,
        "versions": package_versions(),
        "sections": [],
    }
    say(f"device {here.device}, {here.driver or 'no driver'}")
    if not manifest["as_expected"]:
        say(f"expected {expected}: measured all the same, but never on one curve with its results")
    say(f"planned: {', '.join(f'{s.name} {s.seconds:.0f} s' for s in sections)}; budget {budget_s:.0f} s")
    for section in sections:
        left = budget_s - FINISH_S - (time.monotonic() - started)
        if left < LEAST_S:
            entry = {"name": section.name, "status": "not begun: out of time", "wall_s": 0.0}
        else:
            limit_s = min(left - KILL_AFTER_S, 1.5 * section.seconds + LEAST_S)
            say(f"== {section.name}: planned {section.seconds:.0f} s, at most {limit_s:.0f} s")
            entry = _run_apart(section, out, device, size, limit_s)
        say(f"== {section.name}: {entry['status']} after {entry['wall_s']:.1f} s")
        manifest["sections"].append(entry)
        _write(out / MANIFEST, manifest)
    manifest["wall_s"] = round(time.monotonic() - started, 1)
    manifest["sound"] = _sound(out, manifest)
    _write(out / MANIFEST, manifest)
    text = "\n".join(summary_lines(out, manifest)) + "\n"
    write_atomically(out / SUMMARY, text)
    _pack(out)
    say(text)
    return manifest


def run_section(name: str, out: Path, size: str, deadline_s: float, say: Say = print) -> None:
    """Measure one section here, until a monotonic instant; points are stored as they come."""
    section = next(section for section in SECTIONS if section.name == name)
    experiment, params = section.experiment(), section.params(size)
    for point, seconds in zip(experiment.points(params), experiment.estimate_s(params), strict=True):
        repeats = point.config.get("recorded_runs") or point.config.get("repeats") or 1
        say(f"   {point.label}: about {seconds:.0f} s, n = {repeats}")

    def hear(done: int, total: int, label: str, took: float, _left: float) -> None:
        say(f"   {done}/{total} {label}: {took:.1f} s")
        if done < total and time.monotonic() > deadline_s:
            raise OutOfTime(f"out of time after {done} of {total} points")

    store = PointStore(out / "results", PROFILE, section.experiment_name)
    collect(experiment, params, store, progress=hear, say=say)


def _run_apart(section: Section, out: Path, device: str, size: str, limit_s: float) -> dict[str, Any]:
    started = time.monotonic()
    deadline_s = started + limit_s  # one clock for all processes of a machine
    command = [sys.executable, "-m", "interleave", "gpu-run", "--out", str(out), "--device", device]
    command += ["--size", size, "--only", section.name, "--until", repr(deadline_s)]
    try:
        done = subprocess.run(
            command,
            timeout=limit_s + KILL_AFTER_S,
            check=False,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "INTERLEAVE_DEBUG": ""},
        )
    except subprocess.TimeoutExpired as late:
        status, error = "killed: out of time", late.stderr or ""
    else:
        status = "done" if done.returncode == 0 else f"ended with exit code {done.returncode}"
        error = done.stderr
    said = error.decode(errors="replace") if isinstance(error, bytes) else error
    return {
        "name": section.name,
        "experiment": section.experiment_name,
        "status": status,
        "said": said.strip().splitlines()[-5:] if status != "done" else [],
        "wall_s": round(time.monotonic() - started, 1),
    }


def _sound(out: Path, manifest: dict[str, Any]) -> bool:
    """Whether some section was begun, each of them ended well, and no check in it failed."""
    begun = [entry for entry in manifest["sections"] if "experiment" in entry]
    failed = num_failures(out, [entry["experiment"] for entry in begun])
    return bool(begun) and failed == 0 and all(entry["status"] == "done" for entry in begun)


def num_failures(out: Path, experiments: Sequence[str]) -> int:
    """Checks that failed, over the points of some experiments."""
    stores = [PointStore(out / "results", PROFILE, name) for name in dict.fromkeys(experiments)]
    return sum(failures(store.load_all()) for store in stores)


def _pack(out: Path) -> None:
    """Everything measured in one archive, which `interleave ingest` takes."""
    path = out / ARCHIVE
    with tarfile.open(path, "w:gz") as archive:
        for name in (MANIFEST, SUMMARY, "results"):
            if (out / name).exists():
                archive.add(out / name, arcname=name)
    if path.stat().st_size > MAX_ARCHIVE_BYTES:
        raise RuntimeError(f"{path} takes {path.stat().st_size} bytes, more than {MAX_ARCHIVE_BYTES}")


def _write(path: Path, document: dict[str, Any]) -> None:
    write_atomically(path, json.dumps(document, indent=1, allow_nan=False) + "\n")
