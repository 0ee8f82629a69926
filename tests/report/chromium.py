"""A page in a real browser, driven over a pipe: what its script computes, what keys do, what it complains of."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

KEYS = {"Enter": 13, "Escape": 27, "ArrowRight": 39, "ArrowLeft": 37, "ArrowDown": 40, "ArrowUp": 38, "Tab": 9}


class Browser:
    """One page of one headless browser without a network; ``complaints`` are what it logged as errors."""

    def __init__(self, folder: Path) -> None:
        assert BROWSER is not None
        given, self._write = os.pipe()
        self._read, taken = os.pipe()
        command = (
            f'exec "$0" --headless=new --no-sandbox --disable-gpu --no-first-run --remote-debugging-pipe '
            f'--user-data-dir="$1" --disable-background-networking --disable-extensions about:blank '
            f"3<&{given} 4>&{taken} 2>/dev/null"
        )
        self._process = subprocess.Popen(["bash", "-c", command, BROWSER, str(folder)], pass_fds=(given, taken))
        os.close(given)
        os.close(taken)
        self._number, self._rest, self._session = 0, b"", ""
        self.complaints: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)

    def call(self, method: str, **parameters: Any) -> Any:
        """Ask the browser for one thing and wait for its answer."""
        self._number += 1
        asked = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            asked["sessionId"] = self._session
        os.write(self._write, json.dumps(asked).encode() + b"\0")
        while True:
            told = self._message()
            if told.get("id") == self._number:
                assert "error" not in told, told["error"]
                return told["result"]
            self._note(told)

    def open(
        self, page: Path, width: int = 1440, height: int = 900, *, scheme: str = "light", ratio: float = 1
    ) -> None:
        """Open a file and wait until its script has run and drawn."""
        mobile = width < 600
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=ratio, mobile=mobile
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=page.resolve().as_uri())
        while self.value("document.readyState") != "complete":
            time.sleep(0.02)
        self.frame()

    def frame(self) -> None:
        """Wait until what was asked for is drawn."""
        self.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def value(self, expression: str) -> Any:
        """What an expression is in the page, as JSON."""
        told = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def press(self, key: str) -> None:
        """Press a key as a hand does, wherever the focus is."""
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        code = KEYS.get(key, ord(key[0].upper()))
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)
        self.frame()

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Write what is seen, or the whole page, as PNG."""
        path.write_bytes(
            base64.b64decode(self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"])
        )

    def close(self) -> None:
        """End the browser."""
        os.close(self._write)
        os.close(self._read)
        self._process.terminate()
        self._process.wait(10)

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            assert select.select([self._read], [], [], 60)[0], "the browser says nothing"
            more = os.read(self._read, 1 << 16)
            assert more, "the browser ended"
            self._rest += more
        line, self._rest = self._rest.split(b"\0", 1)
        return dict(json.loads(line))

    def _note(self, told: dict[str, Any]) -> None:
        method, about = told.get("method"), told.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(about["exceptionDetails"].get("exception", about)))
        elif method == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.complaints.append(about["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning"):
            self.complaints.append(str(about["args"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
