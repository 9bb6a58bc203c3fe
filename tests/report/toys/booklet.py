"""A copy of the real book with one small executed notebook added, for tests that build it."""

from __future__ import annotations

import base64
import shutil
import struct
import zlib
from pathlib import Path

import nbformat
import yaml
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from toys.peers import document, store

from interleave.lab.peers.engines import OURS, PEERS
from interleave.report.marks import badge_html
from interleave.report.simulated import EXPLORER, SIMULATED, TIMELINE, Simulation

ROOT = Path(__file__).resolve().parents[3]
TOY = "99_toy"
CSV = '<a download="toy-square.csv" href="data:text/csv;base64,eAox">CSV</a>'
QUOTE = """
::::{measured} toy.answer
A toy took {value}`toy.answer`; see the {evidence}`toy.square`.
::::
"""


def png(side: int = 4) -> str:
    """A white square, as base64."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    pixels = zlib.compress(b"".join(b"\0" + b"\xff" * side for _ in range(side)))
    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    return base64.b64encode(data).decode()


def toy_notebook() -> nbformat.NotebookNode:
    """An executed page: a formula, a number from the values, a figure with its text, a table."""
    figure = new_output(
        "display_data",
        data={"image/png": png(), "text/plain": "<Figure>"},
        metadata={
            "image/png": {"alt": "a white square", "caption": f"Nothing moves. {CSV}"},
            "interleave": {"figure": "square"},
        },
    )
    table = new_output(
        "display_data",
        data={
            "text/html": f"<table><tr><th>x</th></tr><tr><td>1 {badge_html('measured-cpu')}</td></tr></table>"
        },
    )
    markdown = (
        "# A toy\n\n## Result\n\nThere are {value}`trace.prompt_tokens_32` tokens and $n \\le 4$; "
        "it took {value}`toy.answer`."
    )
    return new_notebook(
        cells=[
            new_markdown_cell(markdown, id="title"),
            new_code_cell("figure()", outputs=[figure], execution_count=1, id="figure"),
            new_code_cell("table()", outputs=[table], execution_count=2, id="table"),
        ],
        metadata={
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
            "interleave": {
                "device": "a small CPU",
                "driver": None,
                "duration_s": 1.5,
                "commit": "0123456789abcdef",
                "numbers": {"answer": {"value": 42, "unit": "s", "text": "42 s"}},
            },
        },
    )


def copy_of_the_book(root: Path) -> Path:
    """The book's sources with a toy page listed, and quoted on the front page, simulations of today's code, and a
    comparison stored, beside a virtual environment that holds pages of its own."""
    for name in ("_config.yml", "_toc.yml"):
        shutil.copy(ROOT / name, root / name)
    shutil.copytree(ROOT / "book", root / "book", ignore=shutil.ignore_patterns("pages", "__pycache__"))
    shutil.copytree(ROOT / SIMULATED, root / SIMULATED)
    for simulation in (EXPLORER, TIMELINE):
        say_it_was_made_by(root, simulation, simulation.code())
    front = root / "book/index.md"
    front.write_text(f"{front.read_text()}{QUOTE}")
    toc = yaml.safe_load((root / "_toc.yml").read_text())
    toc["parts"].insert(0, {"caption": "Toys", "chapters": [{"file": f"book/pages/{TOY}"}]})
    (root / "_toc.yml").write_text(yaml.safe_dump(toc, sort_keys=False))
    runs = yaml.safe_load((root / "book/runs.yml").read_text())
    runs.append({"notebook": TOY, "experiment": "toy", "title": "A toy"})
    (root / "book/runs.yml").write_text(yaml.safe_dump(runs))
    write_toy(root, toy_notebook())
    store(root, document(checks={name: [[1, 2]] for name in (OURS, *PEERS)}))
    package = root / ".venv/lib/python3.11/site-packages/somebody"
    package.mkdir(parents=True)
    (package / "README.md").write_text("# One\n\n### Three\n\n[dead](gone.md)")
    nbformat.write(new_notebook(cells=[new_markdown_cell("#### Deep")]), package / "demo.ipynb")
    return root


def say_it_was_made_by(root: Path, simulation: Simulation, code: str) -> None:
    """Give the stored document another hash of its code."""
    path = root / simulation.path
    path.write_text(path.read_text().replace(simulation.read(path)["code"], code))


def write_toy(root: Path, notebook: nbformat.NotebookNode) -> None:
    path = root / "book/executed/cpu" / f"{TOY}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)
