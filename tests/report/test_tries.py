"""Real runs of small notebooks: what a try leaves, what it is compared with, and when it becomes the page."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest

from interleave.lab.results import PointStore
from interleave.report import freshness
from interleave.report.cluster import publish_files
from interleave.report.freshness import FRESH, page_state
from interleave.report.layout import executed_folder, results_root
from interleave.report.publish import publish_try
from interleave.report.runner import RunFailed, run_notebook
from interleave.report.tries import Try, build_try_site, try_notebook

Writer = Callable[..., Path]
NUMBERS = """\
points = run.points()
mean = float(points.area.mean())
run.glue("mean_area", mean, unit="x", band=(0.9 * mean, 1.1 * mean))
run.glue("sizes", len(points["size"].unique()))"""
FAILS_AT_64 = "if rows == 64:\n    raise RuntimeError('too many')"


@pytest.fixture
def template(write_notebook: Writer, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A notebook in a notebooks folder of its own, so that its pages can be fresh."""
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setattr(freshness, "repo_root", lambda: tmp_path)
    return write_notebook(FAILS_AT_64, NUMBERS).rename(tmp_path / "notebooks" / "01_toy.ipynb")


def quietly(path: Path, **options: Any) -> Try:
    return try_notebook(path, say=lambda _: None, **options)


def outside(out: Path) -> dict[str, bytes]:
    """Every file below the output root that is not a try's."""
    paths = [path for path in out.rglob("*") if path.is_file() and "_build/try" not in path.as_posix()]
    return {str(path.relative_to(out)): path.read_bytes() for path in paths}


def page_of(out: Path, profile: str = "quick") -> Path:
    return executed_folder(profile, out) / "01_toy.ipynb"


def numbers_of(page: Path) -> dict[str, float]:
    found = nbformat.read(page, as_version=4).metadata.interleave.numbers
    return {name: number["value"] for name, number in found.items()}


def test_a_try_shows_what_moved_and_measures_only_what_is_new(template: Path, out: Path) -> None:
    run_notebook(template, say=lambda _: None)
    before = outside(out)
    tried = quietly(template, overrides={"sizes": "[1, 2, 6]"})
    assert outside(out) == before
    assert (tried.num_measured, tried.num_points) == (1, 3)
    found = tried.difference
    assert found.parameters == {"sizes": ([1, 2], [1, 2, 6])}
    assert [(one.name, one.noise) for one in found.moved] == [("mean_area", "beyond"), ("sizes", None)]
    assert [one.after["value"] for one in found.moved if one.after] == [24.0, 3]
    assert found.caveats == []
    assert found.after.state.state == FRESH
    assert build_try_site(tried) is None  # the run list does not name the toy

    again = quietly(template, overrides={"sizes": "[2, 6]"})
    assert again.num_measured == 0  # an earlier try has measured it
    assert outside(out) == before


def test_without_anything_to_compare_with_the_quick_run_comes_first(template: Path, out: Path) -> None:
    lines: list[str] = []
    tried = try_notebook(template, profile="cpu", overrides={"rows": 32}, say=lines.append)
    assert "no page of profile cpu and no quick run to compare with: running that first" in lines[0]
    assert page_of(out).is_file()
    assert not page_of(out, "cpu").exists()
    assert tried.difference.before.tier == "quick"
    assert "no published page of profile cpu" in tried.difference.caveats[0]
    run_notebook(template, profile="cpu", say=lambda _: None)
    tried = quietly(template, profile="cpu", overrides={"rows": 32})
    assert tried.difference.before.tier == "cpu"
    assert tried.difference.parameters == {"rows": (16, 32)}
    assert tried.num_measured == 0


def test_publishing_puts_the_try_in_the_place_of_the_page(template: Path, out: Path) -> None:
    run_notebook(template, profile="cpu", say=lambda _: None)
    quietly(template, profile="cpu", overrides={"rows": 32})
    said = publish_try(template)
    assert said[0] == "published book/executed/cpu/01_toy.ipynb"
    assert said[1].startswith("  in place of the one of 20")
    assert said[2] == "  rows: 16 -> 32"
    assert said[3].startswith("  2 of its 2 points are new")
    assert said[4].startswith("to undo: interleave run 01_toy --profile cpu  (git has no copy")
    assert numbers_of(page_of(out, "cpu")) == {"mean_area": 48.0, "sizes": 2}
    assert page_state(page_of(out, "cpu"), "cpu").state == FRESH
    assert len(PointStore(results_root("cpu", out), "cpu", "counting").keys()) == 4
    with pytest.raises(ValueError, match="no try of 01_toy waits to be published"):
        publish_try(template)


@pytest.mark.parametrize("instant", [1, 2])
def test_publishing_that_is_stopped_while_a_point_is_replaced_needs_no_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, instant: int
) -> None:
    """Right before the sidecar gets its name, then before the CSV does: the point is old, or it is missing."""
    here, there = (PointStore(results_root("cpu", tmp_path / name), "cpu", "toy") for name in ("a", "b"))
    here.save("k", [{"x": 1}], {"device": "cpu-a"})
    there.save("k", [{"x": 2}], {"device": "cpu-a"})
    paths = [there.folder / "k.json", there.folder / "k.csv"]
    files = {path.relative_to(tmp_path / "b").as_posix(): path.read_text() for path in paths}
    rename, left = Path.replace, [instant]

    def replace(path: Path, target: Path) -> Path:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(KeyboardInterrupt):
        publish_files(files, tmp_path / "a")
    assert here.load("k") in (None, [{"x": 1}])
    publish_files(files, tmp_path / "a")
    assert here.load("k") == [{"x": 2}]


def test_a_failed_try_is_not_published(template: Path, out: Path) -> None:
    quietly(template, overrides={"rows": 32})
    before = outside(out)
    with pytest.raises(RunFailed, match="too many"):
        quietly(template, overrides={"rows": 64})
    with pytest.raises(ValueError, match=r"the last try of 01_toy failed \(.*01_toy.ipynb\)"):
        publish_try(template)
    assert outside(out) == before
    quietly(template, overrides={"rows": 32})
    assert publish_try(template, "quick")[0] == "published _build/executed/quick/01_toy.ipynb"


def test_a_try_that_today_would_come_out_otherwise_is_not_published(
    template: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quietly(template, overrides={"rows": 32})
    before = outside(out)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(freshness, "experiment_code", lambda experiment: "other")
        with pytest.raises(ValueError, match="2 of its 2 points were measured by other code"):
            publish_try(template)
    text = template.read_text()
    template.write_text(text.replace("too many", "far too many"))
    with pytest.raises(ValueError, match="not what today's code would make"):
        publish_try(template)
    template.write_text(text)
    tried = out / "_build/try/_build/executed/quick/01_toy.ipynb"
    document = json.loads(tried.read_text())
    document["metadata"]["interleave"]["code"] = "0"
    tried.write_text(json.dumps(document))
    with pytest.raises(ValueError, match="not fit to be a page"):
        publish_try(template)
    assert outside(out) == before


def test_wrong_parameters_are_refused_before_anything_runs(template: Path, out: Path) -> None:
    with pytest.raises(ValueError, match="no parameter 'row'; did you mean 'rows'"):
        quietly(template, overrides={"row": 3})
    with pytest.raises(ValueError, match="no try of 01_toy at profile gpu"):
        publish_try(template, "gpu")
    assert not out.exists()
