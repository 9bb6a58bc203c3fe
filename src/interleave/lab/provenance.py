"""Where a number came from: code, versions, device, time. Imports none of the packages it names."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

from interleave.lab.paths import data_dir, repo_root

PACKAGES = ("interleave", "torch", "triton", "numba", "numpy", "transformers", "safetensors")
# Versions that can move a measured time; the point key holds these.
KEY_PACKAGES = ("torch", "triton", "numba")
COMMIT_VARIABLE = "INTERLEAVE_COMMIT"
"""Names the commit of a copy that came without its history."""
# Written by runs themselves, so a change there does not make the code another one.
_OUTPUTS = ("data/results", "book/executed")


def provenance(
    config: Mapping[str, Any],
    *,
    device: str,
    threads: int | None,
    seed: int | None = None,
    trace_sha256: str | None = None,
    driver: str | None = None,
    prediction_sha256: str | None = None,
    started_at: str | None = None,
) -> dict[str, Any]:
    """What goes beside a result, all of it strict JSON; None where it does not apply or is unknown.

    device: the name of the processor that computed (`cpu_name()` or the GPU's name).
    driver: of a GPU. threads: that the model ran on.
    started_at: UTC in ISO 8601, now by default; take `utc_now()` before a measurement.
    """
    if not device:
        raise ValueError("provenance needs a device name: pass cpu_name() or the GPU's name")
    commit, dirty = git_state(repo_root())
    return {
        "config": dict(config),
        "seed": seed,
        "trace_sha256": trace_sha256,
        "prediction_sha256": prediction_sha256,
        "git_commit": commit,
        "git_dirty": dirty,
        "versions": package_versions(),
        "device": device,
        "driver": driver,
        "threads": threads,
        "system": f"{platform.system()} {platform.machine()}",
        "started_at": started_at or utc_now(),
    }


def simulated_provenance() -> dict[str, Any]:
    """What goes beside numbers that are a matter of code and settings only; the device is for the record."""
    commit, dirty = git_state(repo_root())
    return {
        "git_commit": commit,
        "git_dirty": dirty,
        "versions": package_versions(("interleave", "numpy")),
        "device": cpu_name(),
        "started_at": utc_now(),
    }


def prediction_sha256(experiment: str) -> str | None:
    """The hash of the prediction that is on record for an experiment, None where there is none."""
    with suppress(OSError, ValueError):
        return hashlib.sha256((data_dir() / "predictions" / f"{experiment}.md").read_bytes()).hexdigest()
    return None


def utc_now() -> str:
    """Now, UTC, to the second: 2026-01-31T12:00:00Z."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def package_versions(names: tuple[str, ...] = PACKAGES) -> dict[str, str | None]:
    """Installed versions by package, None where not installed, and Python's own."""
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for name in names:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return versions


@lru_cache(maxsize=1)
def cpu_name() -> str:
    """The processor's model as the system names it, never empty."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    return name_in_cpuinfo(text) or platform.processor() or platform.machine() or "unknown CPU"


def name_in_cpuinfo(text: str) -> str:
    """The first processor's model name in the text of /proc/cpuinfo; empty if it has none.

    A virtual machine may say no more than "AMD EPYC", which several generations share: a name without a
    number gets the processor's family and model, so that their results are never taken for one machine's.
    """
    lines = (line.partition(":") for line in text.splitlines())
    facts: dict[str, str] = {}
    for name, _, value in lines:
        facts.setdefault(name.strip(), " ".join(value.split()))
    named = facts.get("model name", "")
    numbered = [
        f"{fact} {facts[key]}" for fact, key in (("family", "cpu family"), ("model", "model")) if key in facts
    ]
    if named and numbered and not any(letter.isdigit() for letter in named):
        return f"{named} ({', '.join(numbered)})"
    return named


@lru_cache(maxsize=4)
def git_state(root: Path) -> tuple[str | None, bool | None]:
    """(commit, whether files differ from it) of a checkout; outside one ($INTERLEAVE_COMMIT, None).

    Results and executed notebooks don't count as differences. Asked once per process: the code that
    runs is the code that was loaded at its start.
    """
    top = _git(root, "rev-parse", "--show-toplevel")
    if top is None or Path(top) != root.resolve():
        return os.environ.get(COMMIT_VARIABLE) or None, None
    commit = _git(root, "rev-parse", "HEAD")
    excluded = [f":(exclude){folder}" for folder in _OUTPUTS]
    changes = _git(root, "status", "--porcelain", "--", ".", *excluded)
    return (commit, None if changes is None else bool(changes)) if commit else (None, None)


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
