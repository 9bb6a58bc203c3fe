"""Runs a notebook into a page: validate, execute aside, judge by content, publish by rename.

A run that fails or is interrupted leaves the published page as it was. This module decides what is
run and where it goes; `execute.py` runs it, `checks.py` judges it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from pydantic import BaseModel

from interleave.lab.devices import num_threads
from interleave.lab.files import StorageError, write_atomically
from interleave.lab.paths import repo_root
from interleave.lab.timing import timing_lock
from interleave.report.checks import faults, numbers
from interleave.report.execute import Execution, execute
from interleave.report.fingerprint import figures_code_hash, notebook_code_hash, page_key
from interleave.report.kernel import kernel_environment
from interleave.report.layout import (
    OUT_VARIABLE,
    executed_folder,
    failed_folder,
    output_root,
    results_root,
)
from interleave.report.normalise import as_text, normalise
from interleave.report.notebook import FORCE_VARIABLE
from interleave.report.parameters import (
    ParameterizedSource,
    command_line,
    experiment_params,
    plain_values,
    read_source,
    validate,
)
from interleave.report.progress import CHANNEL_VARIABLE

LIMIT_FACTOR, LIMIT_EXTRA_S = 5.0, 120.0  # a run five times slower than expected is still a run


class RunFailed(RuntimeError):
    """A notebook that did not become a page; the message says where it stopped and why."""


@dataclass(frozen=True)
class RunResult:
    """A published page, the seconds that it took, and its `interleave` block."""

    path: Path
    wall_s: float
    provenance: dict[str, Any]


def run_notebook(
    path: Path,
    *,
    profile: str = "quick",
    overrides: Mapping[str, Any] | None = None,
    force: bool = False,
    time_limit_s: float | None = None,
    root: Path | None = None,
    say: Callable[[str], None] = print,
) -> RunResult:
    """Execute the template at `path` and publish it among the executed notebooks of `profile`.

    overrides: parameters, as text or values, over the profile's; force: measure stored points
    again; time_limit_s: for the whole notebook, by default from the experiment's estimate; root: laid
    out like a checkout, where page and points go instead of being published.
    Raises ValueError before a kernel starts (layout, parameters, a folder that cannot be written)
    and RunFailed after.
    """
    source = read_source(path)
    params = resolve_parameters(source, profile, overrides or {})
    home = root or output_root()
    destination = executed_folder(profile, home) / path.name
    refuse_unwritable(destination.parent)
    expected_s = sum(estimate_s(source, params))
    limit_s = time_limit_s or LIMIT_FACTOR * expected_s + LIMIT_EXTRA_S
    injected = {k: v for k, v in plain_values(params).items() if v != plain_values(source.model())[k]}
    say(
        f"{path.stem}: profile {profile}, threads: {num_threads()}, at most about {expected_s:.0f} s of measuring"
    )
    if force:
        say("  --force: stored points are measured again")
    heard: dict[str, Any] = {}
    started = time.monotonic()
    with (
        timing_lock(getattr(params, "device", "cpu"), say),
        tempfile.TemporaryDirectory(prefix="interleave-") as scratch,
    ):
        environment = kernel_environment(Path(scratch)) | {CHANNEL_VARIABLE: f"{scratch}/channel.jsonl"}
        environment |= {FORCE_VARIABLE: "1" if force else "", OUT_VARIABLE: str(home)}
        execution = execute(
            source.notebook,
            injected,
            cwd=repo_root(),
            folder=Path(scratch),
            environment=environment,
            time_limit_s=limit_s,
            say=say,
            hear=lambda message: _hear(message, heard, say),
        )
    page = _judge(execution, source, params, profile, overrides or {}, heard, home)
    _publish(page, destination, source, home)
    wall_s = time.monotonic() - started
    done = "published" if root is None else "kept apart:"
    say(f"  {done} {_relative(destination)} after {wall_s:.1f} s")
    return RunResult(destination, wall_s, page.metadata["interleave"])


def estimate_lines(path: Path, profile: str, overrides: Mapping[str, Any]) -> list[str]:
    """Seconds of each point of a run, one a line; raises what `run_notebook` would refuse."""
    source = read_source(path)
    params = resolve_parameters(source, profile, overrides)
    points = source.experiment.points(experiment_params(source, params))
    seconds = estimate_s(source, params)
    lines = [f"  {point.label:<48} {each:8.1f} s" for point, each in zip(points, seconds, strict=True)]
    return [
        f"{path.stem}: {len(points)} point{'s' if len(points) != 1 else ''}, about {sum(seconds):.0f} s if none is "
        "stored",
        *lines,
    ]


def resolve_parameters(source: ParameterizedSource, profile: str, overrides: Mapping[str, Any]) -> BaseModel:
    """The experiment's defaults, the profile's changes, then the overrides, validated together."""
    if "profile" in overrides:
        raise ValueError("choose the profile with --profile, not as a parameter")
    tiers = source.experiment.PROFILES
    if profile not in tiers:
        raise ValueError(f"{source.path.stem} has no profile {profile!r}; it has: {', '.join(tiers)}")
    return validate({**tiers[profile], **overrides, "profile": profile}, source.model, source.path.stem)


def estimate_s(source: ParameterizedSource, params: BaseModel) -> list[float]:
    """Seconds of each point, by the experiment's own estimate."""
    return [float(seconds) for seconds in source.experiment.estimate_s(experiment_params(source, params))]


