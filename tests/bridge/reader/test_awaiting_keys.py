"""Publications that wait for their key without delaying others: by key, in order, the flooder's oldest first."""

from __future__ import annotations

import pytest

from bridge.reader import waiting
from bridge.reader.streams import Held
from bridge.reader.waiting import Keyless
from bridge.wire.admission import Admission
from tests.bridge.helpers import NOW, craft
from tests.sim.world import make_world

WORLD = make_world({1: 3}, [], {"a": 1, "b": 1})
ADMISSION = Admission(WORLD.overlay, replica=True)


def held(sequence: int, key: bytes = b"1", publisher: str = "a", topic: str = "plant/t", content: bytes = b"c") -> Held:
    wire = craft(WORLD, publisher, topic, sequence=sequence, key_id=key * 16, content=content)
    admitted = ADMISSION.publication(dict(wire.properties)["vmq"], wire.topic, NOW)
    return Held(admitted, wire.payload, topic, NOW, admitted.header.publisher)


def name(one: Held) -> tuple[bytes, str, int]:
    return one.admitted.header.publisher, one.topic, one.admitted.header.sequence


def test_all_that_waited_for_a_key_comes_in_order_once() -> None:
    keyless = Keyless()
    third, first, other = held(3), held(1), held(2, b"2")
    for one in (third, first, other):
        assert keyless.put_held(one)
    assert keyless.holds_name(name(first))
    assert keyless.take_held(b"9" * 16) == []
    assert keyless.take_held(b"1" * 16) == [first, third]
    assert (len(keyless), keyless.holds_name(name(first)), keyless.holds_name(name(other))) == (1, False, True)
    assert keyless.take_held(b"1" * 16) == []
    assert keyless.take_held(b"2" * 16) == [other]


def test_a_later_sealing_takes_the_place_of_the_former_with_its_key() -> None:
    keyless, later = Keyless(), held(1, b"2", content=b"later")
    keyless.put_held(held(1))
    assert keyless.put_held(later)
    assert len(keyless) == 1
    assert keyless.take_held(b"1" * 16) == []
    assert keyless.take_held(b"2" * 16) == [later]


def test_the_same_again_waits_once() -> None:
    keyless = Keyless()
    for _ in range(2):
        assert keyless.put_held(held(1))
    assert len(keyless.take_held(b"1" * 16)) == 1


def test_a_flooder_loses_its_own_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "KEYLESS_BYTES", 4 * waiting.KEPT_OVERHEAD_BYTES - 1)
    keyless, honest = Keyless(), held(1, publisher="b", key=b"b")
    assert keyless.put_held(honest)
    assert [keyless.put_held(held(n)) for n in range(1, 5)] == [True, True, False, False]
    assert keyless.holds_name(name(honest))
    assert [one.admitted.header.sequence for one in keyless.take_held(b"1" * 16)] == [3, 4]
    assert len(keyless._by_key) == 1, "nothing is left of what had to go"
    assert keyless.take_held(b"b" * 16) == [honest]
