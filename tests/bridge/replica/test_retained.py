"""What a replica keeps for others: the newest of each topic, and what it owes once a key comes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.contract import Wire
from bridge.document import Scope
from bridge.replica import retained
from bridge.replica.retained import RETAINED_AHEAD_S, Owed, Owing, Retained, data_key_name
from bridge.wire.admission import Admission, Admitted
from keys.envelope import Mode
from tests.bridge.helpers import NOW, craft
from tests.sim.world import make_world

WORLD = make_world({1: 3}, [], {"a": 1, "b": 1}, [Scope("plant/#"), Scope("clear/#", Mode.PLAIN)])
ADMISSION = Admission(WORLD.overlay, replica=True)


def publication(
    sequence: int,
    sealed_s: float = NOW,
    topic: str = "plant/t",
    publisher: str = "a",
    key: bytes = b"1",
    order: tuple[int, int] = (0, 0),
) -> tuple[Wire, Admitted]:
    if topic.startswith("clear/"):
        wire = craft(WORLD, publisher, topic, sequence=sequence, now=sealed_s, mode=Mode.PLAIN, retain=True)
    else:
        wire = craft(
            WORLD, publisher, topic, sequence=sequence, now=sealed_s, key_id=key * 16, content=b"c", retain=True,
            order=order,
        )  # fmt: skip
    return wire, ADMISSION.publication(dict(wire.properties)["vmq"], wire.topic, sealed_s)


def kept(table: Retained[str]) -> list[int]:
    return [each.admitted.header.sequence for each in table.values()]


def test_the_greatest_number_generation_key_counter_and_time_of_a_topic_is_kept() -> None:
    table: Retained[str] = Retained()
    assert table.keep_value(*publication(5), None, NOW)
    assert not table.keep_value(*publication(5), "key", NOW), "the same"
    assert not table.keep_value(*publication(4, NOW + 1), None, NOW), "sealed later, published before"
    assert table.keep_value(*publication(6, NOW - 1), None, NOW), "its clock was set back"
    assert not table.keep_value(*publication(5, order=(9, 9)), None, NOW)
    for sealed_s, order in ((NOW - 2, (1, 1)), (NOW - 3, (1, 2)), (NOW - 4, (2, 1)), (NOW - 3, (2, 1))):
        assert table.keep_value(*publication(6, sealed_s, order=order), None, NOW)
        assert not table.keep_value(*publication(6, sealed_s, order=order), None, NOW)
    assert not table.keep_value(*publication(6, order=(1, 3)), None, NOW), "of an earlier life, sealed anew later"
    assert table.keep_value(*publication(1, NOW - 50, "plant/u"), None, NOW)
    assert (kept(table), len(table)) == ([6, 1], 2)


@pytest.mark.attack(23)
@given(st.permutations([(1, 0, 0), (2, 1, 1), (2, 1, 2), (2, 2, 1), (3, 0, 0)]))
def test_whatever_came_first_the_same_is_kept(orders: list[tuple[int, int, int]]) -> None:
    table: Retained[str] = Retained()
    for at, (number, generation, counter) in enumerate(orders):
        table.keep_value(*publication(number, NOW + at, order=(generation, counter)), None, NOW)
    assert kept(table) == [3]


def test_a_sealing_time_far_ahead_pins_no_topic() -> None:
    table: Retained[str] = Retained()
    assert not table.keep_value(*publication(1, NOW + RETAINED_AHEAD_S + 0.002), None, NOW)
    assert table.keep_value(*publication(1, NOW + RETAINED_AHEAD_S), None, NOW)


def test_keys_are_named_for_as_long_as_something_is_sealed_under_them() -> None:
    table: Retained[str] = Retained()
    first, second = publication(1), publication(2, topic="plant/u")
    name = data_key_name(first[1])
    assert name == (WORLD.identities["a"].party_id, "plant/#", b"1" * 16)
    table.keep_value(*first, None, NOW)
    table.keep_value(*second, None, NOW)
    table.keep_value(*publication(3, key=b"2"), None, NOW)
    assert table.names_key(name)
    assert table.names_key((name[0], name[1], b"2" * 16))
    assert not table.names_key((WORLD.identities["b"].party_id, *name[1:]))
    table.keep_value(*publication(4, topic="plant/u", key=b"2"), None, NOW)
    assert not table.names_key(name)


def test_a_key_that_comes_is_for_what_is_sealed_under_it_only() -> None:
    table: Retained[str] = Retained()
    wire, admitted = publication(1)
    table.keep_value(wire, admitted, None, NOW)
    table.key_came(wire.topic, (b"x" * 16, "plant/#", b"1" * 16), "false")
    table.key_came("plant/other", data_key_name(admitted), "false")
    assert [each.key for each in table.values()] == [None]
    table.key_came(wire.topic, data_key_name(admitted), "key")
    assert [each.key for each in table.values()] == ["key"]


def test_what_ended_is_dropped_and_counted() -> None:
    table: Retained[str] = Retained()
    for sequence, topic in enumerate(("plant/a", "plant/b", "plant/c"), 1):
        table.keep_value(*publication(sequence, topic=topic, key=b"%d" % sequence), f"key {sequence}", NOW)
    assert table.drop_ended(lambda admitted, key: admitted.header.sequence == 1 or key == "key 3") == 2
    assert kept(table) == [2]
    assert not table.names_key((WORLD.identities["a"].party_id, "plant/#", b"1" * 16))
    assert table.names_key((WORLD.identities["a"].party_id, "plant/#", b"2" * 16))


def test_a_flood_of_topics_evicts_its_publishers_own_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retained, "RETAINED_BYTES", 4 * retained.RETAINED_OVERHEAD_BYTES - 1)
    table: Retained[str] = Retained()
    table.keep_value(*publication(99, publisher="b", topic="plant/honest"), None, NOW)
    for sequence in range(1, 6):
        table.keep_value(*publication(sequence, topic=f"plant/{sequence}", key=b"%d" % sequence), None, NOW)
    assert kept(table) == [99, 4, 5]
    assert len(table._named) == 3


def test_large_ones_are_fewer() -> None:
    table: Retained[str] = Retained()
    wire, admitted = publication(1, topic="plant/small")
    table.keep_value(wire, admitted, None, NOW)
    for sequence in range(2, 30):
        wire, admitted = publication(sequence, topic=f"plant/{sequence}", publisher="b")
        table.keep_value(replace(wire, payload=bytes(retained.RETAINED_BYTES // 8)), admitted, None, NOW)
    assert 1 < len(table) <= 8
    assert kept(table)[0] == 1, "who has most loses its own"


# ------------------------------------------------------------------------------------------------- owing


def test_who_got_what_without_its_key_is_told_when_it_comes_once() -> None:
    owing = Owing()
    _, admitted = publication(1)
    owing.owe_peer(admitted, "r2a")
    owing.owe_peer(admitted, "r2b")
    owing.owe_topic("plant/t", admitted)
    assert owing.settle_key(data_key_name(publication(1, key=b"2")[1])) == Owed()
    assert owing.settle_key(data_key_name(admitted)) == Owed({"r2a", "r2b"}, {"plant/t"})
    assert owing.settle_key(data_key_name(admitted)) == Owed()


def test_for_what_is_plain_nothing_is_owed() -> None:
    owing = Owing()
    _, admitted = publication(1, topic="clear/t")
    owing.owe_peer(admitted, "r2a")
    owing.owe_topic("clear/t", admitted)
    assert owing.settle_key(data_key_name(admitted)) == Owed()
    assert not owing._owed


def test_topics_of_one_key_and_keys_of_one_publisher_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retained, "OWED_MAX", 2)
    monkeypatch.setattr(retained, "OWED_TOPICS_MAX", 2)
    owing = Owing()
    _, admitted = publication(1)
    for topic in ("a", "b", "c"):
        owing.owe_topic(topic, admitted)
    assert owing.settle_key(data_key_name(admitted)).topics == {"a", "b"}
    _, honest = publication(1, publisher="b")
    owing.owe_peer(honest, "r2a")
    flood = [publication(n, key=b"%d" % n)[1] for n in range(1, 5)]
    for one in flood:
        owing.owe_peer(one, "r2a")
    assert owing.settle_key(data_key_name(honest)).peers == {"r2a"}
    assert [bool(owing.settle_key(data_key_name(one)).peers) for one in flood] == [False, False, False, True]
