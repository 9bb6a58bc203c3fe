"""Numbers and frames as a page prints them."""

from __future__ import annotations

import pandas as pd
import pytest

from interleave.report.marks import Value, badge_html
from interleave.report.printed import marked, spoken, table_html


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (3.14159, 3, "3.14"),
        (1234.5, 2, "1,200"),
        (0.00123, 2, "0.0012"),
        (0.996, 2, "1.00"),
        (44048, 2, "44,048"),
        (0.0, 2, "0"),
        (-2.5, 2, "-2.5"),
        ("about a third", 2, "about a third"),
    ],
)
def test_numbers_in_prose(value: float | str, digits: int, text: str) -> None:
    assert spoken(value, digits) == text


def test_a_table_prints_dashes_for_missing_values_and_escapes_text() -> None:
    frame = pd.DataFrame({"engine": ["a<b", "c"], "wall [s]": [1.23456, None], "n": [3, 4]})
    assert table_html(frame) == (
        "<table><thead><tr><th>engine</th><th>wall [s]</th><th>n</th></tr></thead><tbody>"
        "<tr><td>a&lt;b</td><td>1.23</td><td>3</td></tr><tr><td>c</td><td>–</td><td>4</td></tr></tbody></table>"
    )


def test_a_value_has_its_mark_beside_it() -> None:
    frame = pd.DataFrame({"found": [Value("1.5 s", "simulated", "x"), Value("<3", None, "y")]})
    assert f"<td>1.5 s&nbsp;{badge_html('simulated')}</td>" in table_html(frame)
    assert "<td>&lt;3</td>" in table_html(frame)


def test_a_caption_says_what_a_table_holds() -> None:
    html = table_html(pd.DataFrame({"n": [1]}), caption="Below 3 < 4, under `paged` and `mixed`.")
    assert html.startswith(
        "<table><caption>Below 3 &lt; 4, under <code>paged</code> and <code>mixed</code>.</caption><thead>"
    )
    assert "<caption>" not in table_html(pd.DataFrame({"n": [1]}))


def test_a_column_from_elsewhere_is_marked_number_by_number() -> None:
    one, missing = marked([1234.56, float("nan")], "simulated", "x")
    assert (one.text, one.mark, missing.text) == ("1,230", "simulated", "–")


def test_a_table_fits_a_page() -> None:
    with pytest.raises(ValueError, match="7 columns; at most 6"):
        table_html(pd.DataFrame([range(7)]))
