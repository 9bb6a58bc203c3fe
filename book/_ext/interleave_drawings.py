"""Sphinx extension: a drawing that readers play with, and the still picture that stays without a script.

``{drawing} name`` puts in the picture with its caption and mark, an empty place, and the data as JSON in the page
itself (a page opened from a file may fetch nothing). Its scripts in `_static` are loaded on that page only; the
last one fills the place and hides the picture, and with ``:brief:`` leaves out what is there to play with. Where
other code than today's simulated what is drawn, a box above it says so. Reads what `interleave_values` loaded; knows
no results.
"""

from __future__ import annotations

from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from interleave_values import FROM, VALUES_FILE, badge, nearest
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from interleave.report.status import BADGE

SCRIPTS = {
    "explorer": ("drawing.js", "explorer_chart.js", "explorer.js"),
    "timeline": ("drawing.js", "timeline_panel.js", "timeline.js"),
}
OUTDATED = "Other code than today's simulated it, and every number on this page that is taken from it: "


class Drawing(SphinxDirective):
    """The drawing called by its argument; an unknown name is an error with the nearest one."""

    required_arguments = 1
    option_spec: ClassVar[dict[str, Any]] = {"brief": directives.flag}

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(VALUES_FILE)
        known = self.config.interleave_values.get("drawings", {})
        name = self.arguments[0]
        if name not in known:
            raise self.error(f"no drawing is called {name!r}{nearest(name, known)}")
        spec = known[name]
        brief = " data-brief" if "brief" in self.options else ""
        place = f'<div class="il-play" id="il-{name}"{brief} hidden></div>'
        data = f'<script type="application/json" id="il-{name}-data">{spec["json"]}</script>'
        shown = [nodes.raw("", place + data, format="html"), self.still(name, spec)]
        return [self.outdated(name, spec["stale"]), *shown] if spec["stale"] else shown

    def outdated(self, name: str, command: str) -> nodes.admonition:
        """command: makes anew what is drawn."""
        told = nodes.paragraph("", OUTDATED)
        told += [nodes.literal("", command), nodes.Text(" makes it anew.")]
        box = nodes.admonition("", nodes.title("", "This drawing is not up to date"), told)
        box["classes"] += ["warning", BADGE, f"{BADGE}-{name}"]
        return box

    def still(self, name: str, spec: dict[str, Any]) -> nodes.figure:
        picture = nodes.image("", uri=f"/book/{spec['picture']}", alt=spec["alt"])
        self.env.note_dependency(f"book/{spec['picture']}")
        caption = nodes.caption("", f"{spec['caption']} ", badge(spec["mark"]))
        still = nodes.figure("", picture, caption, classes=["il-still"], ids=[f"il-{name}-still"])
        still["il-drawing"] = name
        still["classes"].append(FROM + (spec["experiment"] or name))
        return still


def add_scripts(app: Sphinx, pagename: str, template: str, context: dict, doctree: Any) -> None:
    """The scripts of a drawing, on the page that has it."""
    for figure in doctree.findall(nodes.figure) if doctree else ():
        if name := figure.get("il-drawing"):
            for script in SCRIPTS[name]:
                app.add_js_file(script, loading_method="defer")


def setup(app: Sphinx) -> dict[str, bool]:
    app.setup_extension("interleave_values")
    app.add_directive("drawing", Drawing)
    app.connect("html-page-context", add_scripts)
    app.add_js_file("access.js", loading_method="defer")  # on every page
    return {"parallel_read_safe": True, "parallel_write_safe": True}
