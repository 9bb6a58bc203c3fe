"""The built book in a real browser, from the file system: silent, no wider than the screen, accessible, alive."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from toys.booklet import ROOT, TOY
from toys.browser import Browser

from interleave.report.book import documents

pytestmark = pytest.mark.browser

PROSE = [name for name in documents(yaml.safe_load((ROOT / "_toc.yml").read_text())) if "/pages/" not in name]
PAGES = [*(name.removeprefix("book/") for name in PROSE), f"pages/{TOY}"]
LOOKS = [(390, "light"), (390, "dark"), (1280, "light"), (1280, "dark")]
SCRIPTED = ("timeline", "explorer")
WITH_MATHS = {"ladder", "methods", "glossary", f"pages/{TOY}"}
AXE = (
    Path(__file__).parent / "vendor/axe.min.js"
)  # axe-core 4.14.1 as published, under the licences beside it
GRAVE = ("serious", "critical")
MEASURE = """const root = document.documentElement, maths = [...document.querySelectorAll("math")];
return { wide: root.scrollWidth - root.clientWidth, width: root.clientWidth, maths: maths.length,
  visible: maths.filter((m) => m.getBoundingClientRect().height > 0).length, theme: root.dataset.theme,
  badges: [...document.querySelectorAll(".il-stale")].filter((b) => b.getBoundingClientRect().height > 0).length,
  ground: getComputedStyle(document.body).backgroundColor,
  dead: [...document.images].filter((i) => i.complete && !i.naturalWidth && i.checkVisibility()).map((i) => i.src) };"""
AUDIT = """axe.run(document, { resultTypes: ["violations"] }).then((found) => done(found.violations.map((v) =>
  ({ impact: v.impact, id: v.id, help: v.help, nodes: v.nodes.map((n) => n.html.slice(0, 200)).slice(0, 3) }))));"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    session = Browser(tmp_path_factory.mktemp("profile"))
    yield session
    session.close()


@pytest.fixture
def opened(book: Path, browser: Browser) -> Callable[..., Browser]:
    """opened(page, width, theme) -> the browser, which had nothing to say about it."""

    def show(page: str, width: int = 1280, theme: str = "light", scripts: bool = True) -> Browser:
        assert browser.show(book / "_build/html/book" / f"{page}.html", width, theme, scripts) == []
        return browser

    return show


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize(("width", "theme"), LOOKS)
def test_a_page_fits_and_is_silent(
    opened: Callable[..., Browser], book: Path, page: str, width: int, theme: str
) -> None:
    html = (book / "_build/html/book" / f"{page}.html").read_text("utf8")
    facts = opened(page, width, theme).run(MEASURE)
    assert (facts["width"], facts["theme"], facts["dead"]) == (width, theme, [])
    assert facts["wide"] <= 0
    assert facts["visible"] == facts["maths"]
    assert (facts["maths"] > 0) == (page in WITH_MATHS)
    # No chapter of the copy has its points, so all are out of date: each says so, and so does a page that quotes one.
    quoted = set(re.findall(r"il-from-(\w+)", html)) - {"explorer", "timeline"}
    assert ("toy" in quoted) == (page in (f"pages/{TOY}", "index"))
    assert facts["badges"] == bool(quoted)
    dark = max(int(part) for part in re.findall(r"\d+", facts["ground"])[:3]) < 128
    assert dark == (theme == "dark")


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize(("width", "theme"), [(390, "dark"), (1280, "light")])
def test_no_grave_barrier(opened: Callable[..., Browser], page: str, width: int, theme: str) -> None:
    """By axe-core: contrast, names, roles, what the keyboard reaches."""
    session = opened(page, width, theme)
    session.run(AXE.read_text("utf8"))
    found = [fault for fault in session.wait(AUDIT) if fault["impact"] in GRAVE]
    assert found == [], json.dumps(found, indent=1)


def test_the_explorer_follows_the_keyboard(opened: Callable[..., Browser]) -> None:
    session = opened("explorer", 390, "dark")
    ring = "const r = document.querySelector('.il-ring'); return [r.dataset.x, r.dataset.y].map(Number)"
    before, numbers = session.run(ring), session.text(".il-numbers")
    assert "chunked, 512" in session.text(".il-sentence")
    session.press("#il-budget", "right", "right")
    after = session.run(ring)
    assert "chunked, 2048" in session.text(".il-sentence")
    assert session.text(".il-numbers") != numbers
    assert after[1] < before[1] - 10  # larger pieces, longer gaps: up
    session.press("#il-load", "right", "right", "right")
    assert "It cannot keep up" in session.text(".il-sentence")
    assert (
        session.run("return document.getElementById('il-load').getAttribute('aria-valuetext')")
        == "120% of capacity"
    )
    session.press("#il-policy", "whole")
    assert session.text(".il-sentence").startswith("whole: ")
    assert session.run("return document.getElementById('il-budget').disabled")
    session.press("#il-policy", "mixed")
    session.press("#il-share", "home")
    assert "0% of requests" in session.text(".il-controls")
    assert session.log() == []


