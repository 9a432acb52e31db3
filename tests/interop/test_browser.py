"""MQTT.js in a real browser: Debian's chromium, headless, against WebSocket and secure WebSocket listeners.

The page and MQTT.js come from a server on loopback; the page posts what it saw. Nothing else is contacted.
"""

from __future__ import annotations

import http.server
import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.conftest import MQTTJS, tool
from tests.gateway.certificates import Authority
from tests.waits import PATIENCE_S

PAGE = Path(__file__).with_name("browser.html")
#: A throw-away profile, no accelerator, and nothing that calls home.
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
    "--ignore-certificate-errors",  # the authority is made for this test
)


class _Pages(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        found = {"/": (PAGE, "text/html"), "/mqtt.js": (MQTTJS / "dist" / "mqtt.min.js", "text/javascript")}.get(path)
        if found is None:
            self.send_error(404)
            return
        body = found[0].read_bytes()
        self.send_response(200)
        self.send_header("Content-Type", f"{found[1]}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()
        self.server.posted.put(json.loads(body))  # type: ignore[attr-defined]

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def pages() -> Iterator[http.server.ThreadingHTTPServer]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Pages)
    server.posted = queue.Queue()  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def browse(chromium: str, url: str, profile: Path, posted: queue.Queue[Any]) -> Any:
    """What the page posts."""
    environment = {**os.environ, "HOME": str(profile), "XDG_CONFIG_HOME": str(profile)}
    with (profile / "log").open("wb") as log:
        browser = subprocess.Popen(
            [chromium, *FLAGS, f"--user-data-dir={profile}", url],
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
        try:
            return posted.get(timeout=PATIENCE_S)
        except queue.Empty:
            pytest.fail(f"the page posted nothing: {(profile / 'log').read_text(errors='replace')[-2000:]}")
        finally:
            os.killpg(browser.pid, signal.SIGKILL)  # the session that we started for it, with its helpers
            browser.wait()


@pytest.mark.browser
def test_mqtt_js_in_a_browser(
    threaded_broker: Callable[..., Any], pages: http.server.ThreadingHTTPServer, tmp_path: Path
) -> None:
    chromium = tool("chromium")
    assert chromium is not None
    certfile, keyfile = Authority(tmp_path).issue("127.0.0.1")
    page = f"http://127.0.0.1:{pages.server_port}"
    common = {"type": "ws", "bind": "127.0.0.1:0", "origins": [page]}
    secure = {**common, "ssl": True, "certfile": str(certfile), "keyfile": str(keyfile)}
    broker = threaded_broker({"listeners": {"default": common, "secure": secure}})
    plain, tls = f"ws://127.0.0.1:{broker.port()}/mqtt", f"wss://127.0.0.1:{broker.port('secure')}/mqtt"
    run = [[url, version] for url in (plain, tls) for version in (4, 5)]
    (tmp_path / "profile").mkdir()
    url = f"{page}/?run={quote(json.dumps(run))}"
    seen = browse(chromium, url, tmp_path / "profile", pages.posted)  # type: ignore[attr-defined]
    assert "error" not in seen, seen["error"]
    assert "HeadlessChrome" in seen["agent"]
    assert [[each["url"], each["version"]] for each in seen["results"]] == run
    for each in seen["results"]:
        small = [message for message in each["messages"] if message["topic"] != "page/large"]
        for qos in range(3):
            level = [message["text"] for message in small if message["topic"] == f"page/{qos}"]
            assert level == [str(qos), str(qos + 3)]
        assert sorted(message["qos"] for message in small) == [0, 0, 1, 1, 2, 2, 2]
        assert each["retained"]["bytes"] == 300_000
        assert each["retained"]["retain"] is True
        if each["version"] == 5:
            assert small[0]["properties"]["userProperties"] == {"k": ["v", "w"]}
