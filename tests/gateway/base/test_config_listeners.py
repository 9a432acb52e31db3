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
