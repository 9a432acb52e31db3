"""What one packet costs where many devices are known: counted, not timed, so that no fast machine hides it.

A look is `judge`, asked of one device; a word is one statement about one device.

Work in turns: paced by origin, nobody's behind another's, and begun again without a heap of repetitions.
"""

from __future__ import annotations

import json

import pytest

from bridge.contract import Tick
from bridge.devices import device_verdicts, speaking
from bridge.devices.conventions import TOPICS_OF_DEVICE_MAX
from bridge.devices.device_verdicts import EVENTS_BURST, FEW, LOOKS_AT_ONCE, LOOKS_AT_TICK, WorkInTurns
from bridge.devices.devices import Devices
from bridge.devices.events import DeviceEvent, Published
from bridge.devices.life_evidence import DeviceHealth
from bridge.devices.rules import DeviceRules
from bridge.traces import EntityConnected, EntityGone

A, B = b"192.0.2.1", b"192.0.2.2"


def done(turns: WorkInTurns[str], now: float, most: int = 1_000) -> list[tuple[str, str]]:
    return list(turns.due_names(now, most))


def test_each_origin_has_its_own_pace() -> None:
    turns: WorkInTurns[str] = WorkInTurns(10.0)
    turns.begin_work(A, "a", lambda: [f"a{number}" for number in range(1_000)], "x", 0.0)
    turns.begin_work(B, "b", lambda: ["b0", "b1"], "y", 0.0)
    assert turns.next_deadline == 0.1
    assert done(turns, 0.05) == []
    assert sorted(done(turns, 0.1)) == [("a0", "x"), ("b0", "y")]
    assert sorted(done(turns, 0.21)) == [("a1", "x"), ("b1", "y")]
    assert len(done(turns, 5.0)) == 48, "the flooder's goes on at its pace"
    assert len(done(turns, 1_000.0, most=7)) == 7
    assert len(done(turns, 1_000.0)) == 1_000 - 2 - 48 - 7
    assert turns.next_deadline is None


def test_works_of_one_origin_take_turns() -> None:
    turns: WorkInTurns[str] = WorkInTurns(1.0)
    turns.begin_work(A, "long", lambda: map(str, range(100)), "long", 0.0)
    turns.begin_work(A, "short", lambda: ["x"], "short", 0.0)
    assert done(turns, 2.0) == [("0", "long"), ("x", "short")]


def test_what_begins_again_has_the_newest_data_and_starts_over_at_its_end() -> None:
    turns: WorkInTurns[str] = WorkInTurns(1.0)
    names = ["a", "b", "c"]
    turns.begin_work(A, "k", lambda: names, "old", 0.0)
    assert done(turns, 1.0) == [("a", "old")]
    for number in range(1_000):
        turns.begin_work(A, "k", lambda: names, f"new {number}", 1.0)
    assert turns.is_under_way(A, "k")
    names.append("d")
    assert [name for name, data in done(turns, 100.0) if data == "new 999"] == ["b", "c", "a", "b", "c", "d"]
    assert not turns.is_under_way(A, "k")
    turns.begin_work(A, "none", list, "x", 0.0)
    assert done(turns, 100.0) == []
    assert turns.next_deadline is None


NOW = 1_000.0
FEW_NAMES, MANY_NAMES = 50, 5_000


class Counted:
    """Devices of one client, and how much is done for each event."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.work = 0
        self.devices = Devices(DeviceRules(clients=()))
        self.now = NOW
        for module, name in ((device_verdicts, "judge"), (speaking.Speaking, "device"), (speaking.Speaking, "claim")):
            self._count(monkeypatch, module, name)
        self.handle(EntityConnected("evil", 60, "192.0.2.1"))

    def _count(self, monkeypatch: pytest.MonkeyPatch, place: object, name: str) -> None:
        original = getattr(place, name)

        def counting(*arguments: object) -> object:
            self.work += 1
            return original(*arguments)

        monkeypatch.setattr(place, name, counting)

    def handle(self, event: DeviceEvent) -> int:
        """How much work it was."""
        before = self.work
        self.devices.handle(event, self.now)
        return self.work - before

    def publish(self, topic: str, payload: bytes) -> int:
        return self.handle(Published("evil", topic, payload))

    def config(self, device: str, topic: str) -> int:
        said = {"unique_id": device, "availability_topic": topic}
        return self.publish(f"homeassistant/sensor/{device}/config", json.dumps(said).encode())

    def run(self, seconds: float) -> int:
        """Time passes; the most work of one look at what is due."""
        end, most = self.now + seconds, 0
        while (due := self.devices.next_deadline) is not None and due <= end:
            self.now = max(self.now, due)
            most = max(most, self.handle(Tick()))
        self.now = end
        return most

    def health(self, name: str) -> DeviceHealth | None:
        device = self.devices.device(name)
        return None if device is None else device.told


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("names", [FEW_NAMES, MANY_NAMES])
def test_a_word_on_a_topic_that_many_watch_costs_one_packet_little(counted: Counted, names: int) -> None:
    """`offline` on a topic that 40 of the client's devices name: each is read in its turn."""
    for number in range(names):
        counted.config(f"d{number}", "a/x" if number < 40 else f"a/{number}")
    costs = [counted.publish("a/x", word) for word in (b"online", b"offline") * 20]
    assert max(costs) <= 2
    assert counted.run(2.0) <= 8 * LOOKS_AT_TICK
    assert {counted.health(f"d{number}") for number in range(40)} == {DeviceHealth.FAILED}, "the last word counts"
    counted.publish("a/x", b"online")
    counted.run(2.0)
    assert {counted.health(f"d{number}") for number in range(40)} == {DeviceHealth.ALIVE}


