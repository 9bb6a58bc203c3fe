"""Checks a built site: it loads nothing from a network, and no link or picture in it is dead.

Reads the HTML, CSS and JavaScript files as a browser would find them on disk; knows nothing of Sphinx or of
how the site was made. External links are allowed (a reader follows them); external loads are not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADING_ATTRIBUTES = {
    ("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("video", "src"),
    ("video", "poster"), ("audio", "src"), ("track", "src"), ("embed", "src"), ("object", "data"),
    ("input", "src"), ("image", "href"), ("image", "xlink:href"), ("use", "href"), ("use", "xlink:href"),
    ("frame", "src"), ("body", "background"),
}  # fmt: skip
# What a <link> of another kind names is not fetched by the page.
LOADING_RELS = {
    "stylesheet", "icon", "apple-touch-icon", "preload", "prefetch", "modulepreload", "preconnect",
    "dns-prefetch", "prerender", "manifest",
}  # fmt: skip
CSS_LOAD = re.compile(r"""(?:@import\s+(?:url\()?|url\()\s*["']?\s*((?:https?:)?//[^"')\s;]+)""", re.I)
# A script loads what a string literal names: an address at the start of one, except names of XML dialects.
JS_LOAD = re.compile(r"""["'`]((?:https?:|wss?:)?//[A-Za-z0-9][A-Za-z0-9.-]*\.[A-Za-z]{2,}[^"'`\s]*)""")
JS_NAMES = re.compile(r"(https?:)?//www\.w3\.org/")
COMMENT = re.compile(r"/\*.*?\*/", re.S)


@dataclass
class Page(HTMLParser):
    """What one HTML file loads, links to and offers as a target."""

    loads: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)
    headings: list[int] = field(default_factory=list)
    styles: list[str] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    inside: str | None = None
    in_article: bool = False

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.inside = tag if tag in ("script", "style") else None
        self.in_article |= tag == "article"
        self.ids.update(given[name] for name in ("id", "name") if given.get(name))
        if "style" in given:
            self.styles.append(given["style"])
        self.loads += [given[name] for name in given if (tag, name) in LOADING_ATTRIBUTES]
        self.loads += [item.split()[0] for item in given.get("srcset", "").split(",") if item.strip()]
        if tag == "link" and LOADING_RELS & set(given.get("rel", "").lower().split()):
            self.loads.append(given.get("href", ""))
        elif tag in ("a", "link", "area") and "href" in given:
            self.links.append(given["href"])
        elif tag == "meta" and given.get("http-equiv", "").lower() == "refresh":
            self.links.append(given.get("content", "").partition("url=")[2].strip())
        elif tag == "img":
            self.check_picture(given)
        elif self.in_article and re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))

    def check_picture(self, given: dict[str, str]) -> None:
        alt, source = given.get("alt", ""), given.get("src", "")
        name = source.rsplit("/", 1)[-1]
        if not alt.strip() or (name and alt.strip().endswith(name)):
            self.faults.append(f"picture {source[:80]!r} has no alt text that says what is seen")

    def handle_data(self, data: str) -> None:
        if self.inside == "style":
            self.styles.append(data)
        elif self.inside == "script":
            self.scripts.append(data)

    def handle_endtag(self, tag: str) -> None:
        self.inside = None
        self.in_article &= tag != "article"

    def heading_faults(self) -> list[str]:
        """One first-level heading, at the top, and no level skipped on the way down."""
        if not self.headings:
            return []
        faults = [] if self.headings[0] == 1 else [f"begins with a heading of level {self.headings[0]}"]
        if self.headings.count(1) > 1:
            faults.append(f"has {self.headings.count(1)} first-level headings, not one")
        jumps = [(a, b) for a, b in pairwise(self.headings) if b > a + 1]
        return faults + [f"jumps from heading level {a} to {b}" for a, b in jumps]


def remote_in_css(text: str) -> list[str]:
    """Addresses that a style sheet would load from a network."""
    return CSS_LOAD.findall(COMMENT.sub("", text))


def remote_in_js(text: str) -> list[str]:
    """Addresses that stand alone in a script as a string, other than names of XML dialects."""
    return [found for found in JS_LOAD.findall(text) if not JS_NAMES.match(found)]


def is_remote(address: str) -> bool:
    return bool(urlsplit(address).netloc) or urlsplit(address).scheme in ("http", "https", "ws", "wss")


def target_of(root: Path, page: Path, address: str) -> tuple[Path, str] | None:
    """The file and fragment that a local address means, or None for one that leaves the site."""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return None
    path = unquote(parts.path)
    file = (root / path.lstrip("/") if path.startswith("/") else page.parent / path) if path else page
    return (file / "index.html" if file.is_dir() else file), unquote(parts.fragment)


def check_page(root: Path, path: Path, page: Page, pages: dict[Path, Page]) -> list[str]:
    """Problems of one HTML file, each one line without the file's name."""
    problems = page.faults + page.heading_faults()
    remote = [load for load in page.loads if is_remote(load)]
    remote += [found for text in page.styles for found in remote_in_css(text)]
    remote += [found for text in page.scripts for found in remote_in_js(text)]
    problems += [f"loads {address} from a network" for address in remote]
    for address in page.links + [load for load in page.loads if not is_remote(load)]:
        if (target := target_of(root, path, address)) is None:
            continue
        file, fragment = target[0].resolve(), target[1]
        if not file.is_file():
            problems.append(f"dead link: {address}")
        elif fragment and file in pages and fragment not in pages[file].ids:
            problems.append(f"dead link: {address} (no such place on that page)")
        elif not file.is_relative_to(root):
            problems.append(f"link out of the site: {address}")
    return list(dict.fromkeys(problems))


def check_site(site: Path) -> list[str]:
    """Problems of the built site in folder `site`, each `file: what`; empty when there is none."""
    root = site.resolve()
    pages: dict[Path, Page] = {}
    for path in sorted(root.rglob("*.html")):
        pages[path] = Page()
        pages[path].feed(path.read_text("utf8"))
    if not pages:
        return [f"{site}: holds no HTML file"]
    found: list[tuple[Path, str]] = []
    for path, page in pages.items():
        found += [(path, problem) for problem in check_page(root, path, page, pages)]
    for pattern, remote_in in (("*.css", remote_in_css), ("*.js", remote_in_js), ("*.svg", remote_in_css)):
        for path in sorted(root.rglob(pattern)):
            text = path.read_text("utf8")
            found += [(path, f"loads {address} from a network") for address in remote_in(text)]
    return [f"{path.relative_to(root).as_posix()}: {problem}" for path, problem in found]
