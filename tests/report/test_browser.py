"""The built book in a real browser, from the file system: no console errors, nothing wider than the screen."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from toys.booklet import TOY

pytestmark = pytest.mark.browser

PAGES = ["book/index.html", "book/methods.html", "book/status.html", f"book/pages/{TOY}.html"]
FLAGS = (
    "--headless --no-sandbox --disable-gpu --no-first-run --hide-scrollbars --virtual-time-budget=2000 "
    "--disable-background-networking --disable-component-update --disable-sync --enable-logging=stderr "
    "--allow-file-access-from-files=false"
)
# What the theme says when all is well.
CHATTER = ("[PST]: Changed to", "[PST]: Scrolled sidebar", "[togglebutton]: Adding")
PROBE = """<script>addEventListener("load", () => {
  document.documentElement.dataset.theme = "%s";
  const root = document.documentElement, maths = [...document.querySelectorAll("math")];
  parent.postMessage(JSON.stringify({ wide: root.scrollWidth - root.clientWidth, width: root.clientWidth,
    maths: maths.length, visible: maths.filter((m) => m.getBoundingClientRect().height > 0).length,
    badges: [...document.querySelectorAll(".il-stale")].filter((b) => b.getBoundingClientRect().height > 0).length,
    ground: getComputedStyle(document.body).backgroundColor }), "*");
});</script></head>"""
# A browser's window has a least width; a frame has none.
FRAME = """<!DOCTYPE html><script>addEventListener("message", (event) => {
  document.body.append(Object.assign(document.createElement("pre"), { id: "facts", textContent: event.data }));
});</script><body><iframe src="%s" width="%d" height="900" style="border: 0"></iframe></body>"""


def look(page: Path, width: int, theme: str, profile: Path) -> tuple[dict, list[str]]:
    """What the browser measured on `page`, and its console messages."""
    probed, frame = page.with_name(f"probe-{page.name}"), page.with_name(f"frame-{page.name}")
    probed.write_text(page.read_text().replace("</head>", PROBE % theme, 1))
    frame.write_text(FRAME % (probed.name, width))
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    command = [browser, *FLAGS.split(), f"--user-data-dir={profile}", "--window-size=1400,1000"]
    done = subprocess.run(
        [*command, "--dump-dom", frame.as_uri()], capture_output=True, text=True, timeout=300, check=True
    )
    probed.unlink()
    frame.unlink()
    facts = re.search(r'<pre id="facts">(.*?)</pre>', done.stdout)
    assert facts, done.stdout[-500:]
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(facts[1]), [line for line in console if not any(word in line for word in CHATTER)]


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize(("width", "theme"), [(390, "dark"), (1280, "light")])
def test_a_page_fits_and_is_silent(book: Path, tmp_path: Path, page: str, width: int, theme: str) -> None:
    facts, console = look(book / "_build/html" / page, width, theme, tmp_path)
    assert console == []
    assert facts["width"] == width
    assert facts["wide"] <= 0
    assert facts["visible"] == facts["maths"]
    assert (facts["maths"] > 0) == (page not in ("book/index.html", "book/status.html"))
    assert facts["badges"] == (
        page == PAGES[-1]
    )  # the toy has no template, so it is out of date, and says so
    dark = max(int(part) for part in re.findall(r"\d+", facts["ground"])[:3]) < 128
    assert dark == (theme == "dark")
