"""Bridge at work: messages of a broker are published at the other, and acknowledged when the other has them.

Both brokers keep a session for the bridge, so waiting messages are on their disks, not here. While the other broker is
away the local session has no connection: its queue grows, and no publisher waits for it. After a lost connection the
sender repeats unfinished messages. The bridge remembers by packet identifier the messages the other side is taking, or
took, so that a living process passes each message on once. After a crash QoS 1 may come twice. A direction carrying
QoS 2 is `exact`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from gateway.base import BridgeSettings
from gateway.base.log_events import LogEvent
from gateway.bridging.circles import Circles
from gateway.bridging.mapping import Topics, passed_by
from gateway.bridging.relaying import RelayClient
from gateway.bridging.retained import RetainedState, RetainedTable
from gateway.bridging.twins import UNMARKED
from gateway.client import Here
from gateway.mqtt5.bridge_clients import MARK
from gateway.mqtt5.packets import NO_PROPERTIES, Publish, UserProperties
from gateway.mqtt5.types import MqttError, ReasonCode

log = logging.getLogger("veilmq.bridge")

AGAIN_S = 1.0
"""Seconds until a message is offered again after a temporary refusal (a full disk, a quota)."""
FINAL = frozenset(
    {
        ReasonCode.NOT_AUTHORIZED,
        ReasonCode.TOPIC_NAME_INVALID,
        ReasonCode.PACKET_TOO_LARGE,
        ReasonCode.PAYLOAD_FORMAT_INVALID,
        ReasonCode.QOS_NOT_SUPPORTED,
        ReasonCode.RETAIN_NOT_SUPPORTED,
    }
)
"""Refusals that a repetition cannot cure."""
UNDER_WAY, TAKEN = 1, 2


@dataclass(slots=True)
class BridgeStanding:
    """State of a bridge, for displays."""

    name: str
    up: bool
    since_s: float
    error: str
    sent: int
    received: int
    refused: int
    kept: int


class Way:
    """Direction of a bridge. `states`: the state of each message, by packet identifier of the source's session.

    `seen`: messages that came on the source's present connection, by identifier. A message of a former connection is
    repeated first, and only the repetition can be acknowledged.
    """

    def __init__(self, source: RelayClient, target: RelayClient, name: str) -> None:
        self.source, self.target, self.name = source, target, name
        self.states: dict[int, int] = {}
        self.seen: dict[int, Publish] = {}
        self.passed = self.refused = 0
        self.keep_refused: Callable[[Publish, int], None] = lambda changed, code: None

    def source_connected(self) -> None:
        """Takes a new connection of the source; without its session, identifiers stand for other messages."""
        self.seen.clear()
        if not self.source.session_present:
            self.states.clear()

    def target_connected(self) -> None:
        """Takes a new connection of the target."""

    def pass_on(self, publish: Publish, changed: Publish) -> None:
        """Offers a message of the source to the target."""
        identifier = publish.packet_id
        if not publish.qos:
            refused = self.refused
            self.passed += self._offer(publish, changed) and self.refused == refused
            return
        self.seen[identifier] = publish
        state = self.states.get(identifier)
        if state == TAKEN:
            self._finish_message(publish)
            return
        if state == UNDER_WAY:
            return  # sent again by a source that lost its connection; the target still has it
        self.states[identifier] = UNDER_WAY
        self._offer_again(publish, changed)

    def answer_pubrel(self, identifier: int) -> None:
        """Answers a PUBREL of the source: of a former process, or of a QoS 2 message in a direction without QoS 2."""
        self.source.complete(identifier)

    def take_pubcomp(self, identifier: int, is_free: bool = True) -> None:
        """Takes a PUBCOMP of the target, or the loss of its session. `is_free` False: the target never answered."""

    def drop_message(self, publish: Publish) -> None:
        """Acknowledges a message that does not cross, so that the source forgets it."""
        if publish.qos:
            self.source.acknowledge(publish)

    def _offer_again(self, publish: Publish, changed: Publish) -> None:
        if not self._offer(publish, changed):
            asyncio.get_running_loop().call_later(AGAIN_S, self._offer_again, publish, changed)

    def _offer(self, publish: Publish, changed: Publish) -> bool:
        try:
            return self._give(publish, changed)
        except MqttError as error:
            LogEvent.BRIDGE_CANNOT_CROSS.say(log, self.name, error)
            self._taken(publish)
            return True

    def _give(self, publish: Publish, changed: Publish) -> bool:
        done, refused = partial(self._taken, publish), partial(self._take_refusal, publish, changed)
        return self.target.publish(
            changed.topic, changed.payload, min(changed.qos, 1), changed.retain, changed.properties, done, refused
        )

    def _taken(self, publish: Publish) -> None:
        if not publish.qos:
            return
        self.passed += 1
        self._settle_message(publish)

    def _settle_message(self, publish: Publish) -> None:
        self.states[publish.packet_id] = TAKEN
        self._finish_message(publish)

    def _finish_message(self, publish: Publish) -> None:
        if self.source.connected and (present := self.seen.pop(publish.packet_id, None)) is not None:
            self.states.pop(publish.packet_id, None)
            self.source.acknowledge(present)

    def _take_refusal(self, publish: Publish, changed: Publish, code: int) -> None:
        if code in FINAL:
            self.refused += 1
            self.keep_refused(changed, code)
            if publish.qos:
                self._settle_message(publish)
            return
        asyncio.get_running_loop().call_later(AGAIN_S, self._offer_again, publish, changed)


class Remote(RelayClient):
    """Client of the other broker."""

    @property
    def has_marks(self) -> bool:
        """True if it speaks MQTT 5, which carries marks."""
        raise NotImplementedError

    @property
    def is_private(self) -> bool:
        """True if the other broker knows it as a bridge, over MQTT 3.1.1."""
        raise NotImplementedError


class Home(Here, RetainedTable, Protocol):
    """Local broker, as a bridge sees it. `prefix`: prefix of names of parts of its process."""

    @property
    def prefix(self) -> str: ...
    def may_leave(self, topic: str) -> bool:
        """True if the overlay's policy lets a local topic go out in clear."""
        ...

    def keep_refused(self, bridge: str, publish: Publish, code: int) -> str:
        """Keeps a finally refused message in a bounded file; returns its place, or a text that there is none."""
        ...

    def may_enter(self, topic: str) -> bool:
        """True if other brokers may publish under a local topic at all."""
        ...


