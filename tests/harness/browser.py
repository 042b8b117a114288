"""A real browser for tests: headless Chromium, driven over WebDriver's own HTTP.

Main type: `Browser`. It needs Debian's packages chromium and chromium-driver (`browser`
in tests/tools.py), and nothing from PyPI: tests need only a few requests.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import time
from typing import TYPE_CHECKING, Any, Self
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from tests import tools
from tests.harness.waiting import deadline_in

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-proxy-server",
)
_STARTED = re.compile(r"successfully on port (\d+)")


class Browser:
    """One window with a profile of its own; a context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._binary = tools.path("chromium")
        self._session = ""

    def __enter__(self) -> Self:
        self._driver = subprocess.Popen(
            [tools.path("chromedriver"), "--port=0"], stdout=subprocess.PIPE, text=True
        )
        assert self._driver.stdout is not None
        try:
            port = next(
                found[1]
                for line in self._driver.stdout
                if (found := _STARTED.search(line))
            )
            self._base = f"http://127.0.0.1:{port}/session"
            wanted = {
                "browserName": "chrome",
                "goog:chromeOptions": {
                    "binary": self._binary,
                    "args": [*_FLAGS, f"--user-data-dir={self._folder / 'profile'}"],
                },
                "goog:loggingPrefs": {"browser": "ALL"},
            }
            made = self._call("", {"capabilities": {"alwaysMatch": wanted}})
            self._session = f"/{made['sessionId']}"
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._call("", method="DELETE")
        finally:
            self._end()

    def open(self, url: str) -> None:
        self._call("/url", {"url": url})

    def run(self, script: str) -> Any:
        """What a script returns; its last line starts with `return`."""
        return self._call("/execute/sync", {"script": script, "args": []})

    def text(self, selector: str = "body") -> str:
        """What a person reads there; nothing if there is no such element."""
        return str(
            self.run(f"return document.querySelector({selector!r})?.innerText ?? ''")
        )

    def wait_for(self, script: str, *, seconds: float = 30) -> Any:
        """The first true answer of a script."""
        deadline = deadline_in(seconds)
        while not (found := self.run(script)):
            assert time.monotonic() < deadline, f"{script}\n{self.text()}"
            time.sleep(0.2)
        return found

    def press(self, key: str) -> None:
        """Press one key, given by WebDriver's character for it."""
        keys = [{"type": kind, "value": key} for kind in ("keyDown", "keyUp")]
        self._call(
            "/actions", {"actions": [{"type": "key", "id": "k", "actions": keys}]}
        )

    def emulate(
        self, *, width: int, height: int, scheme: str = "light", scripts: bool = True
    ) -> None:
        """Emulate a screen of that size, and a user's media preferences."""
        self._tell(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )
        wish = {"name": "prefers-color-scheme", "value": scheme}
        self._tell("Emulation.setEmulatedMedia", {"features": [wish]})
        self._tell("Emulation.setScriptExecutionDisabled", {"value": not scripts})

    def hasten(self, times: int) -> None:
        """Timers of pages that are opened from here on end this much sooner."""
        script = (
            "const wait = window.setTimeout;"
            f"window.setTimeout = (call, ms) => wait(call, ms / {times});"
        )
        self._tell("Page.addScriptToEvaluateOnNewDocument", {"source": script})

    def screenshot(self, name: str) -> Path:
        """The whole page as a file, in MIRROR_TEST_SCREENSHOTS if that is set."""
        folder = os.environ.get("MIRROR_TEST_SCREENSHOTS")
        file = (type(self._folder)(folder) if folder else self._folder) / f"{name}.png"
        told = self._tell("Page.captureScreenshot", {"captureBeyondViewport": True})
        file.write_bytes(base64.b64decode(told["data"]))
        return file

    def complaints(self) -> list[str]:
        """What the console has: errors of scripts, and what the policy refused."""
        return [
            entry["message"] for entry in self._call("/se/log", {"type": "browser"})
        ]

    def _tell(self, command: str, parameters: Mapping[str, Any]) -> Any:
        body = {"cmd": command, "params": parameters}
        return self._call("/goog/cdp/execute", body)

    def _call(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        method: str | None = None,
    ) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"{self._base}{self._session}{path}", data, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except HTTPError as error:
            with error:
                raise AssertionError(error.read().decode()[:2000]) from None

    def _end(self) -> None:
        self._driver.terminate()
        self._driver.wait(60)
        assert self._driver.stdout is not None
        self._driver.stdout.close()
