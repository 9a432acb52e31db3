"""`listener` sections: the same addresses, never a wider door."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.importing import ConfError
from tests.gateway.importing.test_mosquitto_conf import made


def listeners(tmp_path: Path, text: str) -> list[dict[str, Any]]:
    return list(made(tmp_path, text).settings["listeners"].values())


@pytest.mark.parametrize(
    ("text", "bind"),
    [
        ("", "localhost:1883"),
        ("port 1884", ":1884"),
        ("bind_address 192.0.2.7", "192.0.2.7:1883"),
        ("listener 1884", ":1884"),
        ("listener 1884 ::1", "[::1]:1884"),
        ("listener 1884 # every address", ":1884"),
        ("listener 1884\nsocket_domain ipv4", "0.0.0.0:1884"),
        ("listener 1884\nsocket_domain ipv6", "[::]:1884"),
        ("listener 0 /run/m.sock", "unix:/run/m.sock"),
    ],
)
def test_the_address_is_the_same(tmp_path: Path, text: str, bind: str) -> None:
    assert [one["bind"] for one in listeners(tmp_path, f"{text}\n")] == [bind]


def test_options_before_any_listener_open_one_more_as_there(tmp_path: Path) -> None:
    binds = [one["bind"] for one in listeners(tmp_path, "max_connections 5\nlistener 1884\n")]
    assert binds == [":1883", ":1884"]
    assert [one["bind"] for one in listeners(tmp_path, "allow_anonymous true\nlistener 1884\n")] == [":1884"]


def test_an_address_alone_lets_nobody_in_unasked(tmp_path: Path) -> None:
    """Only where no line says where to listen does Mosquitto 2 let everybody in."""
    assert not made(tmp_path, "bind_address 192.0.2.7\n").settings["allow_anonymous"]
    assert made(tmp_path, "max_connections 5\n").settings["allow_anonymous"]


def test_the_http_api_does_not_become_a_door_for_mqtt(tmp_path: Path) -> None:
    out = made(tmp_path, "listener 1\nlistener 2\nprotocol http_api\n")
    assert [one["bind"] for one in out.settings["listeners"].values()] == [":1"]
    with pytest.raises(ConfError, match="no listener can be carried over"):
        made(tmp_path, "listener 2\nprotocol http_api\n")


@pytest.mark.parametrize("line", ["cafile ca", "capath ca", "certfile c", "keyfile k", "require_certificate true"])
def test_half_of_tls_is_refused(tmp_path: Path, line: str) -> None:
    assert made(tmp_path, f"listener 1\n{line}\n", False).refusals


def test_the_proxy_protocol_is_taken_from_named_addresses(tmp_path: Path) -> None:
    out = made(tmp_path, "listener 1\nenable_proxy_protocol 2\n")
    assert out.settings["listeners"]["listener1"]["proxy"] == ["127.0.0.1", "::1"]
    assert [one.outcome for one in out.answers if one.name == "enable_proxy_protocol"] == ["changed"]


def test_the_largest_number_of_aliases_counts(tmp_path: Path) -> None:
    limits = made(tmp_path, "listener 1\nmax_topic_alias 5\nlistener 2\nmax_topic_alias 9\n").settings["limits"]
    assert limits["topic_aliases"] == 9
