"""Which retained values a bridge passes on after it has connected, and which it clears."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bridge.base import matches
from gateway.base import BridgeTopic
from gateway.bridging.mapping import Marks, Topics
from gateway.bridging.retained import QUIET_S, RetainedState
from gateway.mqtt5.message import Message
from gateway.mqtt5.packets import NO_PROPERTIES

BROUGHT = Marks("we").entering(NO_PROPERTIES, ("m",))


class Table:
    """Retained messages, and topics of which a change waits."""

    def __init__(self, *messages: Message) -> None:
        self.messages, self.waiting = list(messages), set[str]()

    def retained(self, topic_filter: str) -> Iterator[Message]:
        return (one for one in self.messages if matches(topic_filter, one.topic))

    def retained_waiting(self, bridge: str) -> set[str]:
        return self.waiting


def state(table: Table, *, has_session: bool = True) -> RetainedState:
    topics = Topics([BridgeTopic(filter="in/#", direction="in"), BridgeTopic(filter="b/#", direction="both")])
    one = RetainedState("m", table, topics)
    one.begin_comparison("m", has_session, 0.0)
    return one


def brought(topic: str, payload: bytes = b"1") -> Message:
    return Message(topic, payload, retain=True, properties=BROUGHT)


def test_equal_values_go_no_further_and_other_ones_do() -> None:
    one = state(Table(brought("in/a")))
    assert one.is_known("in/a", b"1", 0.1)
    assert not one.is_known("in/a", b"2", 0.2)
    assert not one.is_known("in/new", b"1", 0.3)


def test_what_comes_no_more_is_cleared_unless_it_is_ours_or_the_other_broker_began_anew() -> None:
    table = Table(brought("in/a"), brought("in/gone"), Message("in/own", b"1", retain=True), brought("out/x"))
    one = state(table)
    one.is_known("in/a", b"1", 0.1)
    assert one.ends_at == pytest.approx(0.1 + QUIET_S)
    assert one.end_comparison() == ["in/gone"]
    assert one.ends_at is None
    anew = state(table, has_session=False)
    assert [message.topic for message in anew.brought] == ["in/a", "in/gone"]
    assert anew.end_comparison() == []


def test_what_changed_here_meanwhile_counts_whatever_the_other_broker_has() -> None:
    table = Table(brought("b/x"))
    table.waiting = {"b/x", "b/cleared"}
    one = state(table)
    assert one.is_known("b/x", b"old", 0.1)
    assert one.is_known("b/cleared", b"old", 0.1)
    assert one.end_comparison() == []


def test_after_it_every_message_counts() -> None:
    one = state(Table(brought("in/a")))
    one.end_comparison()
    assert not one.is_known("in/a", b"1", 9.0)
    one.begin_comparison("m", True, 10.0)
    one.stop()
    assert not one.is_known("in/a", b"1", 10.1)
