"""Notebooks as a list of runs: worked off one after the other here, or each on some node of a cluster.

A run on another node publishes there, and what it left (its page, its points) comes back and is published
here as well, so that it makes no difference whether the nodes share a file system.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interleave.lab.devices import num_threads
from interleave.lab.files import write_atomically, write_pair
from interleave.lab.work_list import Needs, run_all
from interleave.report.layout import find_notebook, output_root, results_root
from interleave.report.parameters import read_source
from interleave.report.runner import RunFailed, RunResult, resolve_parameters, run_notebook


@dataclass(frozen=True, slots=True)
class NotebookTask:
    """One run of a notebook: its path or name, and the arguments of `run_notebook`."""

    notebook: str
    profile: str = "quick"
    overrides: Mapping[str, Any] = field(default_factory=dict)
    force: bool = False
    time_limit_s: float | None = None

    @property
    def name(self) -> str:
        return Path(self.notebook).stem

    @property
    def device(self) -> str:
        """Where it computes, once the profile and the overrides are applied. Raises ValueError for wrong ones."""
        params = resolve_parameters(read_source(find_notebook(self.notebook)), self.profile, self.overrides)
        return str(getattr(params, "device", "cpu"))


@dataclass(frozen=True, slots=True)
class Returned:
    """What a run left: files by their path below the output root, what it said, and why it failed if it did."""

    files: dict[str, str]
    lines: list[str]
    failure: str | None = None


def needs_of(task: NotebookTask, num_gpus: float = 1) -> Needs:
    """A run on a GPU keeps so many for itself; one on the CPU keeps the cores that it computes on."""
    if task.device.startswith("cuda"):
        return Needs(num_cpus=1, num_gpus=num_gpus)
    return Needs(num_cpus=num_threads())


def run_task(task: NotebookTask) -> Returned:
    """Run a notebook where this is called. A failed run is an answer too: it would fail again elsewhere."""
    lines: list[str] = []
    try:
        result = _run(task, lines.append)
    except RunFailed as error:
        return Returned({}, lines, str(error))
    return Returned(left_files(result.path, result.provenance, output_root()), lines)


def left_files(page: Path, provenance: Mapping[str, Any], root: Path) -> dict[str, str]:
    """What a run left below `root`, its page and its points: text by relative path."""
    profile, slug = provenance["profile"], str(provenance["experiment"]).rpartition(".")[2]
    folder = results_root(profile, root) / profile / slug
    paths = [page]
    for key in provenance["point_keys"]:
        paths += [folder / f"{key}.json", folder / f"{key}.csv"]
    return {str(path.relative_to(root)): path.read_text("utf8") for path in paths}


def publish_files(files: Mapping[str, str], root: Path) -> None:
    """Write what a run elsewhere left, pages last; what is there already and equal stays.

    Whoever is killed meanwhile leaves each page old or new, and each point old, new or missing.
    """
    changed = {name for name, text in files.items() if not _holds(root / name, text)}
    for table in (name for name in files if name.endswith(".csv")):
        sidecar = f"{table.removesuffix('.csv')}.json"
        if changed & {sidecar, table}:
            write_pair((root / sidecar, files[sidecar]), (root / table, files[table]))
    for page in (name for name in files if name.endswith(".ipynb") and name in changed):
        write_atomically(root / page, files[page])


def _holds(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text("utf8") == text


def run_in_turn(
    tasks: Sequence[NotebookTask], *, say: Callable[[str], None], complain: Callable[[str], None]
) -> list[str]:
    """Run notebooks here, one after the other, saying what happens as it does; the names of those that failed."""
    failed = []
    for task in tasks:
        try:
            _run(task, say)
        except RunFailed as error:
            complain(str(error))
            failed.append(task.name)
    return failed


def run_on_cluster(
    tasks: Sequence[NotebookTask],
    *,
    num_gpus: float = 1,
    say: Callable[[str], None],
    complain: Callable[[str], None],
) -> list[str]:
    """Run notebooks on the cluster that Ray finds, each publishing here when it is done; those that failed.

    num_gpus: that a run on a GPU keeps to itself.
    """
    needs = {task.notebook: needs_of(task, num_gpus) for task in tasks}
    failed = []
    for number, returned in run_all("ray", run_task, tasks, needs=lambda task: needs[task.notebook], say=say):
        for line in returned.lines:
            say(line)
        publish_files(returned.files, output_root())
        if returned.failure is not None:
            complain(returned.failure)
            failed.append(tasks[number].name)
    return failed


def _run(task: NotebookTask, say: Callable[[str], None]) -> RunResult:
    return run_notebook(
        find_notebook(task.notebook),
        profile=task.profile,
        overrides=task.overrides,
        force=task.force,
        time_limit_s=task.time_limit_s,
        say=say,
    )
