"""Pages that are made again: equal, within what their numbers declare, or not; and what is refused before that."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import nbformat
import pandas as pd
import pytest
from click.testing import CliRunner
from toys import drifting

from interleave.cli.main import main
from interleave.lab.paths import repo_root
from interleave.report import freshness, layout, second_run, tries
from interleave.report.evidence import Stored
from interleave.report.figures.graded import verdict
from interleave.report.layout import executed_folder
from interleave.report.repeated import read_repeated
from interleave.report.run_list import Run
from interleave.report.runner import run_notebook

Writer = Callable[..., Path]
FOUND = """\
points = run.points()
found = float(points.found.iloc[0])
run.glue("found", found, band=(found - 0.5, found + {width}))
run.glue("name", f"the {{found:.0f}}th")"""
AREA = """\
points = run.points()
print(points.area.sum())
run.glue("area", int(points.area.max()))
run.closing()"""


@pytest.fixture
def make(write_notebook: Writer, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Writer:
    """make(*cells, simulated=False, **of write_notebook) publishes the quick page of a toy notebook."""
    (tmp_path / "notebooks").mkdir()
    for module in (freshness, layout):
        monkeypatch.setattr(module, "repo_root", lambda: tmp_path)
    monkeypatch.setenv(drifting.FILE_VARIABLE, str(tmp_path / "drift"))

    def publish(*cells: str, simulated: bool = False, **options: str) -> Path:
        path = write_notebook(*cells, **options).rename(tmp_path / "notebooks" / "01_toy.ipynb")
        run = Run("01_toy", options.get("experiment", "toys.counting"), "A toy", simulated=simulated)
        monkeypatch.setattr(tries, "load_runs", lambda _: [run])
        run_notebook(path, say=lambda _: None)
        return executed_folder("quick", out) / "01_toy.ipynb"

    return publish


DRIFTING = {"experiment": "toys.drifting", "defaults": drifting.PARAMETERS_CELL}


def check(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["check", "--quick", "--reproduce", *(arguments or ("01_toy",))])
    return done.exit_code, done.output


def published(out: Path) -> dict[Path, bytes]:
    apart = out / "_build/reproduced"
    return {p: p.read_bytes() for p in out.rglob("*") if p.is_file() and not p.is_relative_to(apart)}


def test_a_page_that_comes_out_the_same(make: Writer, out: Path) -> None:
    page = make(AREA, simulated=True)
    before = published(out)
    code, said = check()
    assert code == 0, said
    assert "reproduced: nothing differs that has to be equal" in said
    assert "2/2  size 2" in said  # measured again, not read
    assert check(str(page))[0] == 0
    assert published(out) == before


def test_a_measured_number_may_move_within_its_range(make: Writer) -> None:
    make(FOUND.format(width=1.5), **DRIFTING)
    code, said = check()
    assert code == 0, said
    assert "found" in said
    assert "within" in said
    assert "moved, with no range beside them to judge by: name" in said


def test_a_measured_number_beyond_its_range(make: Writer, out: Path) -> None:
    make(FOUND.format(width=0.25), **DRIFTING)
    before = published(out)
    code, said = check()
    assert code == 1
    assert "not as published: found: beyond the range of its repeats" in said
    assert "\nreproduced" not in said
    assert published(out) == before


def test_a_simulated_number_has_to_be_equal_whatever_its_range(make: Writer) -> None:
    make(FOUND.format(width=9), simulated=True, **DRIFTING)
    code, said = check()
    assert code == 1
    assert "not as published: found: simulated, so it has to be equal: 100.0 before, 101.0 now" in said
    assert "not as published: name: simulated, so it has to be equal" in said


def test_a_page_without_measured_numbers_is_equal_to_the_last_byte(make: Writer, tmp_path: Path) -> None:
    shows = f"""\
