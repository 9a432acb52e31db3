"""The API from outside: who gets in, what each may, and what a foreign site or a guesser tries.

Names under which a console answers, and pages that may ask it.
"""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gateway.console.operations import ADMIN, ANYBODY, CHANGE, OPERATIONS
from gateway.console.serving import Hosts, names_of
from tests.gateway.certificates import Authority
from tests.gateway.console.running import Api, Running, console

HOSTS = Hosts(["Console.example.net"])


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.1:8080", "[::1]", "[::1]:8080", "localhost", "LOCALHOST:80", "192.0.2.7:8443",
     "console.example.net", "CONSOLE.example.net:8443"],
)  # fmt: skip
def test_these_names_are_answered(host: str) -> None:
    assert HOSTS.knows_host(host)


@pytest.mark.parametrize(
    "host",
    ["", "x", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "127.0.0.1@evil.example",
     "evil.example:8080", "[::1", "localhost/x", "localhost:port", "console.example.net.evil.example", "a b"],
)  # fmt: skip
def test_others_are_not(host: str) -> None:
    assert not HOSTS.knows_host(host)


@pytest.mark.parametrize(
    ("origin", "host", "may"),
    [
        ("http://127.0.0.1:8080", "127.0.0.1:8080", True),
        ("https://localhost:8443", "LOCALHOST:8443", True),
        ("https://console.example.net", "127.0.0.1:8080", True),  # a proxy asks in another name
        ("http://127.0.0.1:8081", "127.0.0.1:8080", False),  # another server of this machine
        ("https://evil.example", "127.0.0.1:8080", False),
        ("null", "127.0.0.1:8080", False),
        ("", "127.0.0.1:8080", False),
        ("file://127.0.0.1:8080", "127.0.0.1:8080", False),
        ("http://127.0.0.1:8080/x", "127.0.0.1:8080", False),
        ("http://127.0.0.1:8080@evil.example", "127.0.0.1:8080", False),
        ("http://[::1", "127.0.0.1:8080", False),
    ],
)
def test_only_pages_of_ours_may_ask(origin: str, host: str, may: bool) -> None:
    assert HOSTS.may_ask(origin, host) is may


def test_names_of_the_certificate_count(tmp_path: Path) -> None:
    certificate, _ = Authority(tmp_path).issue("broker")
    hosts = Hosts([])
    hosts.certified = names_of(Path(certificate)) | {"*.plant.example"}
    for name in names_of(Path(certificate)):
        assert hosts.knows_host(f"{name}:8443")
    assert hosts.knows_host("desk.plant.example")
    assert not hosts.knows_host("a.desk.plant.example")
    assert not hosts.knows_host("plant.example")
    with pytest.raises(ValueError, match=r"\w"):
        names_of(Path(__file__))


def test_nobody_gets_anything_without_a_login(broker: Running) -> None:
    for one in OPERATIONS:
        if one.who != ANYBODY:
            status, content, _ = broker.api().ask(one.method, one.path.replace("{id}", "ann"))
            assert status == 401, one
            assert content == {"error": "log in, or show a token"}


def test_a_user_has_none_of_the_operations_of_admins(bob: Api) -> None:
    for one in OPERATIONS:
        if one.who in (ADMIN, CHANGE):
            assert bob.ask(one.method, one.path.replace("{id}", "ann"))[0] == 403, one


@pytest.mark.parametrize(
    ("name", "password"), [("ann", ""), ("ann", "bob-pw"), ("", ""), ("nobody", "x"), ("ann", "x" * 9999)]
)
def test_a_wrong_password_is_no_login(broker: Running, name: str, password: str) -> None:
    assert broker.api().log_in(name, password) in (401, 429)


def test_every_answer_forbids_frames_foreign_scripts_and_caches(broker: Running) -> None:
    for path in ("/", "/page.js", "/page.css", "/openapi.json", "/clients"):
        _, _, headers = broker.api().ask("GET", path)
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert "Access-Control-Allow-Origin" not in headers


