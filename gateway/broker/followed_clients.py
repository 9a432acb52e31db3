"""Steps of local clients' publications for administrators that follow them: came, was answered, was given to a client.

Called only while somebody follows (`base/followed.py`). Names and sizes, never a payload.
"""

from __future__ import annotations

from typing import Any

from gateway.base.followed import FollowedMessages
from gateway.clients import INTERNAL, Client
from gateway.mqtt5.message import Message
from gateway.mqtt5.packets import Publish
from gateway.mqtt5.types import ReasonCode


def came(followed: FollowedMessages, client: Client, publish: Publish) -> None:
    """Says that a client published."""
    _say(followed, "received", client, publish.topic, qos=publish.qos, bytes=len(publish.payload),
         retain=publish.retain or None, user=client.view.username)  # fmt: skip


def answered(followed: FollowedMessages, client: Client, publish: Publish, code: int) -> None:
    """Says what a publisher is told; a publication of QoS 0 has an answer only in this step."""
    name = "refused" if code >= ReasonCode.UNSPECIFIED_ERROR else "acknowledged"
    if publish.qos or name == "refused":
        _say(followed, name, client, publish.topic, code=f"0x{code:02x}", reason=_reason(code))


def waits(followed: FollowedMessages, client: Client, publish: Publish, receivers: list[Client]) -> None:
    """Says for whom a publication waits before it is acknowledged."""
    _say(followed, "waits", client, publish.topic, receiver=receivers[0].client_id)


def given(followed: FollowedMessages, client: Client, message: Message, qos: int, was_written: bool) -> None:
    """Says what became of a message for a client here."""
    is_there = client.connection is not None
    name = "sent" if was_written else "queued" if qos else "dropped"
    why = None if was_written else "the client is behind" if is_there else "the client is away"
    _say(followed, name, client, message.topic, message.publisher, qos=qos, reason=why)


def left_out(followed: FollowedMessages, client: Client, message: Message) -> None:
    """Says that a client which subscribed may not receive a message."""
    _say(followed, "withheld", client, message.topic, message.publisher, reason="no right to receive the topic")


def nobody(followed: FollowedMessages, message: Message) -> None:
    """Says that no client here subscribed to a message."""
    followed.say_step("nobody", publisher=message.publisher, topic=message.topic, reason="no local subscription")


def _say(followed: FollowedMessages, name: str, client: Client, topic: str, publisher: str = "", **about: Any) -> None:
    if client.client_id.startswith(INTERNAL):
        about["part"] = client.client_id.removeprefix(INTERNAL)
    address = client.connection.address if client.connection is not None else ""
    followed.say_step(name, client=client.client_id, publisher=publisher, topic=topic, address=address, **about)


def _reason(code: int) -> str | None:
    return ReasonCode(code).name.lower() if code and code in set(ReasonCode) else None
