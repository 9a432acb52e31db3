"""Retained messages: one a topic, within bounds of number and bytes, and gone when they expire."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from amqtt.broker import RetainedApplicationMessage
from hypothesis import given
from hypothesis import strategies as st

from gateway.clients.retained import ENTRY_BYTES, RetainedStore, StoreFullError
from gateway.mqtt5.message import Message

NOW = 1_000.0


def message(topic: str, payload: bytes = b"x", expires_at: float | None = None) -> Message:
    return Message(topic, payload, retain=True, expires_at=expires_at)


def store(maximum: int = 100, maximum_bytes: int = 1 << 20) -> RetainedStore:
    return RetainedStore(maximum, maximum_bytes)


def got(kept: RetainedStore, topic_filter: str, now: float = NOW) -> dict[str, bytes]:
    return {one.topic: one.payload for one in kept.matching(topic_filter, now)}


def test_a_subscriber_gets_the_last_of_every_topic_that_its_filter_matches() -> None:
    kept = store()
    for topic, payload in (("a/b", b"1"), ("a/c", b"2"), ("a/b", b"3"), ("d", b"4"), ("$SYS/x", b"5")):
        kept.retain_message(message(topic, payload))
    assert got(kept, "a/+") == {"a/b": b"3", "a/c": b"2"}
    assert got(kept, "#") == {"a/b": b"3", "a/c": b"2", "d": b"4"}
    assert got(kept, "d") == {"d": b"4"}
    assert got(kept, "nothing") == {}


def test_what_was_kept_since_a_subscription_began_is_not_for_it() -> None:
    kept = store()
    kept.retain_message(message("a", b"1"))
    kept.retain_message(message("b", b"1"))
    began = kept.kept_so_far
    kept.retain_message(message("b", b"2"))
    kept.retain_message(message("c", b"2"))
    kept["d"] = RetainedApplicationMessage(None, "d", b"of a plugin", 0)
    assert {one.topic: one.payload for one in kept.matching("#", NOW, began)} == {"a": b"1", "d": b"of a plugin"}
    assert got(kept, "#") == {"a": b"1", "b": b"2", "c": b"2", "d": b"of a plugin"}


def test_an_empty_payload_clears_and_says_if_something_was_there() -> None:
    kept = store()
    kept.retain_message(message("a"))
    assert kept.retain_message(message("a", b""))
    assert (got(kept, "#"), kept.held_bytes, len(kept)) == ({}, 0, 0)
    assert not kept.retain_message(message("a", b""))


def test_for_a_new_name_the_oldest_goes_and_a_known_one_becomes_the_newest() -> None:
    kept, went = store(maximum=2), list[tuple[str, str]]()
    kept.full = lambda bound, topic: went.append((bound, topic))
    for topic in ("a", "b", "a", "c"):
        kept.retain_message(message(topic))
    assert went == [("retained_messages", "b")]
    kept.retain_message(message("a", b""))
    kept.retain_message(message("d"))
    assert sorted(got(kept, "#")) == ["c", "d"]
    assert len(went) == 1


@pytest.mark.attack(147)
@pytest.mark.parametrize("payload", [b"x", bytes(5_000)], ids=["many names", "many bytes"])
def test_who_fills_the_table_below_one_prefix_takes_nothing_from_others(payload: bytes) -> None:
    """Attack: one publisher fills every reader's table; what others retained on new topics was not kept there."""
    kept = store(maximum=100, maximum_bytes=100_000)
    kept.retain_message(message("plant/a/1"))
    for number in range(500):
        kept.retain_message(message(f"plant/evil/{number % 7}/{number}", payload))
    for topic in ("plant/a/2", "plant/b", "other"):
        kept.retain_message(message(topic))
    for number in range(500):
        with contextlib.suppress(StoreFullError):  # its own new one may be the one that goes
            kept.retain_message(message(f"plant/evil/x{number}/y", payload))
    assert {"plant/a/1", "plant/a/2", "plant/b", "other"} <= got(kept, "#").keys()
    assert kept.held_bytes > 80_000 or len(kept) == 100, "alone it may use all that others do not need"


def test_bytes_are_bounded_and_what_is_replaced_gives_its_own_back() -> None:
    kept = store(maximum_bytes=2 * ENTRY_BYTES + 4_000)
    kept.retain_message(message("a", bytes(3_000)))
    with pytest.raises(StoreFullError) as caught:
        kept.retain_message(message("b", bytes(5_000)))
    assert caught.value.bound == "retained_bytes"
    assert got(kept, "#").keys() == {"a"}, "what could never fit pushes nothing out"
    kept.retain_message(message("a", bytes(3_100)))
    kept.retain_message(message("a", bytes(10)))
    kept.retain_message(message("b", bytes(3_000)))
    kept.adopt_bounds(100, 0)
    assert len(kept) == 2, "what is kept stays"
    with pytest.raises(StoreFullError):
        kept.retain_message(message("c"))


def test_what_expired_is_neither_given_nor_counted() -> None:
    kept = store()
    kept.retain_message(message("a", expires_at=NOW))
    kept.retain_message(message("b", expires_at=NOW - 1))
    kept.retain_message(message("c"))
    assert sorted(got(kept, "#")) == ["a", "c"]
    assert len(kept) == 2
    kept.drop_expired(NOW + 1)
    assert list(kept) == ["c"]


def test_what_is_cleared_while_a_receiver_is_waited_for_is_left_out() -> None:
    kept = store()
    for topic in "abc":
        kept.retain_message(message(topic))
    found = kept.matching("+", NOW)
    first = next(found).topic
    for topic in set("abc") - {first}:
        del kept[topic]
    assert list(found) == []


def test_every_change_is_told() -> None:
    kept, told = store(), list[tuple[str, bytes | None]]()
    kept.changed = lambda topic, one: told.append((topic, None if one is None else one.payload))
    kept.retain_message(message("a", b"1", NOW - 1))
    kept.retain_message(message("a", b"", None))
    kept.retain_message(message("b", b"2", NOW - 1))
    kept.drop_expired(NOW)
    assert told == [("a", b"1"), ("a", None), ("b", b"2"), ("b", None)]


def test_a_plugin_of_amqtt_puts_what_it_likes() -> None:
    kept = store(maximum=1, maximum_bytes=1)
    kept["a"] = RetainedApplicationMessage(None, "a", bytearray(b"plugin"), None)
    (one,) = kept.matching("a", NOW)
    assert (one.payload, one.qos, one.retain) == (b"plugin", 0, True)
    del kept["a"]
    assert kept.held_bytes == 0


@given(st.lists(st.tuples(st.sampled_from(["a", "a/b", "c"]), st.binary(max_size=9), st.sampled_from([None, NOW - 1]))))
def test_bytes_and_names_are_those_of_what_is_kept(steps: list[tuple[str, bytes, Any]]) -> None:
    kept, model = store(), dict[str, bytes]()
    for topic, payload, expires_at in steps:
        kept.retain_message(message(topic, payload, expires_at))
        if payload:
            model[topic] = payload
        else:
            model.pop(topic, None)
        assert sorted(kept) == sorted(model)
    kept.drop_expired(NOW)
    for topic in list(kept):
        del kept[topic]
    assert kept.held_bytes == 0
    assert got(kept, "#") == {}
