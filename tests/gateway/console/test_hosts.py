"""Names under which a console answers, and pages that may ask it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.console.hosts import Hosts, names_of
from tests.gateway.certificates import Authority

HOSTS = Hosts(["Console.example.net"])


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.1:8080", "[::1]", "[::1]:8080", "localhost", "LOCALHOST:80", "192.0.2.7:8443",
     "console.example.net", "CONSOLE.example.net:8443"],
)  # fmt: skip
def test_these_names_are_answered(host: str) -> None:
    assert HOSTS.knows(host)


@pytest.mark.parametrize(
    "host",
    ["", "x", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "127.0.0.1@evil.example",
     "evil.example:8080", "[::1", "localhost/x", "localhost:port", "console.example.net.evil.example", "a b"],
)  # fmt: skip
def test_others_are_not(host: str) -> None:
    assert not HOSTS.knows(host)


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
        assert hosts.knows(f"{name}:8443")
    assert hosts.knows("desk.plant.example")
    assert not hosts.knows("a.desk.plant.example")
    assert not hosts.knows("plant.example")
    with pytest.raises(ValueError, match=r"\w"):
        names_of(Path(__file__))
