"""Which published pages still say what the sources say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from toys import counting

from interleave.report import freshness
from interleave.report.fingerprint import figures_code_hash, imported_modules, notebook_code_hash, page_key
from interleave.report.freshness import BROKEN, FRESH, RENDER, STALE, page_state, page_states, source_faults
from interleave.report.normalise import as_text, normalise
from interleave.report.notebook import setup

Writer = Callable[..., Path]


@pytest.fixture
def published(write_notebook: Writer, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A page as the runner would publish it, its template in a notebooks folder of its own."""
    (tmp_path / "notebooks").mkdir()
    template = write_notebook("run.points();").rename(tmp_path / "notebooks" / "01_toy.ipynb")
    monkeypatch.setattr(freshness, "repo_root", lambda: tmp_path)
    monkeypatch.setattr(freshness, "source_notebooks", lambda: [template])
    cells: dict[str, object] = {}
    exec(counting.PARAMETERS_CELL + "\nprofile = 'cpu'", cells)
    run = setup("toys.counting", cells)
    run.points()
    assert run._measured is not None
    notebook = nbformat.read(template, as_version=4)
    for number, cell in enumerate(notebook.cells[1:], 1):
        cell.execution_count = number
    block = {
        "parameters": {**run.params.model_dump(mode="json"), "profile": "cpu", "measure": True},
        "code": notebook_code_hash(notebook),
        "figures_code": figures_code_hash(notebook),
        "point_keys": run._measured.keys,
    }
    page = out / "book/executed/cpu/01_toy.ipynb"
    page.parent.mkdir(parents=True)
    page.write_text(as_text(normalise(notebook, {**block, "page_key": page_key(block)})))
    return page


def edit(path: Path, change: Callable[[nbformat.NotebookNode], None]) -> None:
    notebook = nbformat.read(path, as_version=4)
    change(notebook)
    nbformat.write(notebook, path)


def test_a_page_is_fresh_until_something_changes(published: Path, tmp_path: Path) -> None:
    assert list(source_faults()) == []
    assert [state.state for state in page_states(("cpu",))] == [FRESH]
    template = tmp_path / "notebooks" / "01_toy.ipynb"
    edit(template, lambda notebook: notebook.cells[0].update(source="# Another title"))
    edit(template, lambda notebook: notebook.cells[3].metadata.update(tags=["hide-input"]))
    assert page_state(published, "cpu").state == FRESH  # prose and tags are no code
    edit(template, lambda notebook: notebook.cells[3].update(source="run.points().head();"))
    state = page_state(published, "cpu")
    assert (state.state, state.acceptable) == (RENDER, False)
    assert "notebook's code changed" in str(state)


def test_other_measuring_code_makes_a_page_stale(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freshness, "experiment_code", lambda experiment: "other")
    state = page_state(published, "cpu")
    assert (state.state, state.acceptable) == (STALE, True)  # the book shows a badge
    assert "2 of its 2 points were measured by other code" in str(state)


def test_a_prediction_changed_afterwards_makes_a_page_stale(
    published: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(freshness, "prediction_sha256", lambda experiment: "of another text")
    state = page_state(published, "cpu")
    assert state.state == STALE
    assert "its prediction is not the one that was on record" in str(state)


def test_lost_points_make_a_page_stale(published: Path, out: Path) -> None:
    next(iter((out / "data/results/cpu/counting").glob("*.csv"))).unlink()
    assert "1 of its points are not stored" in str(page_state(published, "cpu"))


def test_a_changed_experiment_makes_a_page_stale(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = counting.points
    monkeypatch.setattr(
        counting, "points", lambda params: points(params.model_copy(update={"sizes": (1, 9)}))
    )
    assert "1 of the configurations" in str(page_state(published, "cpu"))


def test_edited_and_foreign_pages_are_broken(published: Path, tmp_path: Path) -> None:
    edit(published, lambda notebook: notebook.metadata.interleave.update(code="0"))
    assert "page key does not fit" in str(page_state(published, "cpu"))
    edit(published, lambda notebook: notebook.metadata.pop("interleave"))
    assert page_state(published, "cpu").state == BROKEN
    (tmp_path / "notebooks" / "01_toy.ipynb").unlink()
    assert "there is no notebooks/01_toy.ipynb" in str(page_state(published, "cpu"))


def test_half_written_pages_and_points_are_broken_and_named(published: Path, out: Path) -> None:
    point = next((out / "data/results/cpu/counting").glob("*.csv"))
    whole = point.read_text()
    point.write_text(whole[:-20])
    state = page_state(published, "cpu")
    assert state.state == BROKEN
    assert f"one of its points cannot be read: {point}:" in str(state)
    point.write_text(whole)
    assert page_state(published, "cpu").state == FRESH
    published.write_text(published.read_text()[:-200])
    state = page_state(published, "cpu")
    assert state.state == BROKEN
    assert f"{published} is not a valid notebook" in str(state)


def test_templates_are_kept_stripped_and_say_python3(published: Path, tmp_path: Path) -> None:
    template = tmp_path / "notebooks" / "01_toy.ipynb"
    edit(template, lambda notebook: notebook.cells[1].update(execution_count=1))
    edit(template, lambda notebook: notebook.metadata.kernelspec.update(name="conda-env"))
    found = "\n".join(source_faults())
    assert "holds outputs" in found
    assert "its kernel is 'conda-env'" in found


def test_the_code_that_draws_is_what_the_notebook_imports(write_notebook: Writer) -> None:
    path = write_notebook("from interleave.report.figures import closed_batches as draw\nimport json")
    found = set(imported_modules(nbformat.read(path, as_version=4)))
    drawing = {
        "interleave.report.figures.closed_batches",
        "interleave.report.figures.engine_rows",
        "interleave.report.figures.floors",
        "interleave.report.figures.graded",
        "interleave.report.figures.style",
        "interleave.report.marks",
        "interleave.report.printed",
    }
    assert found == drawing | {"interleave.report.notebook", "interleave.lab.experiments.closed_batches"}