class Bridge:
    """Bridge to one other broker. `remote_name`: its name in marks, until it states its own."""

    def __init__(
        self,
        name: str,
        settings: BridgeSettings,
        local: RelayClient,
        remote: Remote,
        ways: tuple[Way, Way],
        topics: Topics,
        home: Home,
        circles: Circles,
        remote_name: str,
    ) -> None:
        self.name, self._settings, self._remote_name = name, settings, remote_name
        self._local, self._remote, self._topics, self._home, self._circles = local, remote, topics, home, circles
        self._out, self._in = ways
        self._out.keep_refused = self._in.keep_refused = self._keep_refused
        self._state = RetainedState(name, home, topics)
        self._kept = self._kept_out = 0
        self._changed_at = 0.0
        self._task: asyncio.Task[None] | None = None
        self._turn = asyncio.Event()
        self._was_reached = False
        self._unanswered = 0  # subscriptions of ours here
        self._ready = asyncio.Event()
        local.on_release, remote.on_complete = self._out.answer_pubrel, self._out.take_pubcomp
        remote.on_release, local.on_complete = self._in.answer_pubrel, self._in.take_pubcomp
        local.on_publish, remote.on_publish = self._from_here, self._from_there
        local.on_up, remote.on_up, remote.on_down = self._local_up, self._remote_up, self._remote_down

    def start(self) -> None:
        """Connects to the local broker at once, so that later publications wait for the other broker."""
        for topic_filter, qos in self._topics.wanted_here().items():
            self._local.subscribe(topic_filter, qos, no_local=True, retain_handling=2, on_answer=self._subscribed)
        for topic_filter, qos in self._topics.wanted_there().items():
            self._remote.subscribe(topic_filter, qos, no_local=True)
        self._unanswered = len(self._topics.wanted_here())
        if not self._unanswered:
            self._ready.set()
        self._local.start()
        self._remote.start()
        self._task = asyncio.get_running_loop().create_task(self._follow_remote(), name=f"bridge {self.name}")

    async def wait_for_subscriptions(self) -> None:
        """Returns when the local broker has answered all subscriptions: from then on it keeps what crosses."""
        await self._ready.wait()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
        await asyncio.gather(self._local.close(), self._remote.close())

    def standing(self) -> BridgeStanding:
        """Returns the present state."""
        loop = asyncio.get_running_loop()
        up = self._remote.connected
        return BridgeStanding(
            self.name, up, loop.time() - self._changed_at, "" if up else self._remote.last_error,
            self._out.passed, self._in.passed, self._out.refused + self._in.refused, self._kept,
        )  # fmt: skip

    # ------------------------------------------------------------------------------------------ messages

    @property
    def remote(self) -> str:
        """The name of the other broker in marks."""
        told = self._remote.told
        return next((value for name, value in told if name == MARK), self._remote_name)

    def carries(self, topic: str, user: UserProperties) -> str | None:
        """Returns the name there of a message published here with these user properties; None: it does not cross."""
        there = self._topics.outwards(topic)
        return there if there is None or self.remote not in passed_by(user) else None

    def _from_here(self, publish: Publish) -> None:
        topic, user = publish.topic, publish.properties.user
        there = self.carries(topic, user)
        if there is None or self._circles.carried_before(self, topic, user, there):
            self._out.drop_message(publish)
        elif not self._home.may_leave(topic):
            if not self._kept:
                LogEvent.BRIDGE_KEEPS.say(log, self.name)
            self._kept += 1
            self._out.drop_message(publish)
        else:
            self._circles.remember_leaving(
                self.name, topic, publish.payload, self._remote.has_marks, self._echoes(there)
            )
            changed = replace(publish, topic=there, properties=self._circles.leaving(self, topic, publish.properties))
            self._out.pass_on(publish, changed)

    def _echoes(self, there: str) -> bool:
        """True if the other broker, over 3.1.1, sends back messages the bridge publishes under that name."""
        remote = self._remote
        return not remote.has_marks and not remote.is_private and self._topics.inwards(there) is not None

    def _from_there(self, publish: Publish) -> None:
        topic, marks = self._topics.inwards(publish.topic), self._circles.marks
        if topic is None or marks.has_been(topic, publish.properties):
            self._in.drop_message(publish)
            return
        if not self._home.may_enter(topic):
            if not self._kept_out:
                LogEvent.BRIDGE_KEEPS_OUT.say(log, self.name, topic)
            self._kept_out += 1
            self._in.drop_message(publish)
            return
        if publish.retain and self._state.is_known(topic, publish.payload, asyncio.get_running_loop().time()):
            self._in.drop_message(publish)
            return
        has_marks = self._remote.has_marks
        properties = marks.entering(publish.properties, (self.remote, *(() if has_marks else (UNMARKED,))))
        is_again = publish.qos and publish.packet_id in self._in.states
        if not is_again and self._circles.entered(self.name, topic, publish.payload, properties, has_marks):
            self._in.drop_message(publish)
            return
        qos = publish.qos or int(
            publish.retain and not self._local.connected
        )  # a retained message waits for the connection
        self._in.pass_on(publish, replace(publish, topic=topic, qos=qos, properties=properties))

    def _keep_refused(self, publish: Publish, code: int) -> None:
        place = self._home.keep_refused(self.name, publish, code)
        LogEvent.BRIDGE_REFUSED.say(log, self.name, publish.topic, len(publish.payload), code, place)

    # --------------------------------------------------------------------------------------- connections

    def _subscribed(self, code: int) -> None:
        self._unanswered -= 1
        if self._unanswered <= 0:
            self._ready.set()
            self._turn.set()

    def _local_up(self) -> None:
        self._out.source_connected()
        self._in.target_connected()
        self._publish_status()
        self._turn.set()

    def _remote_up(self) -> None:
        self._in.source_connected()
        self._out.target_connected()
        self._compare_retained()
        self._note_connection()
        LogEvent.BRIDGE_UP.say(log, self.name, self._remote.address)

    def _remote_down(self) -> None:
        self._state.stop()
        self._note_connection()

    def _compare_retained(self) -> None:
        """Asks both brokers for their retained messages; the local broker sends them behind waiting ones."""
        loop = asyncio.get_running_loop()
        self._state.begin_comparison(self.remote, self._remote.session_present, loop.time())
        loop.call_at(self._state.ends_at or 0.0, self._end_comparing)
        self._local.ask_again()
        if self._remote.session_present:  # otherwise it was just asked
            self._remote.ask_again()
        elif self._was_reached:
            self._give_back()
        self._was_reached = True

    def _give_back(self) -> None:
        """Gives back to the other broker, which lost its state, the retained messages that came from it, unless another
        way does.
        """
        marks, origin = self._circles.marks, (MARK, self.remote)
        for message in self._state.brought:
            there = self._topics.outwards(message.topic)
            if there is not None and self._home.may_leave(message.topic):
                user = tuple(pair for pair in message.properties.user if pair != origin)
                properties = marks.leaving(message.topic, replace(message.properties, user=user))
                self._remote.publish(there, message.payload, 1, True, properties)

    def _end_comparing(self) -> None:
        """Clears here the topics cleared at the other broker, once no retained message has come from it for a
        while.
        """
        ends_at, loop = self._state.ends_at, asyncio.get_running_loop()
        if ends_at is None:
            return
        if loop.time() < ends_at:
            loop.call_at(ends_at, self._end_comparing)
            return
        properties = self._circles.marks.entering(NO_PROPERTIES, (self.remote,))
        for topic in self._state.end_comparison():
            self._local.publish(topic, b"", 0, True, properties)

    def _note_connection(self) -> None:
        self._changed_at = asyncio.get_running_loop().time()
        self._publish_status()
        self._turn.set()

    def _publish_status(self) -> None:
        """Publishes the status at QoS 0, since an identifier of the bridge's own could be one that crosses. Each
        connection here begins so.
        """
        if self._settings.status_topic is not None:
            self._local.publish(self._settings.status_topic, b"1" if self._remote.connected else b"0", 0, True)

    async def _follow_remote(self) -> None:
        """Keeps the local connection exactly while the other broker is reached; once before, to begin the session."""
        standing = True
        while True:
            await self._turn.wait()
            self._turn.clear()
            if self._remote.connected and not standing:
                self._local.start()
                standing = True
            elif not self._remote.connected and standing and self._ready.is_set():
                await self._local.close()
                standing = False
