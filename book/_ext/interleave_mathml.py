"""Sphinx extension: LaTeX maths to MathML at build time, by docutils' own converter.

Nothing is left for a script to do in the browser. What the converter does not know is a warning (an error
in the strict build) that quotes the formula; the page then shows its source. Knows nothing of the report.
"""

from __future__ import annotations

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.locale import _
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number
from sphinx.writers.html5 import HTML5Translator

logger = logging.getLogger(__name__)


def convert(self: HTML5Translator, node: nodes.Element, as_block: bool) -> str:
    """MathML of `node`, or its escaped source after a warning."""
    source = node.astext()
    try:
        return tex2mathml(source, as_block=as_block)
    except (MathError, ValueError, IndexError, AttributeError) as error:
        logger.warning("cannot convert to MathML: %s (%s)", source, error, location=node, type="mathml")
        return f"<code>{self.encode(source)}</code>"


def visit_math(self: HTML5Translator, node: nodes.math) -> None:
    self.body.append(f'<span class="il-math">{convert(self, node, False)}</span>')
    raise nodes.SkipNode


def visit_displaymath(self: HTML5Translator, node: nodes.math_block) -> None:
    self.body.append(self.starttag(node, "div", CLASS="il-math-block"))
    if node["number"]:
        number = get_node_equation_number(self, node)
        self.body.append(f'<span class="eqno">({number})')
        self.add_permalink_ref(node, _("Link to this equation"))
        self.body.append("</span>")
    self.body.append(convert(self, node, True))
    self.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_displaymath, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
