"""Rows of what outlives a reader's process: they come back as they were, and say only what changed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.contract.machine import Keep, Received, Restored, Tick, Wire
from bridge.reader.kept import (
    ALIVE,
    ALIVE_EVERY_S,
    STREAM,
    WAITING,
    KeptReader,
    key_of,
    key_row,
    of_kind,
    stream_key,
    stream_of,
    stream_row,
    wire_of,
    wire_row,
)
from bridge.reader.streams import Stream
from keys.envelope import PROPERTY_HEADER
from keys.errors import BadFrame
from tests.bridge.helpers import NOW, craft, delivered, forge_key, subscriber, with_properties
from tests.sim.world import make_world

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
PAIRS = st.lists(st.tuples(WORDS, WORDS), max_size=4)
PUBLISHER = bytes(range(16))


@given(st.sets(st.integers(1, 500), min_size=1), WORDS)
def test_a_stream_comes_back_with_its_gaps(sequences: set[int], topic: str):
    stream = Stream()
    for sequence in sorted(sequences, key=lambda s: s * 7919 % 501):
        if not stream.delivered(sequence):
            stream.mark_delivered(sequence, 0, 0)
    (publisher, name), again = (
        stream_of(stream_key((PUBLISHER, topic))[1:], stream_row(stream))
        if topic
        else (
            (PUBLISHER, topic),
            stream,
        )
    )
    assert (publisher, name) == (PUBLISHER, topic)
    assert [again.delivered(n) for n in range(502)] == [stream.delivered(n) for n in range(502)]
    assert again.first == stream.first


@given(WORDS, st.binary(max_size=50), st.booleans(), PAIRS)
def test_a_wire_and_a_key_come_back_as_they_were(
    topic: str, payload: bytes, retain: bool, pairs: list[tuple[str, str]]
):
    wire = Wire(topic, payload, 1, retain, tuple(pairs))
    assert wire_of(wire_row("r1a", wire, NOW)) == ("r1a", wire, NOW)
    assert key_of(key_row(topic, payload[:32], pairs)) == (topic, payload[:32], pairs)


@pytest.mark.parametrize("row", [b"", bytes(15), bytes(17)])
def test_a_damaged_row_is_refused(row: bytes):
    with pytest.raises(BadFrame):
        stream_of(PUBLISHER + b"t", row)
    with pytest.raises(BadFrame):
        wire_of(b"\xff\xff")


@pytest.mark.attack(40)
def test_what_a_replica_hangs_on_a_wire_that_waits_is_not_kept():
    """Attack: user properties that nobody reads, as long as a packet may be, beside each publication that waits."""
    kept = KeptReader()
    wire = Wire(
        "t", b"x", properties=((PROPERTY_HEADER, "AAAA"), ("vmq-more", "x" * 65_535), (PROPERTY_HEADER, "BBBB"))
    )
    kept.waits((PUBLISHER, "t", 1), "r1a", wire, NOW)
    ((_, row), *_) = next(effect.rows for effect in kept.changed_rows(NOW) if isinstance(effect, Keep))
    assert row is not None
    assert wire_of(row)[1] == replace(wire, properties=((PROPERTY_HEADER, "BBBB"),))


def test_only_what_changed_is_told_and_now_and_then_that_we_live():
    kept = KeptReader()
    assert kept.changed_rows(NOW) == []
    kept.put_row(b"kx", b"1")
    kept.drop_row(b"ky")
    (keep,) = kept.changed_rows(NOW)
    assert isinstance(keep, Keep)
    rows = dict(keep.rows)
    assert (rows.pop(ALIVE), rows) == (int(NOW * 1000).to_bytes(8), {b"kx": b"1", b"ky": None})
    kept.put_row(b"kx", b"2")
    assert kept.changed_rows(NOW + 1) == [Keep(((b"kx", b"2"),))]
    kept.put_row(b"kx", b"3")
    (keep,) = kept.changed_rows(NOW + ALIVE_EVERY_S)
    assert isinstance(keep, Keep)
    assert ALIVE in dict(keep.rows)


def test_what_waits_for_its_key_outlives_us_and_is_delivered_once_it_comes():
    """And its rows go when it is delivered; then nothing of it is taken again."""
    world = make_world({1: 3}, [], {"site": 1, "control": 1})
    key = forge_key(world, "site", "plant/#")
    wire = craft(world, "site", "plant/a", sequence=5, key=key)
    rows: dict[bytes, bytes | None] = {}

    def handled(node, event, now=NOW):
        effects = node.handle(event, now)
        for effect in effects:
            if isinstance(effect, Keep):
                rows.update(effect.rows)
        return effects

    assert not delivered(handled(subscriber(world, "control"), Received("r1a", wire)))
    assert len(of_kind(list(rows.items()), WAITING)) == 1
    again = subscriber(world, "control")
    assert not delivered(handled(again, Restored(tuple((k, v) for k, v in rows.items() if v is not None)), NOW + 9))
    second, effects = craft(world, "site", "plant/b", sequence=6, key=key), []
    for place, peer in ((1, "r1a"), (2, "r1b")):
        carried = key.properties(key.shares[place - 1 : place])
        effects += handled(again, Received(peer, with_properties(second, *carried)), NOW + 10)
    effects += handled(again, Tick(), NOW + 30)
    assert sorted(d.sequence for d in delivered(effects)) == [5, 6]
    live = {k: v for k, v in rows.items() if v is not None}
    assert not of_kind(list(live.items()), WAITING)
    assert len(of_kind(list(live.items()), STREAM)) == 1
    third = subscriber(world, "control")
    third.handle(Restored(tuple(live.items())), NOW + 40)
    assert not delivered(third.handle(Received("r1b", wire), NOW + 41))
