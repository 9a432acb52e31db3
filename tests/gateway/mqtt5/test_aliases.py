from __future__ import annotations

import pytest

from gateway.mqtt5.aliases import NO_INBOUND, NO_OUTBOUND, InboundAliases, OutboundAliases
from gateway.mqtt5.types import ProtocolViolation, TopicAliasInvalid


def test_inbound_aliases() -> None:
    aliases = InboundAliases(2)
    assert aliases.resolve("a", 1) == "a"
    assert aliases.resolve("", 1) == "a"
    assert aliases.resolve("b", 1) == "b"
    assert aliases.resolve("", 1) == "b"
    for alias in (3, 0):
        with pytest.raises(TopicAliasInvalid):
            aliases.resolve("a", alias)
    with pytest.raises(ProtocolViolation):
        aliases.resolve("", 2)


def test_outbound_aliases_are_defined_once_and_bounded() -> None:
    aliases = OutboundAliases(1)
    assert aliases.look_up("long/topic/1") == (1, True)
    assert aliases.look_up("long/topic/1") == (1, True), "not defined before its packet is sure to go"
    aliases.define("long/topic/1", 1)
    assert aliases.look_up("long/topic/1") == (1, False)
    assert aliases.look_up("long/topic/2") == (0, False)
    assert OutboundAliases(1).look_up("t/1") == (0, False), "it would save nothing"


def test_connections_without_aliases_share_what_knows_none() -> None:
    with pytest.raises(TopicAliasInvalid):
        NO_INBOUND.resolve("a", 1)
    assert NO_OUTBOUND.look_up("long/topic/1") == (0, False)