def refuse_unwritable(folder: Path) -> None:
    """Raise StorageError now rather than after an hour of measuring."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise StorageError(f"cannot write to {folder}: {error.strerror}; nothing was run") from error


def _judge(
    execution: Execution,
    source: ParameterizedSource,
    params: BaseModel,
    profile: str,
    overrides: Mapping[str, Any],
    heard: Mapping[str, Any],
    root: Path,
) -> NotebookNode:
    """The notebook to publish; or RunFailed, with what there is of it kept apart."""
    if execution.failure:
        raise RunFailed(_keep(execution.notebook, source, execution.failure, root))
    measured = heard.get("measured", {})
    parts: dict[str, Any] = {
        "code": notebook_code_hash(execution.notebook),
        "parameters": plain_values(params),
        "figures_code": figures_code_hash(execution.notebook),
        "point_keys": sorted(measured.get("point_keys", [])),
    }
    provenance = {
        **measured.get("provenance", {}),
        **parts,
        "page_key": page_key(parts),
        "experiment": source.experiment_name,
        "notebook": f"notebooks/{source.path.name}",
        "profile": profile,
        "command": command_line(source.path.stem, profile, overrides),
        "numbers": numbers(execution.notebook),
    } | {name: heard[name] for name in ("evidence",) if name in heard}
    page = normalise(execution.notebook, provenance)
    problems = faults(page)
    if problems:
        reason = "it ran to its end, but is not fit to publish:\n    " + "\n    ".join(problems)
        raise RunFailed(_keep(page, source, reason, root))
    return page


def _publish(page: NotebookNode, destination: Path, source: ParameterizedSource, root: Path) -> None:
    block = page.metadata["interleave"]
    points = (
        results_root(block["profile"], root) / block["profile"] / source.experiment_name.rpartition(".")[2]
    )
    try:
        write_atomically(destination, as_text(page))
    except StorageError as error:
        kept = f"its {len(block['point_keys'])} points are stored in {points}; the same command goes on from there"
        raise RunFailed(f"{source.path.stem} failed: {error}; {kept}") from error


def _keep(notebook: NotebookNode, source: ParameterizedSource, reason: str, root: Path) -> str:
    """Store a failed notebook apart; returns the message about it."""
    kept = failed_folder(root) / source.path.name
    where = f"the notebook as far as it came: {_relative(kept)}; the published page is as it was"
    try:
        write_atomically(kept, nbformat.writes(notebook))
    except StorageError as error:
        where = f"the failed notebook could not be kept ({error}); the published page is as it was"
    if "SIGKILL" in reason:
        reason += f"\n    to use less memory: {getattr(source.experiment, 'LESS_MEMORY', 'lower its sizes')}"
    return f"{source.path.stem} failed: {reason}\n  {where}"


def _hear(message: dict[str, Any], heard: dict[str, Any], say: Callable[[str], None]) -> None:
    if "say" in message:
        say(f"    {message.pop('say')}")
    heard.update(message)


def _relative(path: Path) -> str:
    root = output_root()
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
