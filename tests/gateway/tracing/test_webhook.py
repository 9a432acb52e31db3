"""Alerts reach their endpoint in order, are tried again, and follow no redirect."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import pytest

from gateway.tracing import webhook
from gateway.tracing.webhook import TRIES, WAITING_MAX, WaitingAlerts, Webhook
from tests.waits import wait_until


class Endpoint(http.server.BaseHTTPRequestHandler):
    answers: list[int]
    taken: list[tuple[str, bytes]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.taken.append((self.headers["Content-Type"], body))
        code = self.answers.pop(0) if self.answers else 204
        self.send_response(code)
        if code == 302:
            self.send_header("Location", "/elsewhere")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[tuple[str, type[Endpoint]]]:
    made = type("Made", (Endpoint,), {"answers": [], "taken": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), made)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/alerts", made
    server.shutdown()
    server.server_close()
    thread.join()


def test_alerts_arrive_in_order(endpoint: tuple[str, type[Endpoint]]) -> None:
    url, made = endpoint
    call = Webhook(url)
    for place in range(5):
        call(b"%d" % place, "shop")
    assert wait_until(lambda: len(made.taken) == 5)
    assert made.taken == [("application/json", b"%d" % place) for place in range(5)]


@pytest.mark.long
def test_what_is_refused_is_tried_again_and_a_redirect_is_a_refusal(endpoint: tuple[str, type[Endpoint]]) -> None:
    url, made = endpoint
    made.answers += [500, 302]
    Webhook(url)(b"away", "shop")
    assert wait_until(lambda: len(made.taken) == TRIES)
    assert {body for _, body in made.taken} == {b"away"}


def test_an_endpoint_that_is_away_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = threading.Event()
    monkeypatch.setattr(webhook.Webhook, "_post", lambda self, alert: stuck.wait(30) and None)
    call = Webhook("http://127.0.0.1:1/")
    for place in range(WAITING_MAX + 50):
        call(b"%d" % place, "shop")
    assert len(call._waiting) <= WAITING_MAX
    stuck.set()


@pytest.mark.attack(169)
def test_a_group_of_which_thousands_die_keeps_no_alert_of_others_back() -> None:
    """Attack: thousands of one owner's devices go, and the alerts of others were the oldest, and went."""
    waiting = WaitingAlerts()
    waiting.put_alert("shop", b"door", 1)
    dropped = [waiting.put_alert("evil", b"%d" % number, 1) for number in range(2 * WAITING_MAX)].count(False)
    assert (dropped, len(waiting)) == (WAITING_MAX + 1, WAITING_MAX)
    assert waiting.take_alert() == ("shop", b"door", 1)
    assert waiting.take_alert()[1] == b"%d" % (WAITING_MAX + 1), "the oldest of the others"
