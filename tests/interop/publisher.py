"""Publishers of numbers with a Python client library, a session each, until standard input ends.

    python publisher.py FOLDER LIBRARY PORT PREFIX SIZE PACE SESSION…

It ends when all is acknowledged, and prints the count of each session as JSON. `FOLDER`: where the library is
installed; `LIBRARY`: `paho1`, `paho2` or `aiomqtt`; `PREFIX`: first level of the topics; `SIZE`: bytes of a payload;
`PACE`: milliseconds from one publication of a session to its next; `SESSION`: MQTT version, QoS and clean session, as
`4-2-0`. The libraries have their defaults, and connect again as their manuals say. A publication that the library
reports as refused is published again.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from typing import Any

sys.path.insert(0, sys.argv[1])

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

LIBRARY, PORT, PREFIX, SIZE = sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
PACE_S, AGAIN_S, ANSWER_S = int(sys.argv[6]) / 1_000, 0.2, 5.0
ended = threading.Event()


def read_to_the_end() -> None:
    sys.stdin.read()
    ended.set()


class Session:
    """A session of a library: its words on the command line, its topic, its client identifier."""

    def __init__(self, said: str) -> None:
        self.said = said
        self.version, self.qos, self.clean = map(int, said.split("-"))
        self.topic, self.client_id = f"{PREFIX}/{LIBRARY}/{said}", f"{LIBRARY}-{said}"
        self.published = 0

    @staticmethod
    def payload(number: int) -> str:
        return str(number).ljust(SIZE)

    @property
    def start(self) -> dict[str, Any]:
        """What MQTT 5 has in place of a clean session."""
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = 0 if self.clean else 3_600
        return {"clean_start": bool(self.clean), "properties": properties}


class PahoSession(Session):
    """A session of paho, whose network loop has a thread. `answers`: packet identifier -> whether it was refused."""

    def __init__(self, said: str) -> None:
        super().__init__(said)
        first: tuple[Any, ...] = () if LIBRARY == "paho1" else (paho.CallbackAPIVersion.VERSION2,)
        session: dict[str, Any] = {} if self.version == 5 else {"clean_session": bool(self.clean)}
        self.client = paho.Client(*first, client_id=self.client_id, protocol=self.version, **session)
        self.client.reconnect_delay_set(1, 1)
        self.answers: dict[int, bool] = {}
        self._open: dict[int, int] = {}
        self.client.on_publish = self._on_publish
        self.client.connect("127.0.0.1", PORT, 30, **(self.start if self.version == 5 else {}))
        self.client.loop_start()

    def _on_publish(self, client: object, userdata: object, mid: int, reason: Any = None, *_: object) -> None:
        self.answers[mid] = reason is not None and reason.is_failure

    def publish(self) -> None:
        self._publish(self.published)
        self.published += 1

    def _publish(self, number: int) -> None:
        self._open[self.client.publish(self.topic, self.payload(number), self.qos).mid] = number

    def is_finished(self) -> bool:
        """Takes what was answered, publishes again what was refused, and tells whether nothing is open."""
        for mid in [mid for mid in self._open if mid in self.answers]:
            number = self._open.pop(mid)
            if self.answers.pop(mid):
                self._publish(number)
        return not self._open


def with_paho(said: list[str]) -> dict[str, int]:
    sessions = [PahoSession(each) for each in said]
    waiting = threading.Event()
    while not ended.is_set():
        for session in sessions:
            session.publish()
            session.is_finished()
        waiting.wait(PACE_S)
    while [session for session in sessions if not session.is_finished()]:
        waiting.wait(PACE_S)
    for session in sessions:
        session.client.disconnect()
        session.client.loop_stop()
    return {session.said: session.published for session in sessions}


async def with_aiomqtt(session: Session) -> tuple[str, int]:
    import aiomqtt  # type: ignore[import-not-found]  # below `.tools/`

    more: dict[str, Any] = {"clean_session": bool(session.clean)}
    if session.version == 5:
        more = {"protocol": aiomqtt.ProtocolVersion.V5, **session.start}
    client = aiomqtt.Client("127.0.0.1", PORT, identifier=session.client_id, **more)
    while not ended.is_set():
        try:
            async with client:
                while not ended.is_set():
                    payload = session.payload(session.published)
                    await client.publish(session.topic, payload, session.qos, timeout=ANSWER_S)
                    session.published += 1
                    await asyncio.sleep(PACE_S)
        except aiomqtt.MqttError:  # the publication is published again, as the manual has it
            await asyncio.sleep(AGAIN_S)
    return session.said, session.published


async def all_with_aiomqtt(said: list[str]) -> dict[str, int]:
    return dict(await asyncio.gather(*(with_aiomqtt(Session(each)) for each in said)))


threading.Thread(target=read_to_the_end, daemon=True).start()
words = sys.argv[7:]
print(json.dumps(asyncio.run(all_with_aiomqtt(words)) if LIBRARY == "aiomqtt" else with_paho(words)), flush=True)
