"""What a notebook's cells call, without a kernel: `setup` takes the cells that IPython has run."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from toys import counting

from interleave.lab.measure import MissingPoint
from interleave.report import notebook
from interleave.report.notebook import NotebookRun, setup
from interleave.report.parameters import ParameterError


def namespace(*injected: str) -> dict[str, Any]:
    """The globals of a notebook whose parameter cells have run and whose setup cell runs now."""
    cells = [counting.PARAMETERS_CELL, *injected]
    found: dict[str, Any] = {"In": ["", *cells, "run = setup(...)"]}
    for cell in cells:
        exec(compile(ast.parse(cell), "cell", "exec"), found)
    return found


def toy(*injected: str) -> NotebookRun:
    return setup("toys.counting", namespace(*injected))


def test_setup_gives_the_parameters_their_types() -> None:
    cells = namespace('# Parameters\nsizes = "[3, 4]"\nrows = "1e1"\nmeasure = "false"\nnote = "null"\n')
    run = setup("toys.counting", cells)
    assert run.params.sizes == (3, 4)  # type: ignore[attr-defined]
    assert (run.profile, run.measure) == ("quick", False)
    assert (cells["rows"], cells["note"]) == (10, None)


@pytest.mark.parametrize(
    ("injected", "said"),
    [
        ("# Parameters\nrow = 3\n", "no parameter 'row'; did you mean 'rows'"),
        ("rows = 65", "'rows' = 65: .*less than or equal to 64"),
        ('profile = "gpx"', "did you mean 'gpu'"),
    ],
)
def test_setup_refuses_like_the_command_line(injected: str, said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        toy(injected)


def test_other_variables_of_a_session_are_left_alone() -> None:
    cells = namespace()
    cells["In"] = ["", "rowz = 4", "import os", *cells["In"][1:]]
    cells["rowz"] = 4
    assert setup("toys.counting", cells).params


def test_points_are_measured_once(out: Path) -> None:
    run = toy()
    first = run.points()
    assert list(first.columns) == ["key", "device", "size", "run", "area"]
    assert len(first) == 4
    stored = {path: path.stat().st_mtime_ns for path in out.rglob("*.csv")}
    assert len(stored) == 2
    more = toy("sizes = [2, 5]").points()  # one of them is new
    assert sorted(more["size"].unique()) == [2, 5]
    assert len(list(out.rglob("*.csv"))) == 3
    assert {path: path.stat().st_mtime_ns for path in stored} == stored
    again = toy("measure = False").points()
    assert again.equals(first)


def test_force_measures_again(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy().points()
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.csv")}
    monkeypatch.setenv("INTERLEAVE_FORCE", "1")
    toy().points()
    after = {path: path.stat().st_mtime_ns for path in out.rglob("*.csv")}
    assert after.keys() == before.keys()
    assert all(after[path] > before[path] for path in before)


def test_without_measuring_a_missing_point_is_an_error(out: Path) -> None:
    toy("sizes = [1]").points()
    with pytest.raises(MissingPoint, match="counting, profile quick: not measured yet: size 7"):
        toy("sizes = [1, 7]\nmeasure = False").points()


def test_points_of_another_device_render_here_but_never_mix(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from interleave.lab import devices, measure

    elsewhere = devices.Place("Another CPU", None, 64)
    with monkeypatch.context() as there:
        there.setattr(measure, "place", lambda kind: elsewhere)
        toy("sizes = [1, 2]").points()
    shown = toy("measure = False").points()
    assert set(shown["device"]) == {"Another CPU"}
    toy("sizes = [2, 3]").points()  # here
    with pytest.raises(MissingPoint, match="no one device, code and set of versions"):
        toy("sizes = [1, 3]\nmeasure = False").points()


def test_points_of_different_code_never_share_a_figure(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from interleave.lab import measure

    with monkeypatch.context() as before:
        before.setattr(measure, "experiment_code", lambda experiment: "older code")
        toy("sizes = [1, 2]").points()
    toy("sizes = [2, 3]").points()
    with pytest.raises(MissingPoint, match="no one device, code and set of versions has measured all"):
        toy("sizes = [1, 3]\nmeasure = False").points()
    for sizes, code in (("[1, 2]", "older code"), ("[2, 3]", measure.experiment_code(counting))):
        run = toy(f"sizes = {sizes}\nmeasure = False")
        run.points()
        assert run._measured is not None
        assert {sidecar["code"] for sidecar in run._measured.sidecars} == {code}


def test_the_closing_table_shows_text_as_text(out: Path) -> None:
    shown: list[Any] = []
    run = toy('label = "<b>&"')
    run.points()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(notebook, "display", lambda thing, **_: shown.append(thing))
        run.closing()
    (table,) = shown
    assert "<code>&quot;&lt;b&gt;&amp;&quot;</code>" in table.data
    assert "<b>" not in table.data


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None])
def test_only_finite_numbers_are_recorded(value: Any) -> None:
    with pytest.raises(ValueError, match="only a finite number"):
        toy().glue("mean", value)


def test_a_number_may_come_from_elsewhere_than_its_page(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(notebook, "display", lambda *_, metadata, **__: shown.append(metadata["interleave"]))
    toy().glue("seconds", 2.0, unit="s", mark="measured-cpu")
    toy().glue("mean", 2.0)
    assert [one["number"].get("mark") for one in shown] == ["measured-cpu", None]
    with pytest.raises(ValueError, match="did you mean 'measured-cpu'"):
        toy().glue("seconds", 2.0, mark="measured_cpu")


def test_a_number_keeps_the_range_of_its_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(notebook, "display", lambda *_, metadata, **__: shown.append(metadata["interleave"]))
    toy().glue("seconds", 2.0, digits=3, band=(1, 4.0))
    toy().glue("seconds", 2.0, band=(2.0, 2.0))  # one run has no range
    first, second = (one["number"] for one in shown)
    assert {name: first[name] for name in ("low", "high", "digits")} == {"low": 1.0, "high": 4.0, "digits": 3}
    assert "low" not in second


def test_a_table_is_shown_with_its_caption(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(notebook, "display", lambda thing, **_: shown.append(thing.data))
    toy().table(pd.DataFrame({"n": [1.234]}), digits=2, caption="What `toy` counts.")
    toy().table(pd.DataFrame({"n": [1.234]}))
    assert shown[0].startswith("<table><caption>What <code>toy</code> counts.</caption>")
    assert "<td>1.2</td>" in shown[0]
    assert "caption" not in shown[1]


def test_a_figure_needs_its_texts() -> None:
    with pytest.raises(ValueError, match="needs an alt text and a caption"):
        toy().figure("line", None, alt=" ", caption="It rises.")  # type: ignore[arg-type]
