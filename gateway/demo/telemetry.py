"""The publishers' process: this machine's telemetry, from two unchanged paho clients, to the site gateway.

A client speaks MQTT 3.1.1, the other MQTT 5 with user properties; each sensor belongs to one of them. A third client
sends a twin of every message to an ordinary broker, for the comparison of latencies. Everything is QoS 1. The log
holds sent messages and their confirmations by paho's `on_publish`. Run by `processes.py`:

    python -m gateway.demo.telemetry --site PORT --plain PORT --log FILE [--rate N] [--seconds S]

Commands: `go` (publish for so many seconds; probes until then), `stop`. `--seconds 0`: until `stop`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from paho.mqtt.client import Client, MQTTMessageInfo
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from gateway.demo.child import STOP, Commands, emit, run_child
from gateway.demo.logs import PROBE, LineLog, digest_of
from gateway.demo.logs import Properties as Pairs
from gateway.demo.paho_loop import PahoLoop
from gateway.demo.sensors import Reading, machine_id, sweep

HOST = "127.0.0.1"
RATE = 240.0
BEHIND_S = 0.25
"""Seconds of delay above which missed readings are skipped; shorter delays are caught up."""
PROBE_EVERY_S = 0.5
CONFIRM_S = 30.0
"""Longest wait in seconds for the last confirmations."""
KEEP_ALIVE_S = 30
CONNECTED_EVERY_S = 0.1
STAYS_S = 60.0
"""Seconds between checks for a command after the last message: devices stay connected, so online, until all is
counted.
"""


class DemoDevice:
    """A paho client and the ids of its unconfirmed messages."""

    def __init__(self, name: str, port: int, protocol: MQTTProtocolVersion, log: LineLog | None) -> None:
        self._five = protocol == MQTTProtocolVersion.MQTTv5
        self._log = log
        self._waiting: dict[int, str] = {}
        self.client = Client(CallbackAPIVersion.VERSION2, client_id=name, protocol=protocol)
        self.client.on_publish = lambda _c, _u, mid, code, _p: self._confirmed(mid, not code.is_failure)
        self.client.connect_async(HOST, port, KEEP_ALIVE_S)

    def properties_of(self, reading: Reading) -> Pairs:
        """Returns the user properties that this client adds; none for MQTT 3.1.1."""
        return (("sensor", reading.sensor), ("unit", reading.unit)) if self._five else ()

    def publish(self, id_: str, topic: str, payload: str, properties: Pairs) -> None:
        packed = None
        if properties:
            packed = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
            packed.UserProperty = list(properties)
        info: MQTTMessageInfo = self.client.publish(topic, payload, qos=1, properties=packed)
        self._waiting[info.mid] = id_

    def _confirmed(self, mid: int, accepted: bool) -> None:
        id_ = self._waiting.pop(mid, None)
        if id_ is not None and accepted and self._log is not None and not id_.startswith(PROBE):
            self._log.write(confirmed=id_)

    @property
    def unconfirmed(self) -> int:
        return len(self._waiting)


class Publishers:
    """The three clients, and the messages that they send."""

    def __init__(self, site_port: int, plain_port: int, log: LineLog | None) -> None:
        self._log = log
        self._machine = machine_id()
        self.devices = (
            DemoDevice("sensors-v3", site_port, MQTTProtocolVersion.MQTTv311, log),
            DemoDevice("sensors-v5", site_port, MQTTProtocolVersion.MQTTv5, log),
        )
        self._owners: dict[tuple[str, int], DemoDevice] = {}  # each sensor stays with one client: order on its topic
        self._twin = DemoDevice("sensors-twin", plain_port, MQTTProtocolVersion.MQTTv5, None)
        self._clients = [device.client for device in (*self.devices, self._twin)]
        self.loop = PahoLoop(*self._clients)

    def wait_connected(self, timeout_s: float) -> bool:
        until = time.monotonic() + timeout_s
        while not all(client.is_connected() for client in self._clients) and time.monotonic() < until:
            self.loop.serve(CONNECTED_EVERY_S)
        return all(client.is_connected() for client in self._clients)

    def probe(self, number: int) -> None:
        """Sends an uncounted message by each client on its own topic."""
        for device, way in zip((*self.devices, self._twin), ("v3", "v5", "plain"), strict=True):
            id_ = f"{PROBE}{way}-{number}"
            device.publish(id_, f"machine/{self._machine}/probe/{way}", json.dumps({"id": id_}), ())

    def send_reading(self, number: int, reading: Reading) -> None:
        """Sends a single reading to the gateway, and its twin to the ordinary broker."""
        turn = self.devices[len(self._owners) % len(self.devices)]
        device = self._owners.setdefault((reading.kind, reading.number), turn)
        id_ = f"m{number}"
        topic = f"machine/{self._machine}/{reading.kind}/{reading.number}"
        values = {"id": id_, "sensor": reading.sensor, "value": reading.value, "unit": reading.unit, "t": time.time()}
        payload = json.dumps(values)
        properties = device.properties_of(reading)
        sent_ns = time.monotonic_ns()
        device.publish(id_, topic, payload, properties)
        plain_ns = time.monotonic_ns()
        self._twin.publish(id_, topic, payload, properties)
        if self._log is not None:
            self._log.write(
                id=id_, topic=topic, digest=digest_of(payload.encode()), payload=payload, properties=properties,
                sent_ns=sent_ns, plain_ns=plain_ns,
            )  # fmt: skip

    @property
    def unconfirmed(self) -> int:
        return sum(device.unconfirmed for device in self.devices)

    def close(self) -> None:
        for client in self._clients:
            client.disconnect()


def readings() -> Iterator[Reading]:
    """Yields readings of endless sweeps."""
    while True:
        yield from sweep()


def publish_for(publishers: Publishers, commands: Commands, rate: float, seconds: float) -> int:
    """Publishes `rate` readings a second for `seconds` (0: until `stop`); returns their number."""
    start = time.monotonic()
    end = start + seconds if seconds else float("inf")
    told = start
    source = readings()
    for number in count():
        due = start + number / rate
        now = time.monotonic()
        if now - due > BEHIND_S:
            start += now - due
        if now >= end or publishers.loop.next_word(commands, due - now) == STOP:
            return number
        publishers.send_reading(number, next(source))
        if now - told >= 0.5:
            told = now
            emit("progress", sent=number + 1)
    raise AssertionError("count() does not end")


def main() -> None:
    """Runs the publishers' process."""
    parser = argparse.ArgumentParser(description="Publishes this machine's telemetry.")
    parser.add_argument("--site", type=int, required=True)
    parser.add_argument("--plain", type=int, required=True)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--seconds", type=float, default=0.0)
    told = parser.parse_args()
    commands = Commands()
    log = LineLog(told.log) if told.log else None
    publishers = Publishers(told.site, told.plain, log)
    try:
        if not publishers.wait_connected(60.0):
            raise TimeoutError(0, "a broker did not answer for 60 s", "telemetry")
        emit("ready")
        for number in count():
            publishers.probe(number)
            word = publishers.loop.next_word(commands, PROBE_EVERY_S)
            if word is not None:
                break
        if word == STOP:
            return
        emit("started")
        sent = publish_for(publishers, commands, told.rate, told.seconds)
        until = time.monotonic() + CONFIRM_S
        while publishers.unconfirmed and time.monotonic() < until and publishers.loop.next_word(commands, 0.1) != STOP:
            pass
        if log is not None:
            log.flush()
        emit("done", sent=sent, unconfirmed=publishers.unconfirmed)
        while publishers.loop.next_word(commands, STAYS_S) != STOP:
            pass
    finally:
        publishers.close()
        if log is not None:
            log.flush()


if __name__ == "__main__":
    sys.exit(run_child(main))
