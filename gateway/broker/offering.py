"""What local clients publish is offered to the overlay first: what it refuses is for nobody here either.

Else local receivers would act on what others never get, and a device that repeats a refused message would have it
delivered here each time. Not here: what becomes of an acknowledgement that waits (`exchange.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.clients import Client, Done, OverlayPort, OwedAck, publication_of, without_reserved
from gateway.mqtt5.message import Message
from gateway.mqtt5.types import ReasonCode


def offer(overlay: OverlayPort, client_id: str, message: Message, now: float, done: Done) -> bool:
    """Give a message to the overlay before anybody here hears it. False: it refuses at once, so nobody may.

    `done(code)` is called once, now or later, also where the topic stays local.
    """
    if message.properties.user:
        message.properties = without_reserved(message.properties)
    refused = False

    def answered(code: int) -> None:
        nonlocal refused
        refused = code >= ReasonCode.UNSPECIFIED_ERROR
        done(code)

    if not overlay.publish(client_id, publication_of(message, now), answered):
        done(ReasonCode.SUCCESS)
    return not refused


def offer_for(
    overlay: OverlayPort, client: Client, owed: OwedAck, message: Message, now: float, settle: Callable[[Client], None]
) -> bool:
    """The same for a client's message, whose acknowledgement then waits for the overlay; a refusal is told at once."""
    owed.answers += 1

    def done(code: int) -> None:
        owed.answer(code)
        settle(client)

    if offer(overlay, client.client_id, message, now, done):
        return True
    owed.answer(ReasonCode.SUCCESS)
    if owed.publish.qos:
        client.owe(owed)
        settle(client)
    return False
