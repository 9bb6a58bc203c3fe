"""Sphinx extension: what carries a sentence, and whether it still does.

- ``{evidence}`arrival_curves.curves` `` links to that figure of that chapter, and to what it draws as CSV;
- a page that quotes a chapter which is out of date (a number, a drawing) says so under its title.

Reads what `interleave_values` loaded; knows no results.
"""

from __future__ import annotations

from html import escape
from typing import Any

from docutils import nodes
from interleave_values import FROM, VALUES_FILE, nearest
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxRole

from interleave.report.status import BADGE


class Evidence(SphinxRole):
    """Links to a figure and its data; an unknown name is an error with the nearest one."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        self.env.note_dependency(VALUES_FILE)
        figures = self.config.interleave_values.get("figures", {})
        if self.text not in figures:
            message = f"no figure is called {self.text!r}{nearest(self.text, figures)}"
            return [], [self.inliner.reporter.error(message, line=self.lineno)]
        spec = figures[self.text]
        shown = [link(self.env.docname, f"figure in {spec['title']}", spec["page"], spec["place"])]
        if csv := spec["csv"]:
            data = f'<a download="{escape(csv["file"])}" href="{csv["data"]}">CSV</a>'
            shown += [nodes.Text(" ("), nodes.raw("", data, format="html"), nodes.Text(")")]
        return [nodes.inline("", "", *shown, classes=["il-evidence"])], []


def link(docname: str, text: str, page: str, place: str = "") -> nodes.reference:
    address = f"{docname.count('/') * '../'}{page}.html{place and '#'}{place}"
    return nodes.reference("", text, refuri=address, internal=True)


def warn_of_stale(app: Sphinx, doctree: nodes.document) -> None:
    """The box under the title of a page that quotes others which are out of date."""
    docname = app.env.docname
    stale = app.config.interleave_values.get("stale", {})
    classes = {name for node in doctree.findall(nodes.Element) for name in node.get("classes", ())}
    quoted = [name for name in stale if FROM + name in classes and stale[name]["page"] != docname]
    if not quoted:
        return
    told = nodes.paragraph("", "Out of date: ")
    for name in quoted:
        told += [nodes.Text("; ")] if name != quoted[0] else []
        told += [
            link(docname, stale[name]["title"], stale[name]["page"]),
            nodes.Text(f" ({stale[name]['state']})"),
        ]
    told += nodes.Text(". Each says at its top what has changed since it was measured.")
    box = nodes.admonition("", nodes.title("", "Not all numbers on this page are up to date"), told)
    box["classes"] += ["warning", BADGE, *(f"{BADGE}-{name}" for name in quoted)]
    section = next(iter(doctree.findall(nodes.section)))
    section.insert(1, box)


def setup(app: Sphinx) -> dict[str, Any]:
    app.setup_extension("interleave_values")
    app.add_role("evidence", Evidence())
    app.connect("doctree-read", warn_of_stale)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