def test_the_explorer_follows_the_mouse(opened: Callable[..., Browser]) -> None:
    session = opened("explorer")
    session.click('.il-dot[data-policy="mixed"][data-budget="256"]')
    assert session.text(".il-sentence").startswith("mixed, 256: ")
    assert session.run("return document.getElementById('il-policy').value") == "mixed"
    chart = session.run("return document.querySelector('.il-chart').innerHTML")
    session.run(
        "const s = document.getElementById('il-gap'); s.value = 'gap_p90_s'; s.dispatchEvent(new Event('change'))"
    )
    assert session.run("return document.querySelector('.il-chart').innerHTML") != chart


def test_the_explorer_shows_what_is_stored(opened: Callable[..., Browser], book: Path) -> None:
    session = opened("explorer")
    grid = json.loads((book / "data/results/simulated/explorer.json").read_text())
    rows = [dict(zip(grid["columns"], row, strict=True)) for row in grid["rows"]]
    (here,) = [
        row
        for row in rows
        if (row["policy"], row["chunk_budget"], row["load"], row["long_share"]) == ("chunked", 512, 0.85, 0.4)
    ]
    cells = session.run(
        "return [...document.querySelectorAll('.il-numbers td:first-of-type')].map((c) => c.textContent)"
    )
    assert cells[-1] == f"{here['gap_max_s'] * 1e3:.1f} ms"
    assert cells[3] == f"{here['ttft_p90_s']:.2f} s"


@pytest.mark.parametrize("width", [390, 1280])
def test_the_timeline_follows_the_keyboard(opened: Callable[..., Browser], width: int) -> None:
    session = opened("timeline", width, "dark")
    session.press(".il-panel:nth-child(1) .il-lanes", "up")
    assert re.match(
        r"whole, step \d+: request \d+ stands still: [\d.,]+ ms between", session.text(".il-readout")
    )
    session.press(".il-panel:nth-child(1) .il-lanes", "left")
    assert "writes 1 token" in session.text(".il-readout")
    session.press(".il-panel:nth-child(2) .il-lanes", "right", "down")
    said = session.text(".il-readout")
    assert re.match(r"chunked, step \d+: ", said)
    assert session.run("return document.querySelectorAll('.il-active').length") == 1
    whole = "return document.querySelector('.il-panel svg').innerHTML"
    before = session.run(whole)
    session.press("#il-pan", "right", "right")
    moved = session.run(whole)
    assert moved != before
    session.press("#il-zoom", "right")
    assert session.run(whole) != moved
    session.click("#il-shown-chunked")
    seen = session.run("return [...document.querySelectorAll('.il-panel')].map((p) => p.checkVisibility())")
    assert seen == [False, True, False]
    session.click(".il-button")
    session.click("#il-shown-all")
    assert session.run(whole) != moved
    assert session.log() == []


def test_the_timeline_follows_the_mouse(opened: Callable[..., Browser]) -> None:
    session = opened("timeline")
    box = session.run(
        "const b = document.querySelector('.il-lanes .il-prompt').getBBox(), s = document.querySelector('.il-lanes');"
        "return [b.x + b.width / 2 - s.clientWidth / 2, b.y + b.height / 2 - s.clientHeight / 2].map(Math.round)"
    )
    session.pointer(".il-lanes", [(box[0] - 40, box[1]), tuple(box)])
    assert re.match(
        r"whole, step \d+: request \d+ reads prompt tokens 1 to 4,096 of 4,096", session.text(".il-readout")
    )
    before = session.text(".il-controls output")
    session.pointer(".il-lanes", [(0, 0), (-60, 0), (-120, 0)], drag=True)
    assert session.text(".il-controls output") != before
    assert session.log() == []


@pytest.mark.parametrize("width", [390, 1280])
def test_the_timeline_in_brief_is_a_picture(opened: Callable[..., Browser], width: int) -> None:
    session = opened("index", width, "dark")
    facts = session.run(
        "const place = document.getElementById('il-timeline');"
        "return [place.querySelectorAll('.il-panel svg').length, place.querySelectorAll('input, [tabindex]').length,"
        " place.querySelector('[role=img]').getAttribute('aria-label'), place.querySelector('.il-mark').textContent,"
        " document.getElementById('il-timeline-still').hidden]"
    )
    assert facts[:2] == [3, 0]
    assert facts[2].startswith("Three panels of bars")
    assert facts[3:] == ["sim", True]


@pytest.mark.parametrize(("page", "name"), [*((name, name) for name in SCRIPTED), ("index", "timeline")])
def test_without_scripts_the_still_picture_stays(
    opened: Callable[..., Browser], page: str, name: str
) -> None:
    session = opened(page, 390, "dark", scripts=False)
    document = session.devtools("DOM.getDocument", depth=0)["root"]["nodeId"]

    def shown(selector: str) -> bool:
        node = session.devtools("DOM.querySelector", nodeId=document, selector=selector)["nodeId"]
        styles = session.devtools("DOM.describeNode", nodeId=node)["node"]["attributes"]
        return "hidden" not in styles

    assert shown(f"#il-{name}-still")
    assert not shown(f"#il-{name}")
    session.devtools("Emulation.setScriptExecutionDisabled", value=False)
