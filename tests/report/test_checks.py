"""The gate before publication, and what normalising leaves: notebooks as data, no kernel."""

from __future__ import annotations

from typing import Any

import nbformat
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from interleave.report.checks import faults, run_faults
from interleave.report.normalise import as_text, normalise


def executed(*outputs: NotebookNode, source: str = "show()", **metadata: Any) -> NotebookNode:
    cell = new_code_cell(source, execution_count=1, outputs=list(outputs), metadata=metadata, id="code")
    return new_notebook(cells=[new_markdown_cell("# Title", id="title"), cell])


def stream(text: str, name: str = "stdout") -> NotebookNode:
    return new_output("stream", name=name, text=text)


def data(mime: str, content: str = "x", **metadata: Any) -> NotebookNode:
    return new_output("display_data", data={mime: content}, metadata=metadata)


def recorded(name: str, value: Any) -> NotebookNode:
    number = {"name": name, "value": value, "unit": "", "text": str(value)}
    return data("application/papermill.record/text/plain", interleave={"number": number})


PICTURE = data("image/png", "aGk=", **{"image/png": {"alt": "a line"}}, interleave={"figure": "line"})


def test_a_sound_page_passes() -> None:
    source = "run.figure('line', f, alt='', caption='')\nrun.glue('mean', 1.0)"
    assert (
        faults(
            executed(stream("3.2 tokens/s/row, image/png\n"), PICTURE, recorded("mean", 1.0), source=source)
        )
        == []
    )


@pytest.mark.parametrize(
    ("notebook", "said"),
    [
        (executed(stream("oops", "stderr")), "stderr"),
        (executed(new_output("error", ename="E", evalue="no", traceback=["no"])), "stored error"),
        (executed(data("application/vnd.jupyter.widget-view+json")), "widget-view"),
        (executed(data("image/png", "aGk=")), "alt"),
        (executed(stream("see /home/ada/x.csv")), "absolute path in the output: /home/ada/x.csv"),
        (executed(data("text/html", "<a href='/tmp/run/a.csv'>")), "/tmp/run/a.csv"),
        (executed(data("text/plain", r"C:\Users\ada\x")), "absolute path"),
        (executed(source="run.figure('line', f)"), "figure 'line' is declared"),
        (executed(source="run.glue('mean', 1)"), "number 'mean' is declared"),
        (executed(recorded("mean", float("nan"))), "'mean' is nan, which is not finite"),
        (executed(recorded("mean", None)), "'mean' is None"),
    ],
)
def test_what_keeps_a_page_back(notebook: NotebookNode, said: str) -> None:
    assert any(said in fault for fault in faults(notebook)), faults(notebook)


def test_an_unexecuted_cell_keeps_a_page_back() -> None:
    notebook = executed()
    notebook.cells[1].execution_count = None
    assert any("not executed" in fault for fault in faults(notebook))


@pytest.mark.parametrize(
    "text", ["https://example.org/home/x", "a/tmp/b", "</td></tr>", "1/s", "~/home/x", "KV/tmp"]
)
def test_what_is_no_absolute_path(text: str) -> None:
    assert run_faults(executed(stream(text))) == []


def test_normalising_removes_times_places_and_message_boundaries() -> None:
    notebook = executed(
        stream("a\n"),
        stream("warn", "stderr"),
        stream("10%\r20%\rb\n"),
        data("text/plain", "<Axes at 0x7f00deadbeef>"),
        data("text/html", '<style>#T_1a2b3_row0 {}</style><table id="T_1a2b3">'),
        data("text/markdown", "It rises.", interleave={"role": "caption"}),
        tags=[],
        papermill={"start_time": "now"},
        execution={"iopub.status.busy": "now"},
    )
    notebook.metadata = nbformat.from_dict(
        {"papermill": {"input_path": "/tmp/x"}, "kernelspec": {"name": "mine"}}
    )
    notebook.cells[1].pop("id")
    result = normalise(notebook, {"experiment": "toy"})
    assert set(result.metadata) == {"kernelspec", "language_info", "interleave"}
    assert result.metadata.kernelspec.name == "python3"
    cell = result.cells[1]
    assert (cell["id"], cell.metadata) == ("cell-1", {})
    assert [output.get("text") for output in cell.outputs] == ["a\nb\n", "warn", None, None]
    assert cell.outputs[2].data["text/plain"] == "<Axes>"
    assert cell.outputs[3].data["text/html"] == '<style>#T_table_row0 {}</style><table id="T_table">'
    assert as_text(result) == as_text(normalise(result, {"experiment": "toy"}))
    assert "papermill" in notebook.metadata  # the original is left alone
