"""The publishers of the demonstration: what is sent and confirmed is written down, in order, at its rate."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from paho.mqtt.enums import MQTTProtocolVersion

from gateway.demo import telemetry
from gateway.demo.child import STOP
from gateway.demo.logs import LineLog, read_lines, sent_messages
from gateway.demo.sensors import Reading, sweep
from gateway.demo.telemetry import BEHIND_S, DemoDevice, Publishers, publish_for


class FakeClient:
    """paho's client: numbers what it publishes, and confirms it when a test says so."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.options, self.published = options, list[Any]()
        self.on_publish: Any = None

    def publish(self, topic: str, payload: str, qos: int, properties: Any) -> Any:
        self.published.append((topic, payload, qos, properties))
        return SimpleNamespace(mid=len(self.published))

    def confirm(self, mid: int, refused: bool = False) -> None:
        self.on_publish(self, None, mid, SimpleNamespace(is_failure=refused), None)

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: None


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "Client", FakeClient)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LineLog]:
    with LineLog(tmp_path / "log") as made:
        yield made


def confirmed(log: LineLog, tmp_path: Path) -> list[str]:
    log.flush()
    return [line["confirmed"] for line in read_lines(tmp_path / "log") if "confirmed" in line]


def device(log: LineLog | None, version: MQTTProtocolVersion = MQTTProtocolVersion.MQTTv5) -> tuple[DemoDevice, Any]:
    made = DemoDevice("sensors", 1883, version, log)
    return made, made.client


def test_a_confirmation_counts_once(log: LineLog, tmp_path: Path) -> None:
    made, client = device(log)
    made.publish("m0", "t", "x", ())
    assert made.unconfirmed == 1
    client.confirm(1)
    assert made.unconfirmed == 0
    client.confirm(1)
    assert confirmed(log, tmp_path) == ["m0"]


def test_what_was_refused_is_not_confirmed(log: LineLog, tmp_path: Path) -> None:
    made, client = device(log)
    made.publish("m0", "t", "x", ())
    client.confirm(1, refused=True)
    assert made.unconfirmed == 0
    assert confirmed(log, tmp_path) == []


def test_probes_are_in_no_log(log: LineLog, tmp_path: Path) -> None:
    made, client = device(log)
    made.publish("probe-v5-0", "t", "x", ())
    client.confirm(1)
    assert confirmed(log, tmp_path) == []


def test_only_mqtt_5_has_user_properties() -> None:
    reading = next(iter(sweep()))
    assert device(None, MQTTProtocolVersion.MQTTv311)[0].properties_of(reading) == ()
    made, client = device(None)
    properties = made.properties_of(reading)
    assert properties == (("sensor", reading.sensor), ("unit", reading.unit))
    made.publish("m0", "t", "x", properties)
    assert client.published[0][3].UserProperty == list(properties)


def test_a_sensor_stays_with_one_client_and_every_message_has_a_twin(log: LineLog, tmp_path: Path) -> None:
    publishers = Publishers(1, 2, log)
    readings = list(sweep())[:6]
    for number, reading in enumerate([*readings, *readings]):
        publishers.send_reading(number, reading)
    clients: list[Any] = [each.client for each in publishers.devices]
    topics = [[topic for topic, *_ in client.published] for client in clients]
    assert not set(topics[0]) & set(topics[1])
    assert abs(len(topics[0]) - len(topics[1])) <= 2
    twin: Any = publishers._twin.client
    assert [payload for _, payload, *_ in twin.published] == [
        payload for _, payload, *_ in sorted((each for client in clients for each in client.published),
                                            key=lambda each: [one[1] for one in twin.published].index(each[1]))
    ]  # fmt: skip
    log.flush()
    sent = sent_messages(read_lines(tmp_path / "log"))
    assert set(sent) == {f"m{number}" for number in range(12)}
    assert publishers.unconfirmed == 12, "twins do not count"


class Clock:
    """A monotonic clock that only waiting moves, and commands that come at a time."""

    def __init__(self, stop_at: float = float("inf"), busy: dict[int, float] | None = None) -> None:
        self.now, self.stop_at, self.waits, self.busy = 1_000.0, stop_at, 0, busy or {}

    def monotonic(self) -> float:
        return self.now

    def next_word(self, _: Any, seconds: float) -> str | None:
        self.waits += 1
        self.now += max(0.0, seconds) + self.busy.get(self.waits, 0.0)
        return STOP if self.now >= self.stop_at else None


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Publishes for a while on a clock of its own: how many were sent."""

    def run(clock: Clock, rate: float, seconds: float) -> tuple[int, list[tuple[int, Reading]]]:
        found: list[tuple[int, Reading]] = []
        publishers: Any = SimpleNamespace(
            send_reading=lambda number, reading: found.append((number, reading)), loop=clock
        )
        monkeypatch.setattr(telemetry, "time", SimpleNamespace(monotonic=clock.monotonic))
        monkeypatch.setattr(telemetry, "emit", lambda event, **fields: None)
        commands: Any = None  # the clock has them
        return publish_for(publishers, commands, rate, seconds), found

    return run


def test_so_many_a_second_for_so_long(sent: Any) -> None:
    count, found = sent(Clock(), 10.0, 3.0)
    assert count == len(found) == pytest.approx(30, abs=1)
    assert [number for number, _ in found] == list(range(count))


def test_stop_ends_what_has_no_end(sent: Any) -> None:
    count, _ = sent(Clock(stop_at=1_002.0), 10.0, 0.0)
    assert count == pytest.approx(20, abs=1)


def test_what_a_busy_machine_missed_is_skipped_and_not_sent_in_a_burst(sent: Any) -> None:
    count, _ = sent(Clock(busy={5: 2.0}), 10.0, 4.0)
    assert count == pytest.approx(20, abs=3), "two of four seconds were lost"
    count, _ = sent(Clock(busy={5: BEHIND_S / 2}), 10.0, 4.0)
    assert count == pytest.approx(40, abs=1), "a short delay is caught up"
