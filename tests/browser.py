"""A headless Chromium for tests of pages: started once, spoken to through a pipe (DevTools protocol)."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
GIVE_UP_SECONDS = 300  # on an answer: with others busy, a start may take long
_FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--hide-scrollbars",
    "--font-render-hinting=none",
)


def found() -> str:
    """The browser's file; "" where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), "")


class Browser:
    """One page of one browser: what it logs, what it looks like, what its scripts say."""

    def __init__(self, folder: Path) -> None:
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        flags = [*_FLAGS, f"--user-data-dir={folder / 'profile'}"]
        flags += ["--no-sandbox"] if os.geteuid() == 0 else []  # root has no sandbox
        # It reads from 3 and writes to 4.
        script = f'exec 3<&{to_read} 4>&{to_write}; exec "$@"'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "bash", found(), *flags, "about:blank"],
            pass_fds=(to_read, to_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_read)
        os.close(to_write)
        self._rest = b""
        self._number = 0
        self._session = ""
        self.said: list[str] = []  # errors and warnings of the page, whatever asked for the network
        targets = self._call("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self._call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def close(self) -> None:
        """End it."""
        os.close(self._write)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        os.close(self._read)

    def open(self, page: Path) -> None:
        """Load a file, and wait until it is there."""
        self.said.clear()
        self._loaded = False
        self._call("Page.navigate", url=page.as_uri())
        self._until(lambda: self._loaded)

    def resize(self, width: int, height: int = 900, *, phone: bool = False) -> None:
        """The window's size."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)

    def media(self, *, scheme: str = "light", kind: str = "") -> None:
        """Light or dark, a screen or paper."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._call("Emulation.setEmulatedMedia", media=kind, features=features)

    def script(self, *, enabled: bool) -> None:
        """Whether pages that are opened from now on may run scripts."""
        self._call("Emulation.setScriptExecutionDisabled", value=not enabled)

    def has_focus(self) -> None:
        """Let the page behave as the one that its reader touches."""
        self._call("Emulation.setFocusEmulationEnabled", enabled=True)

    def run(self, code: str) -> Any:
        """The value of an expression in the page."""
        answer = self._call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """What it looks like, as PNG."""
        data = self._call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def pdf(self, path: Path) -> None:
        """What it looks like on paper."""
        data = self._call("Page.printToPDF", printBackground=True, preferCSSPageSize=False)["data"]
        path.write_bytes(base64.b64decode(data))

    # ---- the protocol ----

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        answers: list[dict[str, Any]] = []
        self._until(lambda: bool(answers), lambda found: answers.append(found) if found.get("id") == number else None)
        assert "error" not in answers[0], f"{method}: {answers[0]['error']}"
        result: dict[str, Any] = answers[0]["result"]
        return result

    def _until(self, done: Any, see: Any = None) -> None:
        end = time.monotonic() + GIVE_UP_SECONDS
        while not done():
            found = self._next(end)
            self._note(found)
            if see is not None:
                see(found)

    def _next(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"the browser says nothing for {GIVE_UP_SECONDS} s"
            part = os.read(self._read, 1 << 20)
            assert part, "the browser has ended"
            self._rest += part
        text, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(text)
        return found

    def _note(self, found: dict[str, Any]) -> None:
        method, params = found.get("method"), found.get("params", {})
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.said.append(params["entry"]["text"])
        elif method == "Runtime.exceptionThrown":
            self.said.append(json.dumps(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled":
            self.said.append(json.dumps(params["args"]))
        elif method == "Network.requestWillBeSent" and params["request"]["url"].partition(":")[0] not in (
            "file",
            "data",
        ):
            self.said.append(f"asked for {params['request']['url']}")