def test_what_another_site_can_send_changes_nothing(broker: Running, ann: Api) -> None:
    """A form of another site sends no header of ours; a cookie of ours it is not given (SameSite=Strict)."""
    status, _, headers = broker.api().ask("POST", "/login", {"user": "ann", "password": "ann-pw"})
    assert status == 200
    cookie = headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    ann.headers = {"Origin": "https://elsewhere.example", "Content-Type": "text/plain"}
    for one in OPERATIONS:
        if one.method != "GET":
            status, content, _ = ann.ask(one.method, one.path.replace("{id}", "bob"), {"topic": "a", "payload": ""})
            assert status == 403, one
            assert "another site" in content["error"]
    ann.headers = {"Content-Type": "text/plain"}  # of a browser that sends no Origin
    for one in OPERATIONS:
        if one.method != "GET":
            status, content, _ = ann.ask(one.method, one.path.replace("{id}", "bob"), {"topic": "a", "payload": ""})
            assert status == 403, one
            assert "X-Requested-By" in content["error"]


def test_a_name_that_a_foreign_page_had_stand_for_us_gets_no_answer(ann: Api) -> None:
    """DNS rebinding: the browser believes that it asks the page's own host, and sends that name."""
    for path in ("/", "/openapi.json", "/me", "/retained"):
        for host in ("rebound.example", f"rebound.example:{ann.port}"):
            ann.headers = {"Host": host, "X-Requested-By": "x"}
            assert ann.ask("GET", path)[0] == 421, path
    ann.headers = {"Origin": "https://elsewhere.example", "X-Requested-By": "x"}
    assert ann.ask("GET", "/me")[0] == 403
    for origin in (f"http://127.0.0.1:{ann.port}", f"HTTP://127.0.0.1:{ann.port}"):
        ann.headers = {"Origin": origin, "X-Requested-By": "x"}
        assert ann.ask("GET", "/me")[0] == 200


def test_a_body_without_end_is_not_read(ann: Api) -> None:
    with socket.create_connection(("127.0.0.1", ann.port), 10) as connection:
        connection.sendall(b"POST /api/v1/publish HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Requested-By: x\r\nCookie: veilmq=" +
                           ann.cookie.encode() + b"\r\nContent-Length: 99999999999\r\n\r\n")  # fmt: skip
        connection.sendall(b"x" * (2 << 20))
        assert connection.recv(100).split()[1] == b"413"


def test_a_guesser_waits(tmp_path: Path) -> None:
    """Also one whose guesses come at once; and nobody who is logged in, or shows a token, waits with it."""
    with console(tmp_path) as running:
        bob = running.api()
        assert bob.log_in("bob", "bob-pw") == 200
        token = Api(running.port, token=bob.ask("POST", "/tokens", {})[1]["token"])
        with ThreadPoolExecutor(40) as pool:
            codes = list(pool.map(lambda number: running.api().log_in("ann", f"guess-{number}"), range(40)))
        assert sorted(codes) == [401] * 10 + [429] * 30
        assert running.api().log_in("ann", "ann-pw") == 429
        assert Api(running.port, token="x").ask("GET", "/me")[0] == 429
        assert bob.ask("GET", "/me")[0] == token.ask("GET", "/me")[0] == 200
        assert "Traceback" not in (tmp_path / "log").read_text()


def test_one_guess_after_the_other_waits_too(tmp_path: Path) -> None:
    with console(tmp_path) as running:
        codes = [running.api().log_in("ann", f"guess-{number}") for number in range(12)]
        assert codes == [401] * 10 + [429] * 2
        assert running.api().log_in("ann", "ann-pw") == 429


def test_read_only_unless_configured(tmp_path: Path) -> None:
    with console(tmp_path) as running:
        api = running.api()
        assert api.log_in("ann", "ann-pw") == 200
        assert api.ask("GET", "/me")[1]["write"] is False
        for one in OPERATIONS:
            if one.who == CHANGE:
                status, content, _ = api.ask(one.method, one.path.replace("{id}", "bob"))
                assert status == 403, one
                assert "read-only" in content["error"]
