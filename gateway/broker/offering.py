"""Offer of local publications to the overlay first: a refused publication reaches no local client either.

Otherwise local receivers would act on messages that others never get, and a device repeating a refused message would
have it delivered here each time. Not here: the waiting acknowledgement (`exchange.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from bridge.contract import Publication
from gateway.base import Defects
from gateway.base.log_events import LogEvent
from gateway.broker.session_shares import owner_of
from gateway.clients import (
    Circling,
    Client,
    Done,
    OverlayPort,
    OwedAck,
    publication_of,
    publications_of,
    without_reserved,
)
from gateway.mqtt5.message import Message
from gateway.mqtt5.packets import Publish
from gateway.mqtt5.types import ReasonCode

log = logging.getLogger("veilmq.clients")


def offer(
    overlay: OverlayPort,
    client_id: str,
    message: Message,
    now: float,
    done: Done,
    defects: Defects,
    circles: Circling | None = None,
    owner: str = "",
) -> bool:
    """Gives a message to the overlay before any local client gets it. False: the overlay refuses at once, so no client
    may.

    `done(code)` is called once, now or later, also where the topic stays local. An exception of the overlay is a
    refusal. `circles`: marks a message has over the overlay beside its own. `owner`: the user or address for whom the
    message counts.
    """
    if message.properties.user:
        message.properties = without_reserved(message.properties)
    refused = is_answered = False

    def answered(code: int) -> None:
        nonlocal refused, is_answered
        if not is_answered:
            is_answered, refused = True, code >= ReasonCode.UNSPECIFIED_ERROR
            done(code)

    try:
        publication = _marked(publication_of(message, now, owner), circles)
        if not overlay.publish(client_id, publication, answered):
            answered(ReasonCode.SUCCESS)
    except Exception as error:  # noqa: BLE001  counted, and the log has its traceback
        defects.note_error(log, LogEvent.PUBLICATION_FAILED, error, client_id)
        answered(ReasonCode.UNSPECIFIED_ERROR)
    return not refused


def offer_run(
    overlay: OverlayPort,
    client: Client,
    run: Sequence[Publish],
    settle: Callable[[Client], None],
    defects: Defects,
    circles: Circling | None = None,
) -> int:
    """Offers leading plain publications of a client at once, and owes the client one acknowledgement of all. Returns
    how many the overlay takes; `offer_for` must offer the next one.
    """
    if circles is not None:
        topics = {publish.topic for publish in run}
        if any(circles.crossing(topic, ()) for topic in topics):
            return 0
    owed = OwedAck(run[0])

    def done(code: int) -> None:
        client.decide(owed, code)
        settle(client)

    try:
        taken = overlay.publish_run(client.client_id, publications_of(run, owner_of(client.view)), done)
    except Exception as error:  # noqa: BLE001  counted, and the log has its traceback
        defects.note_error(log, LogEvent.PUBLICATION_FAILED, error, client.client_id)
        return 0
    if taken:
        owed.run = run[:taken]
        client.owe(owed)
    return taken


def _marked(publication: Publication, circles: Circling | None) -> Publication:
    """Returns the publication with marks of the brokers to which this broker's bridges bring it, so that no other
    gateway does.
    """
    user = publication.properties
    marked = user if circles is None else circles.crossing(publication.topic, user)
    return publication if marked is user else replace(publication, properties=marked)


def offer_for(
    overlay: OverlayPort,
    client: Client,
    owed: OwedAck,
    message: Message,
    now: float,
    settle: Callable[[Client], None],
    defects: Defects,
    circles: Circling | None = None,
    answered: Callable[[int], None] | None = None,
) -> bool:
    """Offers a client's message, whose acknowledgement then waits for the overlay; a refusal is told at once.

    `answered`: called with the overlay's answer.
    """
    owed.answers += 1

    def done(code: int) -> None:
        if answered is not None:
            answered(code)
        client.decide(owed, code)
        settle(client)

    if offer(overlay, client.client_id, message, now, done, defects, circles, owner_of(client.view)):
        return True
    client.decide(owed, ReasonCode.SUCCESS)
    if owed.publish.qos:
        client.owe(owed)
        settle(client)
    return False
