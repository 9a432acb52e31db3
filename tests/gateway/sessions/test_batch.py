"""Changes that are written together: the newest state of each row, and nothing of what ended meanwhile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gateway.clients import Client, OwedAck
from gateway.mqtt5.delivery import Queued
from gateway.mqtt5.message import Message
from gateway.mqtt5.packets import Publish, Subscription
from gateway.mqtt5.session import ServerSession, SessionSubscription
from gateway.plugins import EdgeSession
from gateway.sessions.batch import Batch, Debt, HeldMessage
from gateway.sessions.rows import message_row

SUBSCRIPTION = SessionSubscription(Subscription("t", 1))


def record(id_: int) -> Any:
    return SimpleNamespace(id=id_, row=lambda: ("session", id_))


def debt() -> Debt:
    return Debt(Client(ServerSession("p"), EdgeSession()), OwedAck(Publish("t", b"", 1)), Message("t", b""), 0)


def test_a_failed_batch_becomes_part_of_the_next_without_what_is_gone_meanwhile() -> None:
    one: Any = object()
    failed, later = Batch(1, first=10), Batch(2, first=20)
    failed.messages, failed.deliveries = {10: one, 12: one}, {11: one, 5: one, 13: one}
    failed.gone_deliveries, failed.retained = [3], {"a": one, "b": one}
    later.deliveries, later.retained = {21: one}, {"a": None}
    later.gone_deliveries, later.gone_messages = [11, 5, 4], [10, 2]
    failed.put_before(later)
    assert later.deliveries.keys() == {13, 21}
    assert later.messages.keys() == {12}
    assert later.gone_deliveries == [3, 5, 4]  # 11 never reached the disk
    assert later.gone_messages == [2]
    assert later.retained == {"a": None, "b": one}
    assert later.first == 10


def test_a_batch_is_empty_until_something_is_to_be_written() -> None:
    assert Batch(1, 1).is_empty
    changed: dict[str, Any] = {
        "sessions": {1: None}, "subscriptions": {(1, "t"): None}, "messages": {1: 1}, "deliveries": {1: 1},
        "received": {1: ""}, "retained": {"t": None}, "gone_messages": [1], "gone_deliveries": [1],
        "kept": {b"k": None},
    }  # fmt: skip
    for name, value in changed.items():
        assert not Batch(1, 1, **{name: value}).is_empty, name
    assert Batch(1, 1, debts=[debt()], gated=[object()], waiters=[print]).is_empty  # type: ignore[list-item]


def test_somebody_waits_while_a_debt_is_open() -> None:
    one, other = debt(), debt()
    batch = Batch(1, 1, debts=[one, other])
    assert batch.is_awaited
    one.settle_debt(0)
    assert batch.is_awaited
    other.settle_debt(0x97)
    assert not batch.is_awaited
    assert (one.owed.code, other.owed.code) == (0, 0x97)
    assert Batch(1, 1, waiters=[print]).is_awaited
    assert Batch(1, 1, gated=[object()]).is_awaited  # type: ignore[list-item]


def test_rows_of_sessions_that_ended_are_not_written_again() -> None:
    batch = Batch(1, 1)
    batch.sessions = {1: record(1), 2: None}
    batch.subscriptions = {(1, "t"): SUBSCRIPTION, (2, "t"): SUBSCRIPTION, (1, "u"): None}
    batch.received = {1 << 16 | 7: "t", 2 << 16 | 7: "", 1 << 16 | 8: None}
    changes = batch.changed_rows()
    assert changes.sessions == [("session", 1)]
    assert changes.gone_sessions == [2]
    assert [row[:2] for row in changes.subscriptions] == [(1, "t")]
    assert changes.gone_subscriptions == [(1, "u")]
    assert (changes.received, changes.gone_received) == ([(1 << 16 | 7, "t")], [1 << 16 | 8])


def test_a_delivery_names_its_stored_message_and_one_half_done_none() -> None:
    message = Message("t", b"x", 1)
    message.stored = HeldMessage(40, 1)
    batch = Batch(1, 1, messages={40: message})
    batch.deliveries = {
        41: (record(1), Queued(message, 1, False, 9), 5, 1), 42: (record(1), None, 6, 2),
    }  # fmt: skip
    changes = batch.changed_rows()
    assert [(row[0], row[1], row[2], row[6]) for row in changes.deliveries] == [(41, 1, 40, 5), (42, 1, 0, 6)]
    assert changes.messages == [message_row(40, message)]


def test_retained_and_kept_rows_are_replaced_or_go() -> None:
    message = Message("a", b"x", 0, True)
    changes = Batch(1, 1, retained={"a": message, "b": None}, kept={b"k": b"v", b"l": None}).changed_rows()
    assert (changes.retained, changes.gone_retained) == ([message_row("a", message)], ["b"])
    assert (changes.kept, changes.gone_kept) == ([(b"k", b"v")], [b"l"])


@pytest.mark.parametrize("name", ["sessions", "subscriptions", "received", "kept"])
def test_what_the_later_batch_knows_is_newer(name: str) -> None:
    failed, later = Batch(1, 1, **{name: {1: "old", 2: "old"}}), Batch(2, 9, **{name: {2: "new", 3: "new"}})  # type: ignore[arg-type]
    failed.put_before(later)
    assert getattr(later, name) == {1: "old", 2: "new", 3: "new"}


def test_who_waited_for_the_failed_batch_waits_for_the_next() -> None:
    failed, later = Batch(1, 1, gated=["a"], waiters=["b"]), Batch(2, 9, gated=["c"], waiters=["d"])  # type: ignore[list-item]
    failed.put_before(later)
    assert (later.gated, later.waiters, later.number) == (["a", "c"], ["b", "d"], 2)
