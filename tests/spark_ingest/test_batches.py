"""What one read brings at once means what it means piece by piece; and what liars send with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.reader.intake import FRESH_S
from gateway.mqtt5.codec import Decoder, encode
from gateway.mqtt5.copies import Copies
from gateway.mqtt5.packets import Properties, Publish, Version
from keys.envelope import PROPERTY_HEADER, Mode
from spark_ingest.receiver.acknowledging import acknowledge
from tests.spark_ingest.region import (
    NOW,
    Link,
    Overlay,
    Publisher,
    Sealed,
    Wire,
    check_values,
    collector_of,
    corrupt,
    records,
)

MAXIMUM = 1 << 16


class Connections:
    """Three connections of a receiver as it has them: packets in, acknowledged identifiers out."""

    def __init__(self, overlay: Overlay, **options: Any) -> None:
        shared = Copies()
        self.decoders = {n: Decoder(Version.V5, MAXIMUM, "client", copies=shared) for n in (1, 2, 3)}
        self.collector = collector_of(overlay, acknowledge=acknowledge, **options)
        self.collector.learn(check_values(overlay.names()))
        self.acknowledged: Counter[tuple[int, int]] = Counter()

    def read(self, place: int, wires: Sequence[tuple[int, Wire]], now: float = NOW) -> None:
        """One read of a connection. `wires`: with identifiers."""
        packets = b"".join(
            encode(
                Publish(w.topic, w.payload, 1, w.retain, packet_id=n, properties=Properties(user=w.properties)),
                Version.V5,
            )
            for n, w in wires
        )
        got = self.decoders[place].feed(packets)
        publishes = [one for one in got if isinstance(one, Publish)]
        assert len(publishes) == len(wires)
        sender = Sender(self, place)
        self.collector.receive_all(f"r{place}", publishes, [(sender, one) for one in publishes], now)

    def write(self, max_rows: int = 500) -> list[Any]:
        rows = []
        while group := self.collector.take_group(max_rows):
            rows += group.records
            acknowledge(self.collector.note_written(group))
        return rows


class Sender:
    def __init__(self, connections: Connections, place: int) -> None:
        self._connections, self._place = connections, place

    def acknowledge_all(self, publishes: Iterable[Publish]) -> None:
        self._connections.acknowledged.update((self._place, one.packet_id) for one in publishes)


def spoiled(sealed: Sealed, place: int, how: str, with_key: bool) -> Wire:
    """What replica `place` sends of a publication."""
    wire = sealed.piece(place, with_key=with_key)
    name, told = wire.properties[0]
    if how == "content":
        return replace(wire, payload=wire.payload[:-1] + bytes([wire.payload[-1] ^ 1]))
    if how == "no content":
        return replace(wire, payload=b"")
    if how == "header":
        letter = "A" if told[60] != "A" else "B"
        return replace(wire, properties=((name, told[:60] + letter + told[61:]), *wire.properties[1:]))
    if how == "no text":
        return replace(wire, properties=((name, told + "="), *wire.properties[1:]))
    if how == "topic":
        return replace(wire, topic="plant/elsewhere")
    if how == "retained":
        return replace(wire, retain=True)
    if how == "shares":
        return sealed.piece(place, shares=[corrupt(share) for share in sealed.shares_at(place)])
    if how == "twice":
        return replace(wire, properties=(wire.properties[0], *wire.properties))
    if how == "nothing":
        return replace(wire, properties=())
    return wire


HOWS = (
    "honest", "honest", "honest", "content", "no content", "header", "no text", "topic", "retained", "shares", "twice",
    "nothing", "write", "wait",
)  # fmt: skip


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, list[tuple[int, str, bool]]]]:
    """Reads: a place, and (publication, what is wrong with it, with its key) of each message."""
    message = st.tuples(st.integers(0, 7), st.sampled_from(HOWS), st.booleans())
    return draw(st.lists(st.tuples(st.integers(1, 3), st.lists(message, min_size=1, max_size=8)), max_size=12))


def publications(publisher: Publisher) -> list[Sealed]:
    """One of them sealed twice, one old, one in blocks, one retained."""
    made = [publisher.seal("plant/a", b"%d" % n) for n in range(4)]
    publisher.new_key("plant/#")
    made.append(publisher.seal("plant/a", b"0", sequence=made[0].publication[1], time=NOW + 1))
    made.append(publisher.seal("plant/a", b"old", sequence=100, time=NOW - FRESH_S - 1))
    made.append(publisher.seal("plant/a", bytes(300), sequence=101, mode=Mode.BLOCKS))
    made.append(publisher.seal("plant/b", b"kept", sequence=102, retain=True))
    return made


@given(histories())
def test_a_read_means_what_its_pieces_mean(history: list[tuple[int, list[tuple[int, str, bool]]]]) -> None:
    overlay = Overlay()
    made = publications(Publisher(overlay))
    together, alone = Connections(overlay), Link(overlay)
    now, number = NOW, 0
    told: list[tuple[int, Wire]] = []
    for place, messages in [*history, (1, [(0, "wait", False), (0, "write", False)])]:
        read = []
        for which, how, with_key in messages:
            if how in ("write", "wait"):
                together.read(place, read, now)
                read = []
                if how == "wait":
                    now += 4
                    together.collector.do_due_work(now)
                    alone.collector.do_due_work(now)
                rows = list(records(alone.write())) if how == "write" else []
                assert (together.write() if how == "write" else []) == rows
                continue
            number += 1
            wire = spoiled(made[which], place, how, with_key)
            read.append((number, wire))
            told.append((place, wire))
            alone.send(place, wire, now)
        together.read(place, read, now)
        assert together.collector.figures == alone.collector.figures
        assert together.collector.ready == alone.collector.ready
        acknowledged = [told[packet_id - 1] for _, packet_id in together.acknowledged]
        assert Counter(map(repr_of, acknowledged)) == Counter(map(repr_of, alone.acknowledged))
        assert set(together.acknowledged.values()) <= {1}


def repr_of(piece: tuple[int, Wire]) -> str:
    return f"{piece[0]} {piece[1].topic} {piece[1].payload!r} {piece[1].retain} {piece[1].properties}"


@pytest.mark.parametrize("how", ["content", "no content", "header", "no text", "topic", "shares"])
@pytest.mark.parametrize("first", [True, False])
def test_a_liar_in_the_same_read_changes_no_row(how: str, first: bool) -> None:
    """Also where the honest copies are taken for what they are by their bytes alone."""
    overlay = Overlay()
    made = [Publisher(overlay).seal("plant/a", b"%d" % n) for n in range(1)]
    connections = Connections(overlay)
    lie = [(1, spoiled(made[0], 2, how, True))]
    if first:
        connections.read(2, lie)
    for place in (1, 3):
        connections.read(place, [(1, made[0].piece(place))])
    if not first:
        connections.read(2, lie)
    (row,) = connections.write()
    assert (row.sealed, row.reason, row.wire_topic) == (made[0].content, None, "veilmq/batch/1")
    assert connections.acknowledged == {(place, 1): 1 for place in (1, 2, 3)}
    connections.collector.do_due_work(NOW + 2)
    wrong = {name: n for (name, replica), n in connections.collector.figures.items() if replica == "r2" and n}
    assert wrong


def test_a_copy_of_a_lie_is_a_lie_again() -> None:
    """The same bytes from two replicas: they are decoded once, and found out twice."""
    overlay = Overlay()
    sealed = Publisher(overlay).seal("plant/a")
    connections = Connections(overlay)
    for place in (1, 2):
        connections.read(place, [(1, spoiled(sealed, 1, "header", False))])
    figures = connections.collector.figures
    assert [sum(n for (name, r), n in figures.items() if name.startswith("refused") and r == f"r{p}") for p in (1, 2)]
    assert sum(n for (name, _), n in figures.items() if name.startswith("refused")) == 2
    assert connections.write() == []


def test_nothing_is_acknowledged_before_it_is_written() -> None:
    overlay = Overlay()
    sealed = Publisher(overlay).seal("plant/a")
    connections = Connections(overlay)
    for place in (1, 2, 3):
        connections.read(place, [(7, sealed.piece(place))])
    group = connections.collector.take_group(500)
    assert group is not None
    assert not connections.acknowledged
    connections.read(1, [(8, sealed.piece(1, with_key=False))])  # sent once more while it is being written
    assert not connections.acknowledged
    acknowledge(connections.collector.note_written(group))
    assert connections.acknowledged == {(1, 7): 1, (2, 7): 1, (3, 7): 1, (1, 8): 1}


def test_a_read_may_hold_other_messages_too() -> None:
    """Keys on their topic, and what is neither."""
    overlay = Overlay()
    sealed = Publisher(overlay).seal("plant/a")
    connections = Connections(overlay)
    nothing = Wire("plant/a", b"", properties=((PROPERTY_HEADER, ""),))
    for place in (1, 2):
        connections.read(place, [(1, sealed.entry(place)), (2, nothing), (3, sealed.piece(place, with_key=False))])
    (row,) = connections.write()
    assert row.reason is None
    assert connections.acknowledged.total() == 6
