"""What every client is granted: by the configuration, its listener, and whether it is a member or part of us."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gateway.base import Limits, Listener
from gateway.base.config import parse
from gateway.broker.member_sessions import RECEIVE_MAXIMUM
from gateway.broker.terms import Terms, internal_listeners

LIMITS = Limits(
    receive_maximum=7, packet_bytes=5000, topic_aliases=3, keep_alive_max_s=20, in_flight=9, queue_messages=11,
    queue_bytes=4096, subscriptions=13, subscription_bytes=512, member_in_flight=17, member_queue_messages=19,
    member_queue_bytes=8192,
)  # fmt: skip
LISTENERS = {
    "own": Listener(queue_messages=5, queue_bytes=2048, when_full="drop_newest"), "usual": Listener(),
    "oldest": Listener(when_full="drop_oldest"), "held": Listener(when_full="hold"),
}  # fmt: skip


@pytest.fixture
def terms() -> Terms:
    return Terms(LIMITS, 99, LISTENERS, lambda bound, client_id: None)


def client(listener: str | None, peer: str | None = None) -> Any:
    connection = None if listener is None else SimpleNamespace(listener=listener)
    return SimpleNamespace(connection=connection, peer=peer, session=SimpleNamespace(limits=None), holds=None)


def test_what_is_offered_is_what_the_limits_say(terms: Terms) -> None:
    offer = terms.offered(is_internal=False)
    assert (offer.receive_maximum, offer.maximum_packet_size, offer.topic_alias_maximum) == (7, 5000, 3)
    assert (offer.session_expiry_max_s, offer.keep_alive_max_s) == (99, 20)


def test_members_may_send_more_and_parts_of_us_stay_as_long_as_they_like(terms: Terms) -> None:
    assert terms.offered(is_internal=False, is_member=True).receive_maximum == RECEIVE_MAXIMUM
    inside = terms.offered(is_internal=True)
    assert (inside.session_expiry_max_s, inside.keep_alive_max_s, inside.receive_maximum) == (0xFFFF_FFFF, 0, 7)


def test_a_session_has_the_bounds_of_its_listener_where_that_has_some(terms: Terms) -> None:
    own, usual = terms.session_limits("own"), terms.session_limits("usual")
    assert (own.queue_messages, own.queue_bytes, own.drops_newest) == (5, 2048, True)
    assert (usual.queue_messages, usual.queue_bytes, usual.drops_newest) == (11, 4096, False)
    assert (own.in_flight_messages, own.subscriptions, own.subscription_bytes) == (9, 13, 512)
    assert terms.session_limits("unknown") is terms.usual


@pytest.mark.parametrize(("listener", "holds"), [("own", False), ("oldest", False), ("held", True), ("unknown", True)])
def test_publishers_wait_for_listeners_that_hold(terms: Terms, listener: str, holds: bool) -> None:
    assert terms.holds_publishers(listener) is holds


def test_what_a_session_is_granted_depends_on_where_it_is(terms: Terms) -> None:
    one, away, member = client("own"), client(None), client("own", peer="r1")
    for each in (one, away, member):
        terms.grant(each)
    assert (one.session.limits, one.holds) == (terms.session_limits("own"), False)
    assert (away.session.limits, away.holds) == (terms.usual, True)
    assert (member.session.limits, member.holds) == (terms.of_peers, False)
    assert (terms.of_peers.in_flight_messages, terms.of_peers.queue_messages) == (17, 19)
    assert terms.of_peers.queue_bytes == 8192


def test_bridges_have_listeners_that_nobody_else_connects_to() -> None:
    bridge = {"addresses": ["127.0.0.1:1"], "queue_messages": 6, "topics": [{"filter": "a/#", "direction": "out"}]}
    found = internal_listeners(parse({"listeners": {"default": {"bind": "127.0.0.1:0"}}, "bridges": {"hq": bridge}}))
    assert list(found) == ["$veilmq/bridge/hq"]
    assert (found["$veilmq/bridge/hq"].queue_messages, found["$veilmq/bridge/hq"].when_full) == (6, "drop_oldest")
    assert internal_listeners(parse({"listeners": {"default": {"bind": "127.0.0.1:0"}}})) == {}
