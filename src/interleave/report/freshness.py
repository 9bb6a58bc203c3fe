"""Compares published pages with today's sources: fresh, to be rendered again, or stale.

Knows where pages and points lie and how they were fingerprinted; runs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interleave.lab.measure import experiment_code, is_fresh
from interleave.lab.paths import repo_root
from interleave.lab.provenance import prediction_sha256
from interleave.lab.results import PointStore
from interleave.lab.tables import TableError
from interleave.report.checks import faults
from interleave.report.evidence import chapters, keys_of, stored_results
from interleave.report.fingerprint import KEY_PARTS, figures_code_hash, notebook_code_hash, page_key
from interleave.report.layout import (
    COMMITTED_PROFILES,
    executed_folder,
    output_root,
    results_root,
    source_notebooks,
)
from interleave.report.parameters import ParameterizedSource, experiment_params, read_source, validate
from interleave.report.source import NotebookError, load_notebook

FRESH, RENDER, STALE, BROKEN = "fresh", "render again", "stale", "broken"


@dataclass(frozen=True)
class PageState:
    """fresh; render again (only its presentation changed: stored points will do); stale (its points
    were measured by other code or for another configuration: the page carries a badge); broken."""

    name: str
    profile: str
    state: str
    reasons: list[str]

    @property
    def acceptable(self) -> bool:
        """Fresh, or stale where a reader is told so by a badge."""
        return self.state in (FRESH, STALE)

    def __str__(self) -> str:
        return f"{self.name} ({self.profile}): {self.state}" + "".join(
            f"\n    {reason}" for reason in self.reasons
        )


def page_states(profiles: tuple[str, ...] = COMMITTED_PROFILES) -> list[PageState]:
    """The state of every published page of `profiles`, in reading order."""
    folders = [(profile, executed_folder(profile, output_root())) for profile in profiles]
    return [
        page_state(path, profile) for profile, folder in folders for path in sorted(folder.glob("*.ipynb"))
    ]


def page_state(path: Path, profile: str, root: Path | None = None) -> PageState:
    """The state of one executed notebook; root: below which its points are stored, if not the output root."""
    root = root or output_root()
    try:
        notebook = load_notebook(path)
    except NotebookError as error:
        return PageState(path.stem, profile, BROKEN, [str(error)])
    block = notebook.metadata.get("interleave", {})
    template = repo_root() / "notebooks" / path.name
    broken = list(faults(notebook))
    if not block or not isinstance(block, dict):
        broken.append("it was not made by `interleave run`: no provenance")
    elif not {*KEY_PARTS, "page_key"} <= block.keys():
        broken.append("its provenance is incomplete")
    elif block["page_key"] != page_key(block):
        broken.append("its provenance was edited: the page key does not fit the rest")
    if not template.is_file():
        broken.append(f"there is no notebooks/{path.name}")
    if broken:
        return PageState(path.stem, profile, BROKEN, broken)
    source = read_source(template)
    try:
        stale = list(_stale_points(block, source, profile, root))
    except TableError as error:
        return PageState(path.stem, profile, BROKEN, [f"one of its points cannot be read: {error}"])
    if stale:
        return PageState(path.stem, profile, STALE, stale)
    changed = []
    if block["code"] != notebook_code_hash(source.notebook):
        changed.append("the notebook's code changed")
    if block["figures_code"] != figures_code_hash(source.notebook):
        changed.append("the code that draws changed")
    if new_evidence(block, profile, root):
        changed.append("the stored results of other chapters changed")
    return PageState(path.stem, profile, RENDER if changed else FRESH, changed)


def new_evidence(block: Mapping[str, Any], profile: str, root: Path) -> bool:
    """Whether a page that reads other chapters' results has seen others than those stored now."""
    if "evidence" not in block:
        return False
    return bool(block["evidence"] != keys_of(stored_results(list(chapters()), profile, root)))


def source_faults() -> Iterator[str]:
    """What is wrong with the templates in notebooks/, one line each."""
    for path in source_notebooks():
        try:
            notebook = read_source(path).notebook
        except ValueError as error:
            yield str(error)
            continue
        kernel = notebook.metadata.get("kernelspec", {}).get("name")
        if kernel != "python3":
            yield f"{path.name}: its kernel is {kernel!r}; sources say python3 (the runner uses its own anyway)"
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        if any(cell.outputs or cell.execution_count for cell in code):
            yield f"{path.name}: holds outputs; clear them (templates are kept stripped)"


def _stale_points(
    block: dict[str, Any], source: ParameterizedSource, profile: str, root: Path
) -> Iterator[str]:
    """Why the points behind a page are not what a run would measure today."""
    try:
        params = validate(block["parameters"], source.model, source.path.stem)
    except ValueError as error:
        yield f"the parameters changed: {error}"
        return
    slug = source.experiment_name.rpartition(".")[2]
    store = PointStore(results_root(profile, root), profile, slug)
    missing = [key for key in block["point_keys"] if store.load(key) is None]
    if missing:
        yield f"{len(missing)} of its points are not stored"
        return
    code = experiment_code(source.experiment)
    old = [key for key in block["point_keys"] if not is_fresh(store, key, code)]
    if old:
        yield f"{len(old)} of its {len(block['point_keys'])} points were measured by other code"
    said = prediction_sha256(slug)
    if any(store.load_provenance(key)["prediction_sha256"] != said for key in block["point_keys"]):
        yield "its prediction is not the one that was on record when it was measured"
    wanted = [dict(point.config) for point in source.experiment.points(experiment_params(source, params))]
    stored = [store.load_provenance(key)["config"] for key in block["point_keys"]]
    unmeasured = [config for config in wanted if config not in stored]
    if unmeasured:
        yield f"{len(unmeasured)} of the configurations that it asks for today are not among its points"
