"""`veilmq ingest dashboard` as a process, watched by a real browser; and what a user can get wrong."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from prometheus_client import CollectorRegistry, start_http_server
from typer.testing import CliRunner

pytest.importorskip("nicegui")
pytest.importorskip("pyarrow")

from spark_ingest.cli import ingest_app
from spark_ingest.dashboard.page import serve
from spark_ingest.errors import IngestError
from spark_ingest.metrics import QueryMetrics, QueryTable
from spark_ingest.sample.spool import write_sample
from spark_ingest.secrets.grants import read_grants
from spark_ingest.spool.writer import SpoolWriter
from tests.conftest import tool
from tests.ports import free_ports
from tests.spark_ingest.chromium import Page, browser
from tests.spark_ingest.dashboard.test_html import HOSTILE
from tests.spark_ingest.region import NOW, Link, Overlay, Publisher, write_grants
from tests.spark_ingest.test_metrics import progress
from tests.waits import PATIENCE_S, wait_until

ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
"""NiceGUI takes a process with these for a test of its own."""
VEILMQ = (sys.executable, "-c", "from gateway.cli import main; main()", "ingest", "dashboard")


@contextlib.contextmanager
def dashboard(port: int, *arguments: str) -> Iterator[str]:
    """The command until the end of the block; the URL of its page."""
    bind = f"127.0.0.1:{port}"
    process = subprocess.Popen(
        [*VEILMQ, *arguments, "--bind", bind], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=ENVIRONMENT
    )

    def answers() -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{bind}/", timeout=5):
            return True
        assert process.poll() is None, process.stdout.read()  # type: ignore[union-attr]
        return False

    try:
        assert wait_until(answers, PATIENCE_S, every_s=0.1), "the page did not come"
        yield f"http://{bind}/"
    finally:
        process.terminate()
        told = process.communicate(timeout=20)[0].decode()
        assert process.returncode in (0, -15), told


class Plant:
    """A spool that grows while it is watched."""

    def __init__(self, directory: Path) -> None:
        self.spool, self.grants = directory / "spool", write_grants(directory / "keys.json")
        overlay = Overlay()
        self._publisher, self._link = Publisher(overlay), Link(overlay)

    def write(self, rows: int, states: dict[str, str]) -> None:
        writer = SpoolWriter(self.spool, "main", cap_bytes=1 << 30)
        writer.roll(b"")
        for number in range(rows):
            self._link.publish(self._publisher.seal("plant/secret-line", b"secret payload %d" % number))
        for entity, state in states.items():
            level = quote(entity, safe="")
            body = json.dumps({"state": state, "since": int(NOW * 1000)}).encode()
            self._link.publish(self._publisher.seal(f"entities/gw1/{level}/availability", body))
        self._link.write(writer)
        writer.close()


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """Of a process with two queries, one of them with a name that would like to be a tag."""
    table, registry = QueryTable(), CollectorRegistry()
    table.progressed(progress("sink"))
    table.progressed(progress(HOSTILE))
    registry.register(QueryMetrics(table))
    server, thread = start_http_server(0, "127.0.0.1", registry)
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def seen(page: Page, rows: int) -> None:
    page.wait_for(f"document.querySelector('section.throughput')?.innerText.includes('{rows}')")


@pytest.fixture(scope="module")
def plant(tmp_path_factory: pytest.TempPathFactory) -> Plant:
    plant = Plant(tmp_path_factory.mktemp("plant"))
    plant.write(41, {"pump": "online", HOSTILE: "offline"})
    return plant


@pytest.fixture(scope="module")
def url(plant: Plant, endpoint: str) -> Iterator[str]:
    """Of the plant's page."""
    told = ("--spool", str(plant.spool), "--grants", str(plant.grants), "--metrics", endpoint)
    with dashboard(free_ports(1)[0], *told, "--cap-bytes", "1000000") as shown:
        yield shown