@pytest.mark.long
@pytest.mark.parametrize("names", [FEW_NAMES, MANY_NAMES])
def test_a_word_about_one_device_costs_nothing_for_the_others(counted: Counted, names: int) -> None:
    for number in range(names):
        counted.config(f"d{number}", f"a/{number}")
        counted.publish(f"homie/h{number}/$state", b"ready")
    assert max(counted.publish("a/7", word) for word in (b"online", b"offline", b"online")) <= 10
    assert max(counted.publish("homie/h7/$state", word) for word in (b"lost", b"ready")) <= 10
    assert counted.config("d7", "a/new") <= 10


@pytest.mark.long
@pytest.mark.parametrize("names", [200, MANY_NAMES])
def test_the_death_of_a_node_reaches_its_devices_in_turns(counted: Counted, names: int) -> None:
    counted.publish("spBv1.0/g/NBIRTH/n", b"")
    for number in range(names):
        counted.publish(f"spBv1.0/g/DBIRTH/n/d{number}", b"")
    first = counted.publish("spBv1.0/g/NDEATH/n", b"")
    assert first <= 5 * LOOKS_AT_ONCE
    again = [counted.publish("spBv1.0/g/NDEATH/n", b"") for _ in range(50)]
    assert max(again) <= 20, "what is under way already is not begun at once again"
    reborn = names - 1
    counted.publish(f"spBv1.0/g/DBIRTH/n/d{reborn}", b"")
    assert counted.run(names / device_verdicts.LOOKS_PER_S * 2 + 5) <= 8 * LOOKS_AT_TICK
    assert {counted.health(f"g:n:d{number}") for number in range(reborn)} == {DeviceHealth.GONE}
    assert counted.health(f"g:n:d{reborn}") is DeviceHealth.ALIVE, "it was born after the death that it heard of late"


def test_a_node_that_dies_again_and_again_has_no_more_looked_at_at_once(counted: Counted) -> None:
    counted.publish("spBv1.0/g/NBIRTH/n", b"")
    for number in range(LOOKS_AT_ONCE):
        counted.publish(f"spBv1.0/g/DBIRTH/n/d{number}", b"")
    costs = [counted.publish("spBv1.0/g/NDEATH/n", b"") for _ in range(100)]
    assert sum(cost > 20 for cost in costs) <= EVENTS_BURST


def test_a_connection_with_many_devices_comes_and_goes(counted: Counted) -> None:
    for number in range(MANY_NAMES):
        counted.publish(f"homie/h{number}/$state", b"ready")
    costs = []
    for _ in range(30):
        costs.append(counted.handle(EntityGone("evil", False, "lost")))
        costs.append(counted.handle(EntityConnected("evil", 60, "192.0.2.1")))
    assert max(costs) <= 6 * LOOKS_AT_ONCE
    assert sum(costs[-20:]) <= 20 * 3 * FEW


def test_topics_of_one_device_are_bounded(counted: Counted) -> None:
    for number in range(3 * TOPICS_OF_DEVICE_MAX):
        document = json.dumps({"dev": {"ids": "d"}, "avty_t": f"a/{number}"}).encode()
        counted.publish(f"homeassistant/sensor/d{number}/config", document)
    assert len(counted.devices._conventions) == TOPICS_OF_DEVICE_MAX
    counted.publish("a/0", b"online")
    assert counted.health("d") is None
    counted.publish(f"a/{3 * TOPICS_OF_DEVICE_MAX - 1}", b"online")
    assert counted.health("d") is DeviceHealth.ALIVE


def test_what_is_heard_late_is_nobodys_who_left(counted: Counted) -> None:
    """The words of a client wait for their turn; it is no longer believed once it speaks VeilMQ itself."""
    for number in range(40):
        counted.config(f"d{number}", "a/x")
    counted.publish("a/x", b"online")
    link = counted.devices._speaking.link_of("evil")
    assert link is not None
    link.knows = True
    counted.run(2.0)
    assert {counted.health(f"d{number}") for number in range(40)} == {None}
