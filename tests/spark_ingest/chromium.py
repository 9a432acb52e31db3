"""A page in Debian's chromium, headless, driven over the DevTools protocol: what it shows, asks for and looks like."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from tests.interop.test_browser import FLAGS
from tests.waits import PATIENCE_S, wait_until


class Page:
    """One tab. `requested`: every URL that it asked for."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket, self._numbers = socket, itertools.count(1)
        self.requested: list[str] = []
        self.complaints: list[str] = []
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            answer = json.loads(self._socket.recv(timeout=PATIENCE_S))
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return dict(answer["result"])
            self._event(answer)

    def _event(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        if event["method"] == "Network.requestWillBeSent":
            self.requested.append(params["request"]["url"])
        elif event["method"] == "Network.webSocketCreated":
            self.requested.append(params["url"])
        elif event["method"] == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params)[:500])
        elif event["method"] == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.complaints.append(params["entry"]["text"])

    def evaluate(self, expression: str) -> Any:
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def open(self, url: str, width: int, height: int, scheme: str = "light") -> None:
        self.resize(width, height)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=url)

    def resize(self, width: int, height: int) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def wait_for(self, expression: str, patience_s: float = PATIENCE_S) -> None:
        if not wait_until(lambda: self.evaluate(expression), patience_s, every_s=0.1):
            text = self.evaluate("document.body ? document.body.innerText : ''")
            raise AssertionError(f"not within {patience_s} s: {expression}\n{text}\n{self.complaints}")

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


@contextlib.contextmanager
def browser(chromium: str, profile: Path) -> Iterator[Page]:
    """A browser with a throw-away profile that reaches this machine only."""
    profile.mkdir()
    flags = (*FLAGS, "--remote-debugging-port=0", "--hide-scrollbars",
             "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")  # fmt: skip
    with (profile / "log").open("wb") as log:
        process = subprocess.Popen(
            [chromium, *flags, f"--user-data-dir={profile}", "about:blank"],
            stdout=log,
            stderr=log,
            env={**os.environ, "HOME": str(profile), "XDG_CONFIG_HOME": str(profile)},
            start_new_session=True,
        )
    try:
        told = profile / "DevToolsActivePort"
        _wait(lambda: told.exists() and told.read_text().count("\n") >= 1, process)
        port = told.read_text().split()[0]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=PATIENCE_S) as answer:
            (tab,) = [each for each in json.load(answer) if each["type"] == "page"]
        with connect(tab["webSocketDebuggerUrl"], max_size=64 << 20, proxy=None) as socket:
            yield Page(socket)
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # the session that we started for it, with its helpers
        process.wait()


def _wait(what: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    def ready() -> bool:
        assert process.poll() is None, "the browser ended"
        return what()

    assert wait_until(ready, PATIENCE_S), "the browser did not start"
