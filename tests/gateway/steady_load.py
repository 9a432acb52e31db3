"""A steady load through an overlay of real processes: what was sent, what came and when, and the longest silence."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from tests.gateway.overlay_processes import OverlayProcesses
from tests.waits import wait_until

TURN_S = 0.02
IN_FLIGHT = 2000
QUIET_S = 20.0


@dataclass
class SteadyLoad:
    """`rate` QoS 1 messages a second from one device at `source` over `topics` topics, read whole at `sink`."""

    overlay: OverlayProcesses
    rate: int = 500
    topics: int = 10
    source: str = "site"
    sink: str = "control"
    scope: str = "plant"
    sent: list[int] = field(default_factory=list)
    sent_at: list[list[float]] = field(default_factory=list)  # monotonic time, by topic and number
    arrived: list[tuple[float, int, int]] = field(default_factory=list)  # monotonic time, topic, number
    acknowledged: int = 0

    def __post_init__(self) -> None:
        self.sent, self.sent_at = [0] * self.topics, [[] for _ in range(self.topics)]
        self._ended, self._paused = threading.Event(), threading.Event()
        transport = self.overlay.transport
        self._reader = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id="steady-reader",
            protocol=paho.MQTTv311,
            clean_session=False,
            transport=transport,
        )
        self._reader.on_message = self._take
        self._device = paho.Client(CallbackAPIVersion.VERSION2, client_id="steady-device", transport=transport)
        self._device.max_inflight_messages_set(IN_FLIGHT)
        self._device.max_queued_messages_set(0)
        self._device.on_publish = self._taken
        self._thread = threading.Thread(target=self._publish, name="steady load", daemon=True)

    def start(self) -> None:
        """Begin once the reader's subscription holds from end to end."""
        for client, gateway in ((self._reader, self.sink), (self._device, self.source)):
            client.reconnect_delay_set(1, 1)
            client.connect(*self.overlay.endpoint(gateway))
            client.loop_start()
        heard = threading.Event()
        self._reader.message_callback_add(f"{self.scope}/steady/probe", lambda c, u, m: heard.set())
        self._reader.subscribe(f"{self.scope}/steady/#", 1)
        assert wait_until(partial(self._probed, heard), 30), "no subscription holds from end to end"
        self._thread.start()

    def _probed(self, heard: threading.Event) -> bool:
        self._device.publish(f"{self.scope}/steady/probe", b"", 1)
        return heard.wait(0.2)

    def _take(self, client: object, userdata: object, message: paho.MQTTMessage) -> None:
        self.arrived.append((time.monotonic(), int(message.topic.rpartition("/")[2]), int(message.payload)))

    def _taken(self, *_: object) -> None:
        self.acknowledged += 1

    def _publish(self) -> None:
        last, count, owed = time.monotonic(), 0, 0.0
        while not self._ended.wait(TURN_S):
            now = time.monotonic()
            owed += 0.0 if self._paused.is_set() else (now - last) * self.rate
            last, due = now, int(owed)
            for number in range(count, due):
                topic = number % self.topics
                self.sent_at[topic].append(time.monotonic())
                self._device.publish(f"{self.scope}/steady/{topic}", b"%d" % self.sent[topic], 1)
                self.sent[topic] += 1
            count = due

    def pause(self) -> bool:
        """Publish nothing for a while; whether all that was published arrived and is acknowledged."""
        self._paused.set()
        time.sleep(2 * TURN_S)  # the thread may be in its turn
        return wait_until(lambda: self._complete() and self.acknowledged >= sum(self.sent), 60)

    def resume(self) -> None:
        """Go on, once the device is connected: paho sends what it is given between TCP's connect and CONNACK before all
        that waits for CONNACK."""
        assert wait_until(self._device.is_connected, 30), "the device is not connected"
        self._paused.clear()

    def goes_on(self, messages: int = 300) -> bool:
        """Whether so many more arrive: several data keys, so that whoever came back has its part of them."""
        enough = len(self.arrived) + messages
        return wait_until(lambda: len(self.arrived) >= enough, 30)

    def end(self) -> None:
        """Publish no more, and wait until everything arrived, or nothing comes any more."""
        self._ended.set()
        self._thread.join()
        ended = time.monotonic()
        while not self._complete() and time.monotonic() - max(ended, self._last_at) < QUIET_S:
            time.sleep(TURN_S)
        time.sleep(0.5)  # time for repetitions, which must not come
        for client in (self._device, self._reader):
            client.disconnect()
            client.loop_stop()

    @property
    def _last_at(self) -> float:
        return self.arrived[-1][0] if self.arrived else 0.0

    def _complete(self) -> bool:
        return len(self.arrived) >= sum(self.sent)

    @property
    def lost(self) -> list[tuple[int, int]]:
        """Topic and number of what was sent and did not come."""
        came = {(topic, number) for _, topic, number in self.arrived}
        return [(t, n) for t, sent in enumerate(self.sent) for n in range(sent) if (t, n) not in came]

    @property
    def repeated(self) -> int:
        return len(self.arrived) - len({(topic, number) for _, topic, number in self.arrived})

    @property
    def in_order(self) -> bool:
        """Per topic, as MQTT promises."""
        last = [-1] * self.topics
        for _, topic, number in self.arrived:
            if number <= last[topic]:
                return False
            last[topic] = number
        return True

    def delays_s(self, since: float, until: float) -> list[float]:
        """From publishing to arrival, sorted, of what was published between two moments."""
        took = [(self.sent_at[topic][number], at) for at, topic, number in list(self.arrived)]
        return sorted(at - sent_at for sent_at, at in took if since <= sent_at < until)

    def pause_s(self, since: float, until: float) -> float:
        """The longest time without any delivery between two moments (`time.monotonic`)."""
        times = [since, *(at for at, _, _ in list(self.arrived) if since <= at <= until), until]
        return max(later - earlier for earlier, later in pairwise(times))
