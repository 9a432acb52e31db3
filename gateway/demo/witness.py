"""The subscriber's process: unchanged paho clients in the control room and at the ordinary broker.

Writes down every message unchanged, without judgement. Also watches the availability topics. Run by `processes.py`:

    python -m gateway.demo.witness --control PORT --plain PORT --log FILE

Events: `ready` once subscribed, `probe` when a probe came through all replicas, `count` twice a second. Command:
`stop`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from gateway.demo.child import STOP, Commands, emit, run_child
from gateway.demo.logs import PROBE, LineLog, digest_of, id_of
from gateway.demo.paho_loop import PahoLoop

HOST = "127.0.0.1"
KEEP_ALIVE_S = 30
TELEMETRY = "machine/#"
AVAILABILITY = "entities/#"
COUNT_EVERY_S = 0.5


class Watcher:
    """A subscriber; `path` names its path: "sealed" or "plain"."""

    def __init__(self, path: str, port: int, filters: tuple[str, ...], log: LineLog) -> None:
        self._path = path
        self._filters = filters
        self._log = log
        self.ids: set[str] = set()
        self.probes: set[str] = set()
        self.entities: dict[str, str] = {}
        self.is_subscribed = False
        self.client = Client(
            CallbackAPIVersion.VERSION2, client_id=f"control-room-{path}", protocol=MQTTProtocolVersion.MQTTv5
        )
        self.client.on_connect = self._on_connect
        self.client.on_subscribe = self._on_subscribe
        self.client.on_message = self._on_message
        self.client.connect_async(HOST, port, KEEP_ALIVE_S)

    def _on_connect(self, client: Client, *_: Any) -> None:
        client.subscribe([(topic_filter, 1) for topic_filter in self._filters])

    def _on_subscribe(self, *_: Any) -> None:
        self.is_subscribed = True

    def _on_message(self, _client: Client, _userdata: Any, message: MQTTMessage) -> None:
        at_ns = time.monotonic_ns()
        payload = bytes(message.payload)
        if message.topic.startswith("entities/"):
            self.entities[message.topic] = _state(payload)
            return
        id_ = id_of(payload)
        if id_.startswith(PROBE):
            self.probes.add(message.topic)
        else:
            self.ids.add(id_)
        self._log.write(
            path=self._path, id=id_, topic=message.topic, digest=digest_of(payload),
            properties=getattr(message.properties, "UserProperty", []), at_ns=at_ns,
        )  # fmt: skip


def _state(payload: bytes) -> str:
    try:
        return str(json.loads(payload)["state"])
    except (ValueError, KeyError, TypeError):
        return "unknown"


def main() -> None:
    """Runs the subscriber's process."""
    parser = argparse.ArgumentParser(description="Subscribes in the control room and logs what comes.")
    parser.add_argument("--control", type=int, required=True)
    parser.add_argument("--plain", type=int, required=True)
    parser.add_argument("--log", type=Path, required=True)
    told = parser.parse_args()
    commands = Commands()
    with LineLog(told.log) as log:
        sealed = Watcher("sealed", told.control, (TELEMETRY, AVAILABILITY), log)
        plain = Watcher("plain", told.plain, (TELEMETRY,), log)
        loop = PahoLoop(sealed.client, plain.client)
        ready = False
        while loop.next_word(commands, COUNT_EVERY_S) != STOP:
            if not ready and sealed.is_subscribed and plain.is_subscribed:
                ready = True
                emit("ready")
            emit(
                "count",
                sealed=len(sealed.ids),
                plain=len(plain.ids),
                probes=len(sealed.probes),
                online=sum(state == "online" for state in sealed.entities.values()),
            )
        sealed.client.disconnect()
        plain.client.disconnect()
    emit("done")


if __name__ == "__main__":
    sys.exit(run_child(main))
