"""The page in Debian's chromium, at a desk's and a phone's width, by mouse and by keyboard."""

from __future__ import annotations

import os
from pathlib import Path

import paho.mqtt.client as paho
import pytest

from tests.conftest import tool
from tests.gateway.console.running import Running, console
from tests.spark_ingest.chromium import Page, browser

HOSTILE = "<img src=x onerror=alert(1)>"
PICTURES = os.environ.get("VEILMQ_PICTURES")
"""Where screenshots for the documentation go, if they are to be made anew."""


def log_in(page: Page, name: str, password: str) -> None:
    page.wait_for("document.querySelector('#login') && !document.querySelector('#login').hidden")
    for field, value in (("user", name), ("password", password)):
        page.evaluate(f"document.querySelector('#login [name={field}]').value = '{value}'")
    page.evaluate("document.querySelector('#login button').click()")
    page.wait_for("!document.querySelector('nav').hidden")


def go(page: Page, section: str) -> None:
    page.evaluate(f"document.querySelector('nav [data-name={section}]').click()")
    page.wait_for(f"!document.getElementById('{section}').hidden")


def client(running: Running, name: str) -> paho.Client:
    made = paho.Client(paho.CallbackAPIVersion.VERSION2, name, protocol=paho.MQTTv5)
    made.username_pw_set("ann", "ann-pw")
    made.connect("127.0.0.1", running.mqtt)
    made.loop_start()
    made.subscribe("plant/#", 1)
    return made


@pytest.mark.timeout(240)
@pytest.mark.skipif(tool("chromium") is None, reason="needs chromium; run `make tools` as root")
def test_the_page(tmp_path: Path) -> None:  # noqa: PLR0915  one browser for all of it
    chromium = tool("chromium")
    assert chromium is not None
    with console(tmp_path, write=True) as running, browser(chromium, tmp_path / "profile") as page:
        clients = [client(running, name) for name in ("pump-7", "press-2", HOSTILE)]
        clients[0].publish("plant/press-2/temp", "21.5", 1, retain=True)
        page.open(f"http://127.0.0.1:{running.port}/", 1280, 800)
        page.wait_for("document.querySelector('#login') && !document.querySelector('#login').hidden")
        assert page.evaluate("document.querySelector('nav').hidden")
        log_in(page, "ann", "ann-pw")
        page.wait_for("document.querySelector('#findings').innerText.includes('as it should be')")

        go(page, "clients")
        page.wait_for("document.querySelector('#client-table tbody').rows.length == 3")
        names = page.evaluate("[...document.querySelectorAll('#client-table tbody tr')].map(e => e.cells[0].innerText)")
        assert HOSTILE in names
        assert page.evaluate("document.querySelectorAll('img').length") == 0
        page.evaluate("document.querySelector('[aria-label=\"Disconnect press-2\"]').click()")
        assert not page.evaluate("document.querySelector('#error').innerText")

        go(page, "retained")
        page.wait_for("document.querySelector('#retained-table').innerText.includes('21.5')")
        go(page, "subscriptions")
        page.wait_for("document.querySelector('#sub-table').innerText.includes('plant/#')")
        go(page, "entities")
        page.wait_for("!document.querySelector('#no-entities').hidden")
        go(page, "log")
        page.wait_for("document.querySelector('#log-table').innerText.includes('login at the console')")
        go(page, "users")
        page.wait_for("document.querySelector('#user-table').innerText.includes('bob')")

        go(page, "try")
        page.evaluate("document.querySelector('#subscribe').requestSubmit()")
        page.evaluate("document.querySelector('#publish [name=topic]').value = 'plant/try'")
        page.evaluate(f"document.querySelector('#publish [name=payload]').value = '{HOSTILE}'")
        page.evaluate("document.querySelector('#publish').requestSubmit()")
        page.wait_for("document.querySelector('#messages').innerText.includes('plant/try')")
        assert page.evaluate("document.querySelectorAll('img').length") == 0

        # By keyboard alone: Tab stops at each field of the form in order, Enter opens a section.
        page.evaluate("document.activeElement.blur()")
        stops = []
        for _ in range(4):
            for kind in ("keyDown", "keyUp"):
                page.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
            stops.append(page.evaluate("document.activeElement.name || document.activeElement.innerText"))
        assert len(set(stops)) == 4
        page.evaluate("document.querySelector('nav [data-name=overview]').focus()")
        for kind in ("keyDown", "keyUp"):
            page.call(
                "Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r"
            )
        page.wait_for("!document.getElementById('overview').hidden")

        for width, height, name in ((1280, 800, "desk"), (390, 844, "phone")):
            page.resize(width, height)
            for section in ("overview", "clients", "try", "log", "users"):
                go(page, section)
                assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{section} scrolls sideways"
            go(page, "overview")
            page.wait_for("document.querySelector('#totals').innerText.length > 0")
            if PICTURES:
                page.screenshot(Path(PICTURES) / f"console-{name}.png")
        assert page.evaluate("document.querySelectorAll('h1').length") == 1
        assert page.evaluate("[...document.querySelectorAll('input,textarea')].every(e => e.closest('label'))")
        hosts = {each.split("/")[2] for each in page.requested if not each.startswith("data:")}
        assert hosts == {f"127.0.0.1:{running.port}"}
        assert [each for each in page.complaints if "401" not in each] == []

        page.evaluate("document.querySelector('#logout').click()")
        page.wait_for("!document.querySelector('#login').hidden")
        log_in(page, "bob", "bob-pw")
        shown = page.evaluate("[...document.querySelectorAll('nav button')].map(e => e.innerText)")
        assert shown == ["Retained", "Try topics"]
        for each in clients:
            each.loop_stop()
