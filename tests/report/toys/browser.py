"""A browser for tests: Chromium through its driver, spoken to in the WebDriver protocol over plain HTTP.

One session serves all tests. A page is shown at any width, since the screen is the emulated one, and in either
theme, by what the system is said to prefer.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --no-first-run --hide-scrollbars --disable-dev-shm-usage "
    "--disable-background-networking --disable-component-update --disable-sync "
    "--allow-file-access-from-files=false"
)
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {
    "left": "\ue012",
    "up": "\ue013",
    "right": "\ue014",
    "down": "\ue015",
    "tab": "\ue004",
    "home": "\ue011",
}
# What the theme says when all is well.
CHATTER = ("[PST]: Changed to", "[PST]: Scrolled sidebar", "[togglebutton]: Adding")


class Browser:
    """A session. Coordinates and sizes are CSS pixels."""

    def __init__(self, profile: Path) -> None:
        self.driver = subprocess.Popen(
            ["chromedriver", "--port=0", "--log-level=SEVERE"], stdout=subprocess.PIPE, text=True
        )
        assert self.driver.stdout
        port = next(
            found[1]
            for line in self.driver.stdout
            if (found := re.search(r"successfully on port (\d+)", line))
        )
        self.address = f"http://127.0.0.1:{port}/session"
        options = {
            "binary": next(filter(None, map(shutil.which, BROWSERS))),
            "args": [*FLAGS.split(), f"--user-data-dir={profile}"],
        }
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        try:
            session = self.ask("", {"capabilities": {"alwaysMatch": wanted}})
        except BaseException:
            self.driver.terminate()
            raise
        self.address += f"/{session['sessionId']}"

    def ask(self, path: str, body: dict[str, Any] | None = None, method: str = "POST") -> Any:
        """One command of the protocol; what it answers."""
        data = None if method != "POST" else json.dumps(body or {}).encode()
        request = Request(self.address + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urlopen(request, timeout=120) as answer:
                return json.load(answer)["value"]
        except HTTPError as error:
            raise AssertionError(json.load(error)["value"]["message"]) from None

    def close(self) -> None:
        self.ask("", method="DELETE")
        self.driver.terminate()
        self.driver.wait(30)

    def devtools(self, command: str, **params: Any) -> Any:
        return self.ask("/goog/cdp/execute", {"cmd": command, "params": params})

    def show(self, page: Path, width: int, theme: str, scripts: bool = True) -> list[str]:
        """Open `page` on a screen so wide; returns the console's messages, the theme's chatter left out."""
        self.log()
        self.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
        )
        scheme = [{"name": "prefers-color-scheme", "value": theme}]
        self.devtools("Emulation.setEmulatedMedia", features=scheme)
        self.devtools("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.ask("/url", {"url": page.as_uri()})
        if scripts:  # a frame or two, for what is drawn after loading
            self.wait("requestAnimationFrame(() => requestAnimationFrame(() => done(1)))")
        return self.log()

    def log(self) -> list[str]:
        """The console's messages since the last call."""
        messages = [entry["message"] for entry in self.ask("/se/log", {"type": "browser"})]
        return [message for message in messages if not any(word in message for word in CHATTER)]

    def run(self, script: str, *arguments: Any) -> Any:
        return self.ask("/execute/sync", {"script": script, "args": arguments})

    def wait(self, script: str, *arguments: Any) -> Any:
        """Run a script that ends by calling done(result)."""
        head = "const done = arguments[arguments.length - 1]; "
        return self.ask("/execute/async", {"script": head + script, "args": arguments})

    def element(self, selector: str) -> str:
        found = self.ask("/element", {"using": "css selector", "value": selector})
        return str(found[ELEMENT])

    def text(self, selector: str) -> str:
        return str(self.run("return document.querySelector(arguments[0]).textContent", selector))

    def click(self, selector: str) -> None:
        """With the mouse, from the middle of the screen: the theme's header covers its top."""
        self.run("document.querySelector(arguments[0]).scrollIntoView({ block: 'center' })", selector)
        self.ask(f"/element/{self.element(selector)}/click")

    def press(self, selector: str, *keys: str) -> None:
        """Type named keys into an element, which gets the focus."""
        text = "".join(KEYS.get(key, key) for key in keys)
        self.ask(f"/element/{self.element(selector)}/value", {"text": text})

    def type(self, *keys: str) -> None:
        """Press named keys wherever the focus is."""
        moves = [{"type": kind, "value": KEYS.get(key, key)} for key in keys for kind in ("keyDown", "keyUp")]
        self.ask("/actions", {"actions": [{"type": "key", "id": "keys", "actions": moves}]})

    def pointer(self, selector: str, at: Sequence[tuple[int, int]], drag: bool = False) -> None:
        """Move the mouse over points of an element, counted from its centre; drag: with the button down."""
        origin = {ELEMENT: self.element(selector)}
        moves: list[dict[str, Any]] = [
            {"type": "pointerMove", "origin": origin, "x": x, "y": y, "duration": 20} for x, y in at
        ]
        if drag:
            moves = [
                moves[0],
                {"type": "pointerDown", "button": 0},
                *moves[1:],
                {"type": "pointerUp", "button": 0},
            ]
        self.ask("/actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": moves}]})

    def screenshot(self, path: Path, whole: bool = True) -> None:
        taken = self.devtools("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(taken["data"]))
