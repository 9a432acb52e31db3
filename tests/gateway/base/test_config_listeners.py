"""Addresses of listeners: every form of amqtt, and no port that does not exist."""

from __future__ import annotations

import pytest

from gateway.base.config import ConfigError, parse, rebound


@pytest.mark.parametrize("bind", ["127.0.0.1:99999", ":70000", "99999", "[::1]:99999", "127.0.0.1:x", "127.0.0.1:-1"])
def test_a_port_that_does_not_exist_is_refused_and_becomes_no_other(bind: str) -> None:
    with pytest.raises(ConfigError, match="port"):
        parse({"listeners": {"default": {"bind": bind}}})
    with pytest.raises(ConfigError, match="--bind"):
        rebound(parse({}), bind)


@pytest.mark.parametrize("bind", ["127.0.0.1:0", ":1883", "1883", 1883, "[::1]:1883", "localhost", "unix:/run/x", ""])
def test_every_form_of_an_address_is_still_one(bind: object) -> None:
    parse({"listeners": {"default": {"bind": bind}}})


FILES = {"certfile": "c.pem", "keyfile": "k.pem"}


@pytest.mark.parametrize(
    ("told", "expected"),
    [(FILES, True), ({**FILES, "ssl": True}, True), ({**FILES, "ssl": False}, False), ({}, False)],
)
def test_certificate_and_key_switch_tls_on_unless_it_is_switched_off(told: dict[str, object], expected: bool) -> None:
    assert parse({"listeners": {"default": {"bind": "127.0.0.1:1", **told}}}).listeners["default"].ssl is expected


def test_a_listener_inherits_tls_with_its_files_and_may_switch_it_off() -> None:
    told = {"default": {"bind": "127.0.0.1:1", **FILES}, "a": {"bind": ":2"}, "b": {"bind": ":3", "ssl": False}}
    assert [each.ssl for each in parse({"listeners": told}).listeners.values()] == [True, True, False]


def test_a_client_certificate_may_be_required_where_the_files_switch_tls_on() -> None:
    told = {"bind": "127.0.0.1:1", **FILES, "require_client_certificate": True, "cafile": "ca.pem"}
    assert parse({"listeners": {"default": told}}).listeners["default"].require_client_certificate
