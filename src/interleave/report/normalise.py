"""Makes an executed notebook the same bytes whenever and wherever the same things came out of it.

Removes what depends on the moment or the machine (times, addresses, papermill's block, message
boundaries); adds our provenance block. Judges nothing: `checks.py` does.
"""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any

import nbformat
from nbformat import NotebookNode

from interleave.report.source import CAPTION_ROLE, INJECTED_TAG

KERNELSPEC = {"display_name": "Python 3", "language": "python", "name": "python3"}
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]{6,16}")
_STYLED_TABLE = re.compile(r"\bT_[0-9a-f]{5}(?=_|\b)")  # pandas draws the id of a styled table at random
_OVERWRITTEN = re.compile(r"[^\n\r]*\r(?=[^\n])")
_BACKSPACE = re.compile(r"[^\n]\x08")


def normalise(executed: NotebookNode, provenance: dict[str, Any]) -> NotebookNode:
    """A copy of `executed` with `provenance` as its `interleave` block, free of times and places."""
    notebook = deepcopy(executed)
    notebook.metadata = nbformat.from_dict(
        {"kernelspec": KERNELSPEC, "language_info": {"name": "python"}, "interleave": provenance}
    )
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for number, cell in enumerate(notebook.cells):
        cell.metadata.pop("papermill", None)
        cell.metadata.pop("execution", None)
        if not cell.metadata.get("tags"):
            cell.metadata.pop("tags", None)
        if INJECTED_TAG in cell.metadata.get("tags", []):
            cell["id"] = INJECTED_TAG
        elif not cell.get("id"):
            cell["id"] = f"cell-{number}"
        if cell.cell_type == "code":
            cell.outputs = _outputs(cell.outputs)
    return notebook


def as_text(notebook: NotebookNode) -> str:
    """The bytes to store: sorted keys, one newline at the end."""
    return nbformat.writes(notebook).rstrip("\n") + "\n"


def _outputs(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Streams of one name merged where they first appear; carriage returns and addresses resolved."""
    kept: list[NotebookNode] = []
    streams: dict[str, NotebookNode] = {}
    for output in outputs:
        if output.get("metadata", {}).get("interleave", {}).get("role") == CAPTION_ROLE:
            continue
        if output.output_type != "stream":
            _strip_chance(output)
            kept.append(output)
        elif output.name in streams:
            streams[output.name].text += output.text
        else:
            streams[output.name] = output
            kept.append(output)
    for stream in streams.values():
        text = _ADDRESS.sub("", _OVERWRITTEN.sub("", stream.text))
        while _BACKSPACE.search(text):
            text = _BACKSPACE.sub("", text)
        stream.text = text
    return kept


def _strip_chance(output: NotebookNode) -> None:
    data = output.get("data", {})
    for mime in ("text/plain", "text/html", "text/markdown"):
        if isinstance(data.get(mime), str):
            data[mime] = _STYLED_TABLE.sub("T_table", _ADDRESS.sub("", data[mime]))
