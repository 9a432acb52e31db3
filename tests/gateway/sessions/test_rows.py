"""Between what the broker holds and rows of its database: every field comes back, and damage is one line."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.data import StoreError
from gateway.mqtt5.delivery import Queued
from gateway.mqtt5.message import Message
from gateway.mqtt5.packets import Properties, Subscription, Version, Will
from gateway.mqtt5.session import KeptSession, SessionSubscription
from gateway.sessions.rows import (
    delivery_row,
    kept_of,
    message_of,
    message_row,
    queued_of,
    session_row,
    subscription_of,
    subscription_row,
)

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=10)
topics = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0+#"), min_size=1, max_size=10)
properties = st.builds(
    Properties,
    payload_format=st.none() | st.integers(0, 1),
    content_type=st.none() | texts,
    response_topic=st.none() | topics,
    correlation_data=st.none() | st.binary(max_size=9),
    user=st.lists(st.tuples(texts, texts), max_size=3).map(tuple),
)
times = st.none() | st.floats(0, 2e9)
messages = st.builds(
    Message, topics, st.binary(max_size=50), st.integers(0, 2), st.booleans(), properties, times, texts
)


@given(messages)
@settings(max_examples=60, deadline=None)
def test_a_stored_message_comes_back_with_every_field(message: Message) -> None:
    back = message_of(message_row(7, message))
    for name in ("topic", "payload", "qos", "retain", "expires_at", "publisher", "properties_bytes"):
        assert getattr(back, name) == getattr(message, name), name


wills = st.builds(
    Will,
    topics,
    st.binary(max_size=20),
    st.integers(0, 2),
    st.booleans(),
    st.builds(Properties, will_delay_s=st.none() | st.integers(0, 99), content_type=st.none() | texts),
)
kepts = st.builds(KeptSession, st.sampled_from(Version), st.integers(0, 2**32 - 1), st.none() | wills, times, times)


@given(kepts)
@settings(max_examples=60, deadline=None)
def test_a_stored_session_comes_back_with_every_field(kept: KeptSession) -> None:
    assert kept_of(session_row(3, "me", "user", False, True, kept)) == kept


def test_subscriptions_and_deliveries_come_back_with_every_field() -> None:
    subscription = SessionSubscription(Subscription("$share/g/a/#", 2, True, True, 1), 268_435_455)
    assert subscription_of(subscription_row(3, subscription)) == subscription
    message = Message("t", b"x", 2)
    queued = Queued(message, 1, True, message.held_bytes, (3, 4), 9)
    assert queued_of(delivery_row(9, 3, 5, queued, 0, 0), message) == queued


def test_a_damaged_message_is_one_line() -> None:
    with pytest.raises(StoreError, match=r"message 1 .*damaged"):
        message_of((1, b"\x30\x05ab", None, ""))


@pytest.mark.parametrize("packet", [b"", b"\x30\x05\0\1a\0x" * 2, b"\xc0\0", b"\x30\x05\0\1a\0x\0"])
def test_a_row_that_is_not_one_publication_is_damaged(packet: bytes) -> None:
    with pytest.raises(StoreError, match="empty the directory"):
        message_of((1, packet, None, ""))


def test_a_damaged_will_names_its_client() -> None:
    will = Will("t", b"x", properties=Properties(will_delay_s=5))
    row = session_row(3, "me", None, True, True, KeptSession(Version.V5, 9, will, None, None))
    with pytest.raises(StoreError, match="will of 'me'"):
        kept_of((*row[:-2], b"\x05\x18", None))


def test_a_session_without_a_will_has_none() -> None:
    row = session_row(3, "me", None, True, False, KeptSession(Version.V311, 9, None, None, 5.0))
    assert row == (3, "me", None, True, 4, 9, False, None, 5.0, None, None, None, None, None, None)
    assert kept_of(row).will is None


def test_a_flow_of_which_only_pubrel_is_left_has_no_message() -> None:
    assert delivery_row(9, 3, 5, None, 77, 2) == (9, 3, 0, 2, 0, None, 77, 2)
    message = Message("t", b"x", 1)
    plain = delivery_row(9, 3, 5, Queued(message, 1, False, message.held_bytes), 0, 0)
    assert plain[5] is None
    assert queued_of(plain, message).subscription_ids == ()
