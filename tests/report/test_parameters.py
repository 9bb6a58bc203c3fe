"""What a person types becomes the experiment's parameters, or one message that says what is allowed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from toys import counting

from interleave.report.parameter_docs import parameter_table
from interleave.report.parameters import (
    ParameterError,
    load_experiment,
    notebook_model,
    pairs_to_dict,
    read_parameter_file,
    read_source,
    validate,
)
from interleave.report.source import NotebookError

MODEL = notebook_model(counting)
Writer = Callable[..., Path]


def value_of(name: str, given: Any) -> Any:
    return getattr(validate({name: given}, MODEL, "01_toy"), name)


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("rows", "16", 16),
        ("rows", "1e1", 10),
        ("budget", "null", None),
        ("budget", "1e3", 1000),
        ("loads", "[1, 2e0]", (1.0, 2.0)),
        ("sizes", "[1e3, 2]", (1000, 2)),
        ("sizes", [4, 5], (4, 5)),
        ("engines", "[chunked, paged]", ("chunked", "paged")),
        ("label", "rate=2", "rate=2"),
        ("label", "1e3", "1e3"),
        ("label", "null", "null"),
        ("label", "no", "no"),
        ("label", "[unclosed", "[unclosed"),
        ("note", "null", None),
        ("note", "2026-11-29", "2026-11-29"),
        ("weights", "{a: 1}", {"a": 1}),
        ("weights", '{"a": 1}', {"a": 1}),
        ("rate", "2", 2.0),
        ("rate", 3, 3.0),
        ("flag", "false", False),
    ],
)
def test_text_takes_the_type_of_the_parameter(name: str, given: Any, expected: Any) -> None:
    result = value_of(name, given)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("rows", "0", r"'rows' = 0: .*greater than or equal to 1.*type int, default 8, range >= 1 and <= 64, unit requests"),
        ("rows", "8.5", "'rows' = 8.5: .*valid integer"),
        ("rows", "", "'rows' = '': .*valid integer"),
        ("rows", "null", "'rows' = null: .*valid integer"),
        ("rows", True, "'rows' = True: .*valid integer"),
        ("budget", "x", "'budget' = x: .*valid integer.*type int or null, default null, range > 0"),
        ("loads", "0.5", "'loads' = 0.5: .*list of float"),
        ("loads", "[]", "'loads' = .*at least 1 item"),
        ("sizes", "[1, 0]", "item 1: .*greater than or equal to 1"),
        ("engines", "[pagd]", "did you mean 'paged'"),
        ("rate", "nan", "'rate' = nan: is not a finite number"),
        ("rate", "-inf", "not a finite number"),
        ("rate", ".inf", "not a finite number"),
        ("rate", "1e999", "not a finite number"),
        ("rate", float("nan"), "not a finite number"),
        ("loads", "[1, .nan]", "not a finite number"),
        ("flag", "no", "'flag' = no: .*valid boolean"),
        ("rate", object(), "no parameter takes"),
        ("sizes", "[1, 1]", "holds 1 twice"),
        ("loads", "[]", "needs at least 1 item"),
        ("sizes", "8", "expected a list in brackets"),
        ("profile", "cpx", "did you mean 'cpu'"),
        ("row", "3", "no parameter 'row'; did you mean 'rows'.*type int, default 8, range >= 1 and <= 64"),
        ("zzz", "3", "no parameter 'zzz'. It has: rows, budget"),
    ],
)  # fmt: skip
def test_refused_with_what_is_allowed(name: str, given: Any, said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        value_of(name, given)


def test_every_problem_is_listed_at_once() -> None:
    with pytest.raises(ParameterError) as caught:
        validate({"rows": "0", "flg": "1"}, MODEL, "01_toy")
    assert len(str(caught.value).splitlines()) == 2


def test_table_lists_type_default_range_unit_and_meaning() -> None:
    lines = parameter_table(MODEL).splitlines()
    assert lines[0].split() == ["name", "type", "default", "range", "unit", "description"]
    row = next(line for line in lines if line.startswith("rows"))
    assert row.split() == "rows int 8 >= 1 and <= 64 requests most rows".split()
    assert any("list of str" in line and "paged | chunked" in line for line in lines)
    assert len(lines) == 2 + len(MODEL.model_fields)


@pytest.mark.parametrize("name", ["values.yaml", "values.json"])
def test_parameter_files(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    given = {"rows": 4, "budget": None, "sizes": [1, 2]}
    path.write_text(
        json.dumps(given) if name.endswith("json") else "rows: 4\nbudget:\nsizes: [1, 2]\nrate: 1e3\n"
    )
    values = read_parameter_file(path)
    assert {key: values[key] for key in given} == given
    if name.endswith("yaml"):
        assert values["rate"] == 1000.0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- 1\n- 2\n", "mapping"),
        ("rows: 1\nrows: 2\n", "occurs twice"),
        ("rows: [1\n", "line 2"),
        ("3: 4\n", "mapping"),
        ("rows: !!python/object:os.system x\n", "an explicit tag"),
    ],
)
def test_broken_parameter_files_are_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "values.yaml"
    path.write_text(text)
    with pytest.raises(ParameterError, match=said) as caught:
        read_parameter_file(path)
    assert "values.yaml" in str(caught.value)


def test_missing_parameter_file(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"nothing\.yaml"):
        read_parameter_file(tmp_path / "nothing.yaml")


def test_a_parameter_given_twice_is_refused() -> None:
    with pytest.raises(ParameterError, match="'rows' is given twice"):
        pairs_to_dict([("rows", "1"), ("rows", "2")])


def test_source_reads_annotations_and_equal_signs(write_notebook: Writer) -> None:
    source = read_source(write_notebook())
    assert source.experiment_name == "toys.counting"
    assert source.defaults["budget"] is None
    assert source.defaults["label"] == "a=b"


@pytest.mark.parametrize(
    ("defaults", "said"),
    [
        ("rows = 9", "'rows' is 9 in the cell and 8 in Params"),
        ("rows = 8\nroes = 1", "'roes' is not a field of Params"),
        ("rows = 8", "'budget' is missing from the cell"),
        ("rows = 4 * 2", "line 1: the value of 'rows' is not a literal"),
        ("import os", "line 1: only `name = literal`"),
        ("a = b = 1", "line 1: only `name = literal`"),
        ("rows: int", "line 1: only `name = literal`"),
        ("rows = 8\nrows = 8", "line 2: 'rows' is assigned twice"),
        ("rows = ", "not Python"),
    ],
)
def test_parameters_cell_must_agree_with_the_model(write_notebook: Writer, defaults: str, said: str) -> None:
    with pytest.raises(NotebookError, match=said):
        read_source(write_notebook(defaults=defaults))


def test_one_parameters_cell_and_it_comes_first(write_notebook: Writer) -> None:
    import nbformat

    path = write_notebook()
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[1].metadata["tags"] = []
    nbformat.write(notebook, path)
    with pytest.raises(NotebookError, match="0 cells are tagged"):
        read_source(path)
    notebook.cells[2].metadata["tags"] = ["parameters"]
    nbformat.write(notebook, path)
    with pytest.raises(NotebookError, match="first code cell"):
        read_source(path)
    notebook.cells[1].metadata["tags"] = ["parameters"]
    nbformat.write(notebook, path)
    with pytest.raises(NotebookError, match="2 cells are tagged"):
        read_source(path)


def test_unknown_experiment_and_broken_files(write_notebook: Writer, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="unknown experiment 'nonesuch'"):
        read_source(write_notebook(experiment="nonesuch"))
    broken = tmp_path / "02_broken.ipynb"
    broken.write_text("{")
    with pytest.raises(NotebookError, match=r"02_broken\.ipynb is not a valid notebook"):
        read_source(broken)
    with pytest.raises(NotebookError, match="cannot read"):
        read_source(tmp_path / "03_absent.ipynb")


def test_parameters_that_do_not_go_together_are_refused_in_the_experiments_words() -> None:
    model = notebook_model(load_experiment("kernel_layout"))
    assert validate({"dtype": "fp16", "device": "cuda"}, model, "01_kernel_layout")
    with pytest.raises(ParameterError, match=r"^dtype fp16 needs device cuda"):
        validate({"dtype": "fp16"}, model, "01_kernel_layout")