from pathlib import Path
seen = Path({str(tmp_path / "seen")!r})
print(seen.exists())
seen.touch()
run.glue("area", int(run.points().area.max()))"""
    make(shows, simulated=True)
    code, said = check()
    assert code == 1
    assert "not as published: cell 'cell-2': another output" in said


def test_a_number_that_is_no_longer_recorded(make: Writer, tmp_path: Path) -> None:
    once = f"""\
from pathlib import Path
seen = Path({str(tmp_path / "seen")!r})
name = "second" if seen.exists() else "first"
seen.touch()
run.glue(name, int(run.points().area.max()))"""
    make(once)
    code, said = check()
    assert code == 1
    assert "first: recorded only before" in said
    assert "second: recorded only now" in said


def test_both_runs_are_filed_however_they_came_out(
    make: Writer, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def grades(stored: Stored) -> pd.DataFrame:
        found = float(stored.frame["found"].iloc[0])
        return pd.DataFrame([verdict("1", "what is found", found, 0, 100)])

    monkeypatch.setattr(second_run, "grader", lambda experiment: grades)
    make(FOUND.format(width=0.25), **DRIFTING)
    code, said = check("01_toy", "--record")
    assert code == 2
    assert (
        "was begun 0 minutes ago; a second run that is to be filed has to begin at least 60 minutes" in said
    )
    assert not (out / "_build/reproduced").exists()
    monkeypatch.setattr(second_run, "LEAST_APART_S", 0)
    code, said = check("01_toy", "--record")
    assert code == 1
    assert "filed: " in said, said
    (document,) = read_repeated(out)
    assert {number["name"]: number["outcome"] for number in document["numbers"]} == {
        "found": "beyond",
        "name": "no range",
    }
    (line,) = document["predictions"]
    assert line["first"] == {"measured": 100.0, "verdict": "held"}
    assert line["second"] == {"measured": 101.0, "verdict": "missed"}
    assert document["first"]["started"] <= document["second"]["started"]


def test_filing_needs_a_page_that_is_made_again() -> None:
    done = CliRunner().invoke(main, ["check", "--record"])
    assert done.exit_code == 2
    assert "--record files what --reproduce PAGE found; give both" in done.output


def test_chosen_parameters_are_chosen_again(make: Writer, out: Path, tmp_path: Path) -> None:
    make(AREA)
    run_notebook(tmp_path / "notebooks/01_toy.ipynb", overrides={"sizes": "[1, 9]"}, say=lambda _: None)
    code, said = check()
    assert code == 0, said
    assert "2/2  size 9" in said
    assert "  no parameter differs" in said


@pytest.mark.parametrize("what", ["absent", "another device", "another code", "edited"])
def test_refused_before_anything_runs(make: Writer, out: Path, tmp_path: Path, what: str) -> None:
    page = make(AREA)
    says = "is no published page of profile quick"
    if what == "absent":
        page.unlink()
    elif what == "another code":
        template = tmp_path / "notebooks/01_toy.ipynb"
        template.write_text(template.read_text().replace("area.sum()", "area.min()"))
        says = "is render again (the notebook's code changed), so this code would make another page"
    else:
        document = json.loads(page.read_text())
        block = document["metadata"]["interleave"]
        block["device"] = "another" if what == "another device" else block["device"]
        block["parameters"] |= {"rows": 9} if what == "edited" else {}
        page.write_text(json.dumps(document))
        says = "was measured on 'another'" if what == "another device" else "its provenance was edited"
    code, said = check()
    assert code == 2
    assert says in said
    assert not (out / "_build/reproduced").exists()


def test_a_real_page_of_simulated_numbers(out: Path) -> None:
    """The claims and predictions, as far as they can be graded where no other chapter has run."""
    path = repo_root() / "notebooks/12_predictions.ipynb"
    run_notebook(path, say=lambda _: None)
    code, said = check("predictions")
    assert code == 0, said
    page = nbformat.read(executed_folder("quick", out) / path.name, as_version=4)
    assert page.metadata.interleave.numbers
