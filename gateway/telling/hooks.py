"""Delivery of events to each receiver: a bounded queue, a single event at a time, repeated with growing pauses on
failure.

A web address gets a POST with a JSON object and three headers: the event's id, which a repetition keeps, the time,
and an HMAC over both and the body with the shared secret. An answer of 2xx ends the delivery; an answer of 3xx or
4xx, except 408 and 429, ends it as refused. Where too many wait, the user, client or branch of topics with most loses
its oldest, which is counted and logged. No task of the broker waits.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import http.client
import itertools
import json
import logging
import secrets
import time
import urllib.error
import urllib.request
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from bridge.base import NameWeights, matches
from gateway.base import PrivateFileError, StartError, read_private
from gateway.base.config_events import EventHook
from gateway.base.log_events import LogEvent
from gateway.client import MqttClient
from gateway.mqtt5.packets import Publish

log = logging.getLogger("veilmq.events")

QUEUE_MAX = 1_000
"""Events that wait for one web address. Beyond it the user (or address of nameless clients) with most loses the oldest
of its client with most, or the heaviest branch of topics its oldest.
"""
TRIES_MAX = 8  # of one event
PAUSE_FIRST_S, PAUSE_MOST_S = 1.0, 60.0
ANSWER_S = 10.0
PAYLOAD_MAX = 64 << 10  # bytes of a message in an event; of a longer one only the size is told
Post = Callable[[str, bytes, dict[str, str]], int]


def signature(secret: bytes, id_: str, when: str, body: bytes) -> str:
    """Returns the value of `X-Veilmq-Signature`: HMAC-SHA-256 over id, time and body, joined by dots."""
    return "sha256=" + hmac.new(secret, f"{id_}.{when}.".encode() + body, hashlib.sha256).hexdigest()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A handler following no redirect: a signed event goes only to the address the operator configured."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def post(url: str, body: bytes, headers: dict[str, str]) -> int:
    """Posts the body in the calling thread for at most `ANSWER_S`; returns the status, or 0 without an answer."""
    request = urllib.request.Request(url, body, headers, method="POST")  # noqa: S310  http and https only, checked
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=ANSWER_S) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return int(error.code)
    except (OSError, http.client.HTTPException):
        return 0


class WaitingEvents:
    """Events waiting for a receiver. Each has a path of sources, such as user and client, or the levels of a topic;
    where too many wait, the heaviest branch loses its oldest event.
    """

    def __init__(self) -> None:
        self._events: OrderedDict[str, tuple[Sequence[str], dict[str, Any]]] = OrderedDict()
        self._weights = NameWeights(lambda name: self._events[name][0])
        self._numbers = itertools.count()
        self._some = asyncio.Event()

    def put_event(self, event: dict[str, Any], owner: str = "") -> int:
        """Adds an event; returns how many were dropped for it, 0 or 1. `owner`: the user or address of its client."""
        name = str(next(self._numbers))
        self._events[name] = _sources(event, owner), event
        self._weights.set_weight(name, 1)
        self._some.set()
        if len(self._events) <= QUEUE_MAX:
            return 0
        self._take_oldest(self._weights.heaviest())
        return 1

    async def next_event(self) -> dict[str, Any]:
        """Takes the oldest event, as soon as there is one."""
        while not self._events:
            self._some.clear()
            await self._some.wait()
        return self._take_oldest(next(iter(self._events)))

    def _take_oldest(self, name: str) -> dict[str, Any]:
        self._weights.drop_name(name)
        return self._events.pop(name)[1]


def _sources(event: dict[str, Any], owner: str) -> tuple[str, ...]:
    """Returns the path of an event's sources, the widest first."""
    if "client" in event:
        return "client", owner, str(event["client"])
    return ("topic", *str(event["topic"]).split("/")) if "topic" in event else ("about", str(event.get("about", "")))


