"""The page in Debian's chromium, beside a gateway in an overlay that traces: by mouse, by keyboard, at two widths.

One overlay and one browser serve all of it.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import paho.mqtt.client as paho
import pytest

from gateway.auth.security import Security
from gateway.trust.credentials import Credentials
from gateway.trust.domains import Card, TrustDomain
from tests.conftest import tool
from tests.gateway.console.running import user
from tests.gateway.overlay_processes import OverlayProcesses
from tests.ports import free_ports
from tests.spark_ingest.chromium import Page, browser
from tests.support.files import edited

pytestmark = [
    pytest.mark.skipif(tool("chromium") is None, reason="needs chromium; run `make tools` as root"),
    pytest.mark.timeout(300),
]

HOSTILE = "<img src=x onerror=alert(1)>"
PICTURES = os.environ.get("VEILMQ_PICTURES")
"""Where screenshots for the documentation go, if they are to be made anew."""
DESK, PHONE = (1280, 800), (390, 844)
CALLED = "e => e.getAttribute('aria-label') || e.name || e.id || e.innerText"
KEYS = {"Tab": (9, ""), "Enter": (13, "\r"), "Escape": (27, "")}


class ConsoleSite:
    """The overlay, the port of the page beside g1, and clients of g1."""

    def __init__(self, overlay: OverlayProcesses, port: int) -> None:
        self.overlay, self.port = overlay, port
        self.clients: dict[str, paho.Client] = {}

    def client(self, name: str) -> paho.Client:
        made = paho.Client(paho.CallbackAPIVersion.VERSION2, name, protocol=paho.MQTTv5)
        made.username_pw_set("ann", "ann-pw")
        made.reconnect_delay_set(60, 60)
        made.connect("127.0.0.1", self.overlay.ports["g1"])
        made.loop_start()
        made.subscribe("plant/#", 1)
        self.clients[name] = made
        return made

    def log_in(self, page: Page, name: str) -> None:
        page.wait_for("document.querySelector('#login') && !document.querySelector('#login').hidden")
        type_into(page, "#login [name=user]", name)
        type_into(page, "#login [name=password]", f"{name}-pw")
        press(page, "Enter")
        page.wait_for("!document.querySelector('nav').hidden")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleSite]:
    """Regions a and b, of which b and a3 never start: away from the beginning."""
    directory = tmp_path_factory.mktemp("page")
    overlay = OverlayProcesses(directory).make({"a": 3, "b": 3}, [("a", "b")], {"g1": "a"})
    overlay.describe(lambda told: told["scopes"][0].update(history={"days": 7, "gigabytes": 1}))
    overlay.hand_out(*overlay.ports)
    (port,) = free_ports(1)
    with edited(directory / "g1.yaml") as content:
        content.pop("allow_anonymous")
        content["plugins"] = {"gateway.auth.dynamic.DynamicPlugin": {"file": "security.json"}}
        content["console"] = {"bind": f"127.0.0.1:{port}", "admins": ["ann"], "write": True}
        content["traces"] = {
            "authority": "owner/ca.pem", "identity": "g1", "preset": "lan", "fleet": {"prefix": "fleet"},
            "devices": {"owner": "shop", "discoverers": ["fleet/#"]},
        }  # fmt: skip
    Security(users={"ann": user("ann-pw", "topic readwrite #"), "bob": user("bob-pw", "topic read plant/#")}).save(
        directory / "security.json"
    )
    Credentials.issue(TrustDomain.load(directory / "owner"), "shop", [Card.load(directory / "g1" / "card.json")],
                      directory / "shop", time.time())  # fmt: skip
    made = ConsoleSite(overlay, port)
    try:
        overlay.start("a1", "a2", "g1")
        yield made
    finally:
        for each in made.clients.values():
            each.disconnect()
            each.loop_stop()
        overlay.stop()


@pytest.fixture(scope="module")
def shared(site: ConsoleSite, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    chromium = tool("chromium")
    assert chromium is not None
    with browser(chromium, tmp_path_factory.mktemp("browser") / "profile") as page:
        page.open(f"http://127.0.0.1:{site.port}/", *DESK)
        page.wait_for("document.querySelector('#login') && !document.querySelector('#login').hidden")
        assert page.evaluate("document.querySelector('nav').hidden")
        for name in ("pump-7", "press-2", HOSTILE):
            site.client(name)
        site.log_in(page, "ann")
        yield page


@pytest.fixture
def page(site: ConsoleSite, shared: Page) -> Page:
    """At a desk, logged in as ann."""
    shared.resize(*DESK)
    return shared


def press(page: Page, key: str) -> None:
    code, text = KEYS[key]
    for kind in ("keyDown", "keyUp"):
        page.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code,
                  **({"text": text} if text and kind == "keyDown" else {}))  # fmt: skip


def type_into(page: Page, selector: str, text: str) -> None:
    page.evaluate(f"document.querySelector({json.dumps(selector)}).focus()")
    page.call("Input.insertText", text=text)


def go(page: Page, section: str) -> None:
    page.evaluate(f"document.querySelector('nav [data-name={section}]').click()")
    page.wait_for(f"!document.getElementById('{section}').hidden")


def focused(page: Page) -> str:
    """What the element that has the focus is called."""
    return str(page.evaluate(f"({CALLED})(document.activeElement)"))


def tab_to(page: Page, name: str) -> None:
    for _ in range(60):
        if focused(page) == name:
            return
        press(page, "Tab")
    raise AssertionError(f"Tab never reaches {name}")


def picture(page: Page, name: str) -> None:
    if PICTURES:
        page.screenshot(Path(PICTURES) / f"{name}.png")


def test_each_section_shows_what_there_is(site: ConsoleSite, page: Page) -> None:
    site.clients["pump-7"].publish("plant/press-2/temp", "21.5", 1, retain=True)
    go(page, "overview")
    page.wait_for("document.querySelector('#findings').innerText.includes('a3 is away')")
    assert page.evaluate("document.querySelector('#level').innerText") == "! degraded"
    go(page, "clients")
    page.wait_for("document.querySelector('#client-table tbody').rows.length == 3")
    names = page.evaluate("[...document.querySelectorAll('#client-table tbody tr')].map(e => e.cells[0].innerText)")
    assert HOSTILE in names
    go(page, "retained")
    page.wait_for("document.querySelector('#retained-table').innerText.includes('21.5')")
    go(page, "log")
    page.wait_for("document.querySelector('#log-table').innerText.includes('login at the console')")
    go(page, "users")
    page.wait_for("document.querySelector('#user-table').innerText.includes('bob')")
    go(page, "try")
    page.evaluate("document.querySelector('#subscribe').requestSubmit()")
    page.wait_for("document.querySelector('#subscribed').innerText == 'subscribed to #'")
    type_into(page, "#publish [name=topic]", "plant/try")
    type_into(page, "#publish [name=payload]", HOSTILE)
    page.evaluate("document.querySelector('#publish').requestSubmit()")
    page.wait_for("document.querySelector('#messages').innerText.includes('plant/try')")
    type_into(page, "#publish [name=topic]", "/#")
    press(page, "Enter")
    page.wait_for("document.querySelector('#error').innerText")
    said = page.evaluate("document.querySelector('#error').innerText")
    page.evaluate("refresh()")
    assert page.evaluate("document.querySelector('#error').innerText") == said, "a look may not wipe it away"
    assert page.evaluate("document.querySelectorAll('img').length") == 0


def test_the_graph_shows_links_and_their_traffic_as_they_are_now(site: ConsoleSite, page: Page) -> None:
    go(page, "overlay")
    text = "document.querySelector('#graph').textContent"
    page.wait_for(
        f"{text}.includes('a3 (away)') && {text}.includes('g1 (here)') && {text}.includes('b: 2 of 3 needed')"
    )
    for number in range(400):
        site.clients["pump-7"].publish("plant/press-2/load", str(number), 1)
    page.wait_for("document.querySelectorAll('#graph .rate').length == 2")
    picture(page, "console-overlay")
    site.overlay.start("a3")
    page.wait_for(f"!{text}.includes('away')")
    assert page.evaluate("document.querySelectorAll('#graph .link.away').length") == 0
    site.overlay.kill("a3")
    page.wait_for("document.querySelector('#graph').getAttribute('aria-label').includes('a3 away')")
    page.evaluate("""graph({name: 'g1', regions: [{name: 'a', members: ['a1', 'a2', 'a3'], needed: 2}], edges: [],
        links: {}, members: {g1: 'gateway', a1: 'replica', a2: 'replica', a3: 'replica'},
        suspected: {a2: 4}, named: ['a3']})""")
    assert page.evaluate("document.querySelector('#graph').getAttribute('aria-label')").endswith(
        "a2 suspected 4×; a3 named; g1 here"
    )
    assert page.evaluate("document.querySelectorAll('#graph path.named').length") == 1, (
        "a form of its own, not a colour"
    )


def test_bars_show_how_far_histories_reach_at_each_replica_and_at_a_quorum(site: ConsoleSite, page: Page) -> None:
    go(page, "overlay")
    site.clients["pump-7"].publish("plant/press-2/load", "1", 1)
    told = "document.querySelector('#reach').getAttribute('aria-label')"
    # They are asked again every ten seconds.
    page.wait_for(f"{told}.includes('a1 0 min; a2 0 min; a3 away; any 2 of 3 0 min')", 40.0)
    assert not page.evaluate("document.querySelector('#histories').hidden")
    assert "plant/#, 7 days in a" in page.evaluate("document.querySelector('#reach').textContent")
    assert page.evaluate("document.querySelectorAll('#reach .kept').length") == 2
    page.evaluate("document.querySelector('#histories').scrollIntoView()")
    picture(page, "console-histories")
    # In one go: a look every two seconds draws what there is.
    label, widths, is_away = page.evaluate("""(() => {
        const of_day = 86400000, now = Date.now(), svg = document.querySelector('#reach');
        reach([{scope: 'plant/<b>#', region: 'a', days: 7, needed: 2, first_ms: now - 2 * of_day, replicas: [
            {replica: 'a1', first_ms: now - 6 * of_day, note: ''},
            {replica: 'a2', first_ms: now - 2 * of_day, note: ''},
            {replica: 'a3', first_ms: 0, note: 'has nothing'}]}]);
        const label = svg.getAttribute('aria-label');
        const widths = [...svg.querySelectorAll('.kept, .quorum')].map(e => +e.getAttribute('width'));
        reach([]);
        return [label, widths, document.querySelector('#histories').hidden]; })()""")
    assert label == "How far histories reach: a1 6 days; a2 2 days; a3 has nothing; any 2 of 3 2 days"
    assert 2.9 < widths[0] / widths[1] < 3.1
    assert widths[2] == widths[1], "as far as the second best"
    assert is_away


def test_readers_are_shown_where_a_scope_has_receipts(page: Page) -> None:
    go(page, "overlay")
    page.wait_for("document.querySelector('#outbox').textContent.includes('Outbox')")
    assert page.evaluate("document.querySelector('#readers').hidden")
    page.evaluate("""const asked = ask, readers = [
            {reader: 'lab<b>', scope: 'plant/#', unreceived_s: 7.4, time_ms: 1e12},
            {reader: 'desk', scope: 'plant/#', unreceived_s: 0, time_ms: 1e12}];
        ask = async (path, ...more) => {
            const now = await asked(path, ...more);
            if (path === '/overlay') now.standing.readers = readers;
            return now; };
        refresh()""")
    page.wait_for("document.querySelectorAll('#reader-table tbody tr').length == 2")
    assert not page.evaluate("document.querySelector('#readers').hidden")
    text = page.evaluate("document.querySelector('#reader-table tbody').innerText")
    assert "lab<b>" in text
    assert "7 s without a receipt" in text
    assert "has all" in text
    page.evaluate("ask = asked; refresh()")
    page.wait_for("document.querySelector('#readers').hidden")


def test_messages_are_followed_and_never_shown(site: ConsoleSite, page: Page) -> None:
    go(page, "trace")
    type_into(page, "#follow [name=topic]", "plant/press-2/+")
    page.evaluate("document.querySelector('#follow').requestSubmit()")
    page.wait_for("document.querySelector('#followed').innerText == 'following plant/press-2/+'")
    site.clients["pump-7"].publish("plant/press-2/temp", "hush-hush", 1)
    page.wait_for("document.querySelector('#step-table').innerText.includes('taken by member')")
    table = page.evaluate("document.querySelector('#step-table').innerText")
    assert {"received", "numbered", "acknowledged", "sent to member"} <= set(re.split(r"[\t\n]", table))
    assert "hush" not in table
    picture(page, "console-trace")
    page.evaluate("document.querySelector('#unfollow').click()")
    assert page.evaluate("document.querySelector('#followed').innerText") == ""


def test_the_day_and_its_alarms_are_drawn(site: ConsoleSite, page: Page) -> None:
    go(page, "overview")
    page.wait_for("document.querySelector('#alarm-table').innerText.includes('a3 is away')")
    page.evaluate("""day({fields: ['at', 'received', 'sent', 'clients'], alarms: [],
        rows: [[Date.now() / 1000 - 7200, 1, 2, 3], [Date.now() / 1000 - 60, 100, 200, 4]]})""")
    points = page.evaluate("document.querySelector('#day .received').getAttribute('points').split(' ').length")
    assert points == 2
    assert not page.evaluate("document.querySelector('#no-alarms').hidden")
    page.evaluate("state.dayAt = 0; refresh()")  # the true day again
    page.wait_for("document.querySelector('#alarm-table').innerText.includes('a3 is away')")


def test_traced_entities_stand_in_a_grid_by_group_and_who_is_away_since_when(site: ConsoleSite, page: Page) -> None:
    go(page, "entities")
    page.wait_for("document.querySelector('#groups').innerText.includes('shop')")
    assert "console" not in page.evaluate("document.querySelector('#entity-grid').innerText"), "our own parts"
    page.wait_for("document.querySelector('#entity-grid').innerText.includes('● shop:press-2')")
    lost = site.clients["press-2"].socket()
    assert lost is not None
    lost.close()  # without DISCONNECT, as if the power went
    page.wait_for("document.querySelector('#away-table').innerText.includes('shop:press-2')")
    page.wait_for("document.querySelector('#entity-grid').innerText.includes('○ shop:press-2')")
    assert "min" in page.evaluate(
        "document.querySelector('#away-table tbody').innerText"
    ) or "just now" in page.evaluate("document.querySelector('#away-table tbody').innerText")
    picture(page, "console-entities")
    page.evaluate("document.querySelector('[aria-label=\"Group shop\"]').click()")
    page.wait_for("document.querySelector('[aria-label=\"Group shop\"]').getAttribute('aria-pressed') == 'true'")


def test_a_question_is_not_answered_by_the_end_of_the_one_before(site: ConsoleSite, page: Page) -> None:
    page.evaluate("""window.answers = [];
        const ask_twice = (name) => sure(name, "Remove").then((answer) => { answers.push([name, answer]); });
        ask_twice("first"); document.querySelector("#sure").close("no"); ask_twice("second"); 0""")
    page.wait_for("answers.length == 1")
    assert page.evaluate("[answers, document.querySelector('#sure').open]") == [[["first", False]], True]
    press(page, "Tab")
    press(page, "Enter")
    page.wait_for("answers.length == 2")
    assert page.evaluate("answers[1]") == ["second", True]


def test_by_keyboard_alone(site: ConsoleSite, page: Page) -> None:
    """Every control is reached by Tab, the focus is seen and survives what is drawn anew, Escape takes nothing away."""
    site.client("drill-1")
    page.evaluate("document.activeElement.blur(); document.querySelector('.skip').focus()")
    press(page, "Enter")
    assert focused(page) == "main"
    for section in ("clients", "overlay", "entities", "retained", "try", "users", "log"):
        go(page, section)
        page.wait_for("!document.querySelector('#error').innerText")
        page.evaluate(f"""window.seen = new Set(); window.called = {CALLED}; document.querySelector('.skip').focus();
            window.wanted = () => [...document.querySelectorAll('a,button,input,textarea,[tabindex="0"]')].filter(
                e => e.checkVisibility() && !e.disabled).map(called)""")
        for _ in range(60):
            name, outline = page.evaluate(
                "(e => [called(e), getComputedStyle(e).outlineStyle])(document.activeElement)"
            )
            assert outline != "none", f"{section}: nobody sees that {name} has the focus"
            page.evaluate(f"seen.add({json.dumps(name)})")
            press(page, "Tab")
            if page.evaluate("document.activeElement.className == 'skip' || document.activeElement == document.body"):
                break
        assert page.evaluate("wanted().filter(name => !seen.has(name))") == [], section
    go(page, "clients")
    page.wait_for("!!document.querySelector('[aria-label=\"Disconnect drill-1\"]')")
    tab_to(page, "Disconnect drill-1")
    page.evaluate("refresh()")
    page.wait_for("document.activeElement.getAttribute('aria-label') == 'Disconnect drill-1'")
    press(page, "Enter")
    page.wait_for("document.querySelector('#sure').open")
    press(page, "Escape")
    page.wait_for("!document.querySelector('#sure').open")
    page.wait_for("document.activeElement.getAttribute('aria-label') == 'Disconnect drill-1'")
    press(page, "Enter")
    page.wait_for("document.querySelector('#sure').open")
    press(page, "Tab")
    press(page, "Enter")
    page.wait_for("""[...document.querySelectorAll('#client-table tbody tr')].every(
        e => e.cells[0].innerText != 'drill-1' || e.cells[2].innerText == 'away')""")
    tab_to(page, "Filters of pump-7")
    press(page, "Enter")
    page.wait_for("document.querySelector('#sub-table').innerText.includes('plant/#')")


def test_on_a_desk_and_on_a_phone(page: Page) -> None:
    for (width, height), name in ((DESK, "desk"), (PHONE, "phone")):
        page.resize(width, height)
        for section in ("overview", "overlay", "entities", "clients", "retained", "try", "trace", "log", "users"):
            go(page, section)
            page.evaluate("refresh()")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{section} scrolls sideways"
            if name == "phone":
                picture(page, f"phone-{section}")
        go(page, "overview")
        page.wait_for("document.querySelector('#totals').innerText.length > 0")
        picture(page, f"console-{name}")
    assert page.evaluate("document.querySelectorAll('h1').length") == 1
    assert page.evaluate("[...document.querySelectorAll('input,textarea')].every(e => e.closest('label'))")


LATE = """window.late = []; window.asked = fetch; window.fetch = async (path, options) => {
    const answer = await asked(path, options), content = await answer.json();
    if (path.endsWith("/logout") || answer.status === 401) await new Promise((go) => late.push([path, go]));
    return { ok: answer.ok, status: answer.status, statusText: answer.statusText, json: async () => content }; };
    window.release = (path) => late.splice(late.findIndex((one) => one[0].endsWith(path)), 1)[0][1](); 0"""
"""Answers of /logout, and those to a login that is over, come when the test says so."""


@pytest.mark.parametrize("moment", ["while somebody types", "after the next login"])
def test_late_answers_to_one_login_disturb_nobody_who_begins_another(
    site: ConsoleSite, page: Page, moment: str
) -> None:
    go(page, "retained")
    # From the beginning of the document on, so that no request is under way that nobody holds.
    script = page.call("Page.addScriptToEvaluateOnNewDocument", source=LATE)["identifier"]
    page.call("Page.reload")
    page.wait_for("!!window.late && !document.querySelector('nav').hidden")
    try:
        page.evaluate("document.querySelector('#logout').click()")
        page.wait_for("late.some(one => one[0].endsWith('/logout'))")
        page.evaluate("refresh(); refresh(); 0")
        page.wait_for("late.filter(one => one[0].endsWith('/overview')).length >= 2")
        page.evaluate("release('/overview')")
        page.wait_for("!document.querySelector('#login').hidden")
        type_into(page, "#login [name=user]", "ann")
        page.evaluate("document.querySelector('#login [name=password]').focus()")
        if moment == "while somebody types":
            page.evaluate("release('/logout')")
        assert focused(page) == "password", "what is typed next would go elsewhere"
        type_into(page, "#login [name=password]", "ann-pw")
        press(page, "Enter")
        page.wait_for("!document.querySelector('nav').hidden")
        if moment == "after the next login":
            page.evaluate("release('/logout')")
        page.evaluate("release('/overview')")
        assert not page.evaluate("document.querySelector('nav').hidden"), "that login was over, not this one"
    finally:
        page.call("Page.removeScriptToEvaluateOnNewDocument", identifier=script)
        page.evaluate("window.fetch = asked; for (const one of late) one[1](); 0")


def test_nothing_comes_from_elsewhere_and_a_user_sees_what_a_user_may(site: ConsoleSite, page: Page) -> None:
    hosts = {each.split("/")[2] for each in page.requested if not each.startswith("data:")}
    assert hosts == {f"127.0.0.1:{site.port}"}
    assert [each for each in page.complaints if "401" not in each and "400" not in each] == []
    page.evaluate("document.querySelector('#logout').click()")
    site.log_in(page, "bob")
    shown = page.evaluate("[...document.querySelectorAll('nav button')].map(e => e.innerText)")
    assert shown == ["Retained", "Try topics"]
