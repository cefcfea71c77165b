"""A real browser for tests: headless Chromium, driven by the DevTools protocol through a pair of pipes.

One process serves many pages, because its start takes about two seconds. Nothing is downloaded: tests are skipped where
no Chromium is installed.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next((found for name in NAMES if (found := shutil.which(name))), None)
WIDTHS = (1400, 400)
_SECONDS = 60.0
_SWITCHES = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-extensions", "--hide-scrollbars",
    "--remote-debugging-pipe",
)  # fmt: skip
# Chromium reads commands from descriptor 3 and writes to descriptor 4.
_START = (
    "import fcntl, os, sys\n"
    "pair = [fcntl.fcntl(int(each), fcntl.F_DUPFD, 20) for each in sys.argv[1:3]]\n"
    "[os.dup2(each, number) for each, number in zip(pair, (3, 4))]\n"
    "os.execv(sys.argv[3], sys.argv[3:])\n"
)
_MEASURE = (Path(__file__).parent / "measure.js").read_text(encoding="utf-8")


class Browser:
    """A process of Chromium."""

    def __init__(self, profile: Path) -> None:
        assert BROWSER is not None
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        command = [sys.executable, "-c", _START, str(theirs_in), str(theirs_out), BROWSER, *_SWITCHES]
        self._process = subprocess.Popen(
            [*command, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._ids = itertools.count(1)
        self._received = bytearray()
        self.events: list[dict[str, Any]] = []

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._out, b'{"id":0,"method":"Browser.close"}\0')
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._out)
        os.close(self._in)

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """The result of a command. Raises AssertionError if Chromium refuses it."""
        id_ = next(self._ids)
        message = {"id": id_, "method": method, "params": parameters}
        data = json.dumps(message if session is None else {**message, "sessionId": session}).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data) :]
        while True:
            received = self._next()
            if received.get("id") == id_:
                assert "error" not in received, (method, received["error"])
                return dict(received["result"])

    def wait_for(self, event: str, session: str) -> dict[str, Any]:
        """The next event of this name."""
        while True:
            for number, each in enumerate(self.events):
                if each["method"] == event and each.get("sessionId") == session:
                    del self.events[number]
                    return dict(each["params"])
            self._next()

    def _next(self) -> dict[str, Any]:
        """Receive a message; an event is kept in ``events``."""
        end_s = time.monotonic() + _SECONDS
        while b"\0" not in self._received:
            left_s = end_s - time.monotonic()
            assert left_s > 0 and select.select([self._in], [], [], left_s)[0], "Chromium does not answer"
            data = os.read(self._in, 1 << 20)
            assert data, f"Chromium ended with status {self._process.wait(20)}"
            self._received += data
        message, _, rest = bytes(self._received).partition(b"\0")
        self._received = bytearray(rest)
        found: dict[str, Any] = json.loads(message)
        if "method" in found:
            self.events.append(found)
        return found

    @contextlib.contextmanager
    def tab(self, width: int = 1400, height: int = 900, *, dark: bool = False) -> Iterator[Tab]:
        """A tab, with nothing of the other tabs' cookies and passwords."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        made = Tab(self, session)
        for domain in ("Page", "Runtime", "Network", "Log"):
            made.call(f"{domain}.enable")
        made.resize(width, height)
        made.theme(dark)
        try:
            yield made
        finally:
            self.call("Target.disposeBrowserContext", browserContextId=context)
            self.events.clear()


class Tab:
    """A tab of a browser."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **parameters)

    def resize(self, width: int, height: int) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def theme(self, dark: bool) -> None:
        chosen = {"prefers-color-scheme": "dark" if dark else "light", "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in chosen.items()]
        self.call("Emulation.setEmulatedMedia", features=features)

    def headers(self, headers: Mapping[str, str]) -> None:
        """Send these headers with every request."""
        self.call("Network.setExtraHTTPHeaders", headers=dict(headers))

    def open(self, url: str | Path) -> None:
        """Load a page, and wait until its scripts have drawn it."""
        self.call("Page.navigate", url=url if isinstance(url, str) else url.absolute().as_uri())
        self._browser.wait_for("Page.loadEventFired", self._session)
        self.settle()

    def follow(self, selector: str) -> None:
        """Click on a link, and wait for its page."""
        self.run(f"document.querySelector({json.dumps(selector)}).click()")
        self._browser.wait_for("Page.loadEventFired", self._session)

    def settle(self) -> None:
        """Wait until what was changed has been drawn."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(null))))")

    def run(self, expression: str) -> Any:
        """The value of an expression of JavaScript. The content security policy of the page does not apply to it."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def key(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def measured(self) -> dict[str, Any]:
        """What ``measure.js`` finds in the whole page: cut and overlapping text, and the contrast of each text."""
        width = self.run("innerWidth")
        height = self.run("Math.ceil(document.documentElement.getBoundingClientRect().height) + 40")
        self.resize(width, height)  # points outside the window cannot be looked up
        self.settle()
        return dict(self.run(_MEASURE))

    def picture(self, file: Path) -> None:
        """Write a PNG of the whole page."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"]
        file.write_bytes(base64.b64decode(data))

    def forget(self) -> None:
        """Forget the problems so far."""
        self._browser.events.clear()

    def problems(self) -> list[str]:
        """What the console and the log of the browser have said: errors of scripts, refusals of the policy."""
        found = []
        for each in self._browser.events:
            if each.get("sessionId") == self._session and each["method"] == "Runtime.exceptionThrown":
                found.append(str(each["params"]["exceptionDetails"]))
            if each.get("sessionId") == self._session and each["method"] == "Log.entryAdded":
                found.append(str(each["params"]["entry"]["text"]))
        return found


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A browser that all tests share."""
    if BROWSER is None:
        pytest.skip("no Chromium is installed (Debian: apt-get install chromium)")
    with tempfile.TemporaryDirectory(prefix="deltalog-browser-", ignore_cleanup_errors=True) as place:
        made = Browser(Path(place))
        try:
            yield made
        finally:
            made.close()


def assert_readable(found: Mapping[str, Any], what: object) -> None:
    """That no text is cut or covered, and that its contrast is that of WCAG's level AA."""
    assert found["overflow"] == 0, (what, found["overflow"])
    assert found["cut"] == [], (what, found["cut"])
    assert found["overlapping"] == [], (what, found["overlapping"])
    assert len(found["contrasts"]) >= 4, what
    pale = [each for each in found["contrasts"] if each["ratio"] < 4.5]
    assert pale == [], (what, pale)


def assert_readable_everywhere(tab: Tab, what: object, pictures: Path) -> None:
    """That the page in a tab is readable at each width and in both themes. Writes a picture of each to a directory."""
    grounds = set()
    for width in WIDTHS:
        for dark in (False, True):
            tab.resize(width, 900)
            tab.theme(dark)
            tab.settle()
            found = tab.measured()
            tab.picture(pictures / f"{width}-{'dark' if dark else 'light'}.png")
            assert_readable(found, (what, width, dark))
            grounds.add((dark, tab.run("getComputedStyle(document.documentElement).backgroundColor")))
    assert len(grounds) == len({ground for _, ground in grounds}) == 2, grounds
    assert tab.problems() == []