@pytest.mark.skipif(tool("chromium") is None, reason="needs chromium; run `make tools` as root")
def test_a_live_page_in_a_browser(tmp_path: Path, plant: Plant, url: str) -> None:
    chromium = tool("chromium")
    assert chromium is not None
    with browser(chromium, tmp_path / "profile") as page:
        page.open(url, 1280, 800)
        seen(page, 41)
        plant.write(36, {"pump": "offline", "press": "online"})
        seen(page, 77)
        page.wait_for("document.querySelector('section.entities').innerText.includes('2 offline')")
        page.wait_for("document.querySelector('section.queries tbody th')?.innerText.length > 0")

        names = page.evaluate("[...document.querySelectorAll('section.queries tbody th')].map(e => e.innerText)")
        assert names == [HOSTILE, "sink"]
        assert page.evaluate("[...document.querySelectorAll('.cell b')].map(e => e.innerText)")[0] == HOSTILE
        assert page.evaluate("document.querySelectorAll('img').length") == 0

        # Nothing from elsewhere, and nothing that is wrong with the page.
        assert {each.split("/")[2] for each in page.requested if not each.startswith("data:")} == {url.split("/")[2]}
        assert page.complaints == []

        # No key, payload or topic is anywhere in the page.
        shown = page.evaluate("document.documentElement.outerHTML")
        keys = [key for scope in read_grants(plant.grants).scopes.values() for key in scope.keys.values()]
        assert keys
        for secret in ["secret", "plant/", *(f(key) for key in keys for f in (bytes.hex, _base64))]:
            assert secret not in shown

        for width, height in ((1280, 800), (390, 844)):
            page.resize(width, height)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, "it scrolls sideways"
        labels = page.evaluate("[...document.querySelectorAll('section')].map(e => e.ariaLabel)")
        assert all(labels)
        assert page.evaluate("document.querySelectorAll('h1').length") == 1
        assert page.evaluate("document.documentElement.lang") == "en-US"

        ground = "getComputedStyle(document.body).backgroundColor"
        assert page.evaluate(ground) == "rgb(255, 255, 255)"
        page.evaluate("document.querySelector('header button').focus()")
        assert page.evaluate("document.activeElement.innerText") == "Dark or light"
        page.evaluate("document.activeElement.click()")
        page.wait_for(f"{ground} == 'rgb(22, 24, 26)'")
        page.screenshot(tmp_path / "page.png")
        assert (tmp_path / "page.png").stat().st_size > 10_000


def _base64(key: bytes) -> str:
    return base64.b64encode(key).decode()


def test_names_of_other_machines_are_refused(url: str) -> None:
    """A page of somebody else, whose name suddenly means 127.0.0.1, may not read this one."""
    request = urllib.request.Request(url, headers={"Host": "evil.example"})
    with pytest.raises(urllib.error.HTTPError, match="400"):
        urllib.request.urlopen(request, timeout=10)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"spool": Path("absent")}, "is no spool"),
        ({"grants": Path("absent")}, "absent"),
        ({"bind": "8090"}, "is no HOST:PORT"),
        ({"metrics": ["file:///etc/passwd"]}, "is no endpoint"),
        ({"metrics": ["http://user:hush@host/"]}, "leave them out"),
    ],
)
def test_what_a_user_gets_wrong_is_one_line(tmp_path: Path, wrong: dict[str, Any], told: str) -> None:
    made = write_sample(tmp_path / "sample", rows=20, devices=1)
    options = {"spool": made.spool, "grants": made.grants, "metrics": [], "bind": "127.0.0.1:1", "cap_bytes": None}
    with pytest.raises(IngestError, match=told) as error:
        serve(**(options | wrong))
    assert "\n" not in str(error.value)
    assert "hush" not in str(error.value)


def test_a_port_in_use_is_one_line_and_exit_status_2(tmp_path: Path, endpoint: str) -> None:
    made = write_sample(tmp_path / "sample", rows=20, devices=1)
    told = ("--spool", str(made.spool), "--grants", str(made.grants), "--bind", endpoint.removeprefix("http://"))
    done = CliRunner().invoke(ingest_app, ["dashboard", *told], standalone_mode=False)
    assert (done.return_value, done.stderr.count("\n")) == (2, 1)
    assert "in use" in done.stderr
