"""The checker of a built site, on small sites written by hand: what it must find and what it must allow."""

from __future__ import annotations

from pathlib import Path

import pytest

from interleave.report.site import check_site, remote_in_css, remote_in_js

GOOD = """<!DOCTYPE html><html><head>
<link rel="stylesheet" href="style.css"><link rel="canonical" href="https://example.org/page">
<script src="local.js?v=1"></script></head>
<body><a href="https://example.org">out</a><a href="#here">down</a><a href="other.html#there">over</a>
<article><h1 id="here">One</h1><h2>Two</h2><img src="a.png" alt="a falling line"></article></body></html>
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site with nothing wrong; tests add one thing to page.html."""
    (tmp_path / "page.html").write_text(GOOD)
    (tmp_path / "other.html").write_text('<html><body><p id="there">x</p></body></html>')
    (tmp_path / "style.css").write_text("/* see https://example.org */ p { background: url('a.png') }")
    (tmp_path / "local.js").write_text("// https://example.org\nconst svg = 'http://www.w3.org/2000/svg';")
    (tmp_path / "a.png").write_bytes(b"")
    return tmp_path


def test_a_site_that_stands_alone_passes(site: Path) -> None:
    assert check_site(site) == []


@pytest.mark.parametrize(
    ("markup", "complaint"),
    [
        ('<script src="https://cdn.example.org/x.js"></script>', "loads https://cdn.example.org/x.js"),
        ('<script src="//cdn.example.org/x.js"></script>', "loads //cdn.example.org/x.js"),
        ('<link rel="preconnect" href="https://fonts.example.org">', "loads https://fonts.example.org"),
        ('<link rel="stylesheet" href="http://example.org/x.css">', "loads http://example.org/x.css"),
        ('<img alt="a line" src="http://example.org/x.png">', "loads http://example.org/x.png"),
        ('<img alt="a line" srcset="https://example.org/x.png 2x">', "loads https://example.org/x.png"),
        ('<iframe src="https://example.org/video"></iframe>', "loads https://example.org/video"),
        ("<style>@import url(https://example.org/f.css);</style>", "loads https://example.org/f.css"),
        ('<p style="background:url(//example.org/b.png)">x</p>', "loads //example.org/b.png"),
        ('<script>fetch("https://example.org/data.json")</script>', "loads https://example.org/data.json"),
        (
            '<script type="module">import "https://esm.example.org/a"</script>',
            "loads https://esm.example.org/a",
        ),
        ('<a href="gone.html">x</a>', "dead link: gone.html"),
        ('<a href="#nowhere">x</a>', "dead link: #nowhere (no such place on that page)"),
        ('<a href="other.html#nowhere">x</a>', "dead link: other.html#nowhere"),
        ('<img src="gone.png" alt="a line">', "dead link: gone.png"),
        ('<img src="a.png">', "picture 'a.png' has no alt text"),
        ('<img src="a.png" alt=" ">', "picture 'a.png' has no alt text"),
        ('<img src="a.png" alt="images/a.png">', "picture 'a.png' has no alt text"),
        ("<article><h1>One</h1><h3>Three</h3></article>", "jumps from heading level 1 to 3"),
        ("<article><h1>One</h1><h1>Another</h1></article>", "has 3 first-level headings"),
    ],
)
def test_each_fault_is_found_once(site: Path, markup: str, complaint: str) -> None:
    page = site / "page.html"
    page.write_text(page.read_text().replace("</body>", f"{markup}</body>"))
    found = [problem for problem in check_site(site) if complaint in problem]
    assert len(found) == 1, check_site(site)
    assert found[0].startswith("page.html: ")


def test_style_sheets_and_scripts_of_their_own_are_read(site: Path) -> None:
    (site / "style.css").write_text("@font-face { src: url(https://fonts.example.org/a.woff2) }")
    (site / "local.js").write_text("s.src = 'https://cdn.example.org/lib.js'")
    assert check_site(site) == [
        "style.css: loads https://fonts.example.org/a.woff2 from a network",
        "local.js: loads https://cdn.example.org/lib.js from a network",
    ]


def test_an_empty_folder_is_no_site(tmp_path: Path) -> None:
    assert check_site(tmp_path) == [f"{tmp_path}: holds no HTML file"]


def test_addresses_that_are_only_mentioned_are_allowed() -> None:
    assert remote_in_css("/* @import url(https://example.org/a.css) */ a { color: red }") == []
    assert remote_in_js("/* docs: https://example.org/a */ x = 'http://www.w3.org/1998/Math/MathML'") == []
