"""Tables of cell outputs, as pandas and people write them, rewritten to the book's look."""

from __future__ import annotations

import pandas as pd
import pytest

from interleave.report.marks import badge_html
from interleave.report.tables import Cell, tidy_tables

FRAME = pd.DataFrame({"engine": ["paged", "mixed"], "rate [1/s]": [3.9, None], "wait [s]": [1200, 7]})
TIDY = """\
<div class="pst-scrollable-table-container"><table class="table">
<thead>
<tr><th>engine</th><th class="text-right">rate [1/s]</th><th class="text-right">wait [s]</th></tr>
</thead>
<tbody>
<tr><td>paged</td><td class="text-right">3.90</td><td class="text-right">1,200</td></tr>
<tr><td>mixed</td><td class="text-right">–</td><td class="text-right">7</td></tr>
</tbody>
</table></div>"""


def test_a_styled_frame_loses_its_random_names() -> None:
    style = FRAME.style.hide(axis="index").format({"rate [1/s]": "{:.2f}", "wait [s]": "{:,}"}, na_rep="–")
    assert tidy_tables(style.to_html()).strip() == TIDY


def test_a_plain_frame_comes_out_the_same() -> None:
    formats = {"rate [1/s]": "{:.2f}".format, "wait [s]": "{:,}".format}
    assert tidy_tables(FRAME.to_html(index=False, formatters=formats, na_rep="–")) == TIDY


@pytest.mark.parametrize(
    "text", ["3", "-3.5", "1,024", "1e-3", "12 ms", "37%", "2.1×", "–", "", "4 requests"]
)
def test_numbers_go_right(text: str) -> None:
    assert Cell("td", text).is_number
    assert Cell("td", f"<strong>{text}</strong> {badge_html('simulated')}").is_number


@pytest.mark.parametrize("text", ["paged", "0.63 of capacity", "2026-11-29", "v2", "1 of 3", "none"])
def test_words_stay_left(text: str) -> None:
    assert not Cell("td", text).is_number


def test_our_classes_and_what_cells_hold_stay() -> None:
    html = tidy_tables(
        '<p>x</p><table class="il-closing big" id="t"><tr><th>n</th><td><code>1</code></td></tr></table>'
    )
    assert html.startswith(
        '<p>x</p><div class="pst-scrollable-table-container"><table class="table il-closing">'
    )
    assert "<tr><th>n</th><td><code>1</code></td></tr>" in html
    assert "<thead>" not in html


def test_a_caption_stays_above_the_head() -> None:
    formats = {"rate [1/s]": "{:.2f}".format, "wait [s]": "{:,}".format}
    plain = FRAME.to_html(index=False, formatters=formats, na_rep="–")
    html = tidy_tables(
        plain.replace("<thead>", '<caption class="x">Under <code>paged</code></caption><thead>')
    )
    assert html == TIDY.replace("<thead>", "<caption>Under <code>paged</code></caption>\n<thead>")


def test_spanning_cells_keep_their_spans() -> None:
    html = tidy_tables('<table><tr><th colspan="2">both</th></tr><tr><td>1</td><td>2</td></tr></table>')
    assert '<th colspan="2">both</th>' in html
    assert "text-right" not in html
