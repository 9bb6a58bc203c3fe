"""Sphinx extension: numbers, tables and conditions that come from results, and the marks beside them.

Reads one generated file (`_build/values.json`, written by `interleave.report.book`) and nothing else:

- ``{value}`name` `` the text of a value and its mark; an unknown name is an error with the nearest one;
- ``{mark}`measured-cpu` `` a mark alone;
- ``::::{measured} name ...`` to ``::::`` its content, where this build has all of these (experiments, values);
- ``::::{unmeasured} name ...`` to ``::::`` its content, where it lacks at least one of them;
- ``{results-table} name`` a generated table;
- a link to ``pages/<notebook>.ipynb`` is its text alone where this build has no such page.

So no number is typed into prose, and no sentence about a result appears without the result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util.docutils import SphinxDirective, SphinxRole

from interleave.report.marks import find_mark

VALUES_FILE = "_build/values.json"
LONG = 40  # characters: a value of more may be broken over lines
FROM = "il-from-"  # with the experiment: the class of what shows a chapter's result
BLOCK = re.compile(
    r"^::::\{(?P<kind>measured|unmeasured)\} (?P<names>.*)\n(?P<body>(?:.*\n)*?)::::$", re.MULTILINE
)
LINK = re.compile(r"\[(?P<text>[^\]]*)\]\(pages/(?P<notebook>\w+)\.ipynb(?:#[^)]*)?\)")


def load(app: Sphinx, config: Config) -> None:
    """Read the values once per build; a preview and a try say on every page what they are."""
    path = Path(app.srcdir) / VALUES_FILE
    empty: dict[str, Any] = {"site": "book", "experiments": {}, "values": {}, "tables": {}}
    config.interleave_values = json.loads(path.read_text("utf8")) if path.is_file() else empty
    if announcement := config.interleave_values.get("announcement"):
        config.html_theme_options["announcement"] = announcement


def select(app: Sphinx, docname: str, source: list[str]) -> None:
    """Keep or blank out the conditional blocks of a page, before it is parsed, so that they may hold headings.

    Lines are blanked, not removed: warnings name the right ones. A link to the page of a listed experiment that
    this build lacks becomes its text.
    """
    app.env.note_dependency(VALUES_FILE)
    values = app.config.interleave_values
    have = {*values["experiments"], *values["values"]}

    def chosen(block: re.Match[str]) -> str:
        wanted = set(block["names"].split()) <= have
        keep = wanted if block["kind"] == "measured" else not wanted
        return f"\n{block['body']}" if keep else "\n" * block[0].count("\n")

    def linked(link: re.Match[str]) -> str:
        return link["text"] if link["notebook"] in values.get("unstaged", ()) else link[0]

    source[0] = LINK.sub(linked, BLOCK.sub(chosen, source[0]))


def nearest(name: str, known: dict[str, Any]) -> str:
    near = get_close_matches(name, known, 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def badge(name: str) -> nodes.Node:
    mark = find_mark(name)
    return nodes.abbreviation(
        "", mark.label, explanation=mark.meaning, classes=["il-mark", f"il-mark-{mark.name}"]
    )


class Mark(SphinxRole):
    """One of the four marks."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        try:
            return [badge(self.text)], []
        except ValueError as error:
            return [], [self.inliner.reporter.error(str(error), line=self.lineno)]


class Value(SphinxRole):
    """The text of one value, kept on one line; bold and with its mark unless it is exact."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        self.env.note_dependency(VALUES_FILE)
        values = self.config.interleave_values["values"]
        if self.text not in values:
            message = f"no value is called {self.text!r}{nearest(self.text, values)}"
            return [], [self.inliner.reporter.error(message, line=self.lineno)]
        value = values[self.text]
        node = nodes.inline("", "", classes=["il-value"])
        if len(value["text"]) > LONG:
            node["classes"].append("il-long")
        experiment = self.text.partition(".")[0]
        if value["mark"] is None:
            node += nodes.Text(value["text"])
        else:
            if experiment in self.config.interleave_values["experiments"]:
                node["classes"].append(FROM + experiment)
            node += nodes.strong("", value["text"])
            node += [nodes.Text("\N{NO-BREAK SPACE}"), badge(value["mark"])]
        return [node], []


def heading(cell: str | dict[str, str | None]) -> str | dict[str, str | None]:
    """A unit stays with the word before it; else a long heading may break, so that its column stays narrow."""
    return cell.replace(" [", "\N{NO-BREAK SPACE}[") if isinstance(cell, str) else cell


def unbroken(cell: str | dict[str, str | None]) -> str | dict[str, str | None]:
    """A number stays together with its unit; what stands in brackets behind it may go to the next line."""
    if isinstance(cell, str):
        return cell.replace(" ", "\N{NO-BREAK SPACE}").replace("\N{NO-BREAK SPACE}(", " (")
    return cell


class ResultsTable(SphinxDirective):
    """A table of the values file: `header`, `align` (left, right) and `rows` of cells.

    A cell is a text, or `{"text", "mark", "page"}` with a mark or a document to link to.
    """

    required_arguments = 1
    option_spec: ClassVar[dict[str, Any]] = {"caption": directives.unchanged}

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(VALUES_FILE)
        tables = self.config.interleave_values["tables"]
        name = self.arguments[0]
        if name not in tables:
            raise self.error(f"no table is called {name!r}{nearest(name, tables)}")
        spec = tables[name]
        table = nodes.table("", classes=["il-table"])
        if "caption" in self.options:
            table += nodes.title("", self.options["caption"])
        group = nodes.tgroup("", cols=len(spec["header"]))
        group += [nodes.colspec(colwidth=1) for _ in spec["header"]]
        group += nodes.thead("", self.row(spec["header"], spec["align"], heading))
        group += nodes.tbody("", *[self.row(row, spec["align"], unbroken) for row in spec["rows"]])
        table += group
        return [table]

    def row(self, cells: list[Any], align: list[str], joined: Callable[[Any], Any]) -> nodes.row:
        """joined: keeps together what belongs together in a cell of numbers."""
        row = nodes.row()
        for cell, side in zip(cells, align, strict=True):
            entry = nodes.entry("", classes=[f"text-{side}"])
            entry += self.cell(joined(cell) if side == "right" else cell)
            row += entry
        return row

    def cell(self, cell: str | dict[str, str | None]) -> nodes.paragraph:
        parts = {"text": cell, "mark": None, "page": None} if isinstance(cell, str) else cell
        text: nodes.Node = nodes.Text(parts["text"] or "")
        if parts.get("page"):
            base = self.env.docname.count("/") * "../"
            text = nodes.reference("", parts["text"], refuri=f"{base}{parts['page']}.html", internal=True)
        paragraph = nodes.paragraph("", "", text)
        if parts.get("mark"):
            paragraph += [nodes.Text("\N{NO-BREAK SPACE}"), badge(parts["mark"] or "")]
        return paragraph


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_config_value("interleave_values", None, "")
    app.connect("config-inited", load)
    app.connect("source-read", select)
    app.add_role("mark", Mark())
    app.add_role("value", Value())
    app.add_directive("results-table", ResultsTable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