class Hook:
    """A receiver of events. `publish(topic, body)` publishes in our own broker; `post` sends to a web address."""

    def __init__(self, settings: EventHook, publish: Callable[[str, bytes], object], post: Post = post) -> None:
        """Reads the secret; raises StartError if it cannot be read."""
        self._settings, self._publish, self._post = settings, publish, post
        self._secret: bytes | None = None
        if settings.secret_file is not None:
            try:
                self._secret = read_private(settings.secret_file).strip()
            except PrivateFileError as error:
                raise StartError(f"events: {error}") from None
        self._waiting = WaitingEvents()
        self.delivered = self.lost = 0

    @property
    def name(self) -> str:
        return self._settings.url or f"topic {self._settings.topic}"

    def wants(self, kind: str, topic: str = "") -> bool:
        filters = self._settings.filters
        return kind in self._settings.kinds and (kind != "message" or any(matches(f, topic) for f in filters))

    def tell_event(self, event: dict[str, Any], owner: str = "") -> None:
        """Queues an event. Where too many wait, the source with most loses its oldest."""
        lost = self._waiting.put_event(event, owner)
        if lost and not self.lost:
            LogEvent.EVENTS_LOST.say(log, self.name)
        self.lost += lost

    async def run(self) -> None:
        """Delivers queued events until cancelled."""
        while True:
            event = await self._waiting.next_event()
            body = json.dumps(event, separators=(",", ":")).encode()
            if self._settings.topic is not None:
                self._publish(self._settings.topic, body)
                self.delivered += 1
            elif await self._send_body(str(event["id"]), str(event["time"]), body):
                self.delivered += 1
            else:
                self.lost += 1

    async def _send_body(self, id_: str, when: str, body: bytes) -> bool:
        assert self._settings.url is not None
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "veilmq",
            "X-Veilmq-Id": id_,
            "X-Veilmq-Time": when,
        }
        if self._secret is not None:
            headers["X-Veilmq-Signature"] = signature(self._secret, id_, when, body)
        pause_s = PAUSE_FIRST_S
        for attempt in range(TRIES_MAX):
            status = await asyncio.to_thread(self._post, self._settings.url, body, headers)
            if 200 <= status < 300:
                return True
            if 300 <= status < 500 and status not in (408, 429):
                LogEvent.EVENT_REFUSED.say(log, self.name, status)
                return False
            if attempt == 0:
                LogEvent.EVENT_RETRIED.say(log, self.name, status or "no answer")
            if attempt < TRIES_MAX - 1:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, PAUSE_MOST_S)
        LogEvent.EVENT_LOST.say(log, self.name, TRIES_MAX)
        return False


class Hooks:
    """All receivers of a broker.

    `client`, of our own broker, subscribes to reported messages and publishes events.
    """

    def __init__(self, settings: Sequence[EventHook], client: MqttClient, name: str, post: Post = post) -> None:
        """Makes a hook for each setting. `name`: this broker's name in every event. Raises StartError."""
        self._client, self._name = client, name
        self.hooks = [Hook(one, self._into_broker, post) for one in settings]
        self._filters = dict.fromkeys(f for one in settings for f in one.filters)
        self._own = {one.topic for one in settings if one.topic is not None}
        self._tasks: list[asyncio.Task[None]] = []
        client.on_publish = self._message

    def start(self) -> None:
        for topic_filter in self._filters:
            self._client.subscribe(topic_filter, 0, no_local=True, retain_handling=2)
        self._client.start()
        self._tasks = [asyncio.get_running_loop().create_task(hook.run(), name=hook.name) for hook in self.hooks]

    async def stop(self) -> None:
        """Stops delivery; events that are still queued are lost."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.close()

    def tell_event(self, kind: str, owner: str = "", /, **fields: Any) -> None:
        """Queues an event for each receiver wanting its kind and topic. `owner`: the user or address of its client."""
        event: dict[str, Any] = {}
        for hook in self.hooks:
            if hook.wants(kind, str(fields.get("topic", ""))):
                event = event or {
                    "id": secrets.token_hex(16), "time": round(time.time(), 3), "broker": self._name, "kind": kind,
                    **fields,
                }  # fmt: skip
                hook.tell_event(event, owner)

    def _message(self, publish: Publish) -> None:
        if publish.topic in self._own:
            return  # an event about an event would never end
        payload = publish.payload[:PAYLOAD_MAX]
        try:
            shown = {"payload": payload.decode("utf-8")}
        except UnicodeDecodeError:
            shown = {"payload_hex": payload.hex()}
        cut = len(publish.payload) > len(payload)
        self.tell_event("message", topic=publish.topic, retain=publish.retain, cut=cut, **shown)

    def _into_broker(self, topic: str, body: bytes) -> None:
        self._client.publish(topic, body, 1)
