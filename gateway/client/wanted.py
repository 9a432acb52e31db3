"""Subscriptions a client wants, and their state on the present connection.

Sends SUBSCRIBE and UNSUBSCRIBE for them, a bounded number at a time, again after every reconnect that lost the
session, and each request once a connection. Writes nothing by itself: the client passes `send`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from gateway.base.log_events import LogEvent
from gateway.mqtt5.client_session import Answered, ClientSession, Unanswered
from gateway.mqtt5.packets import SubAck, Subscription
from gateway.mqtt5.types import ReasonCode, Refused

log = logging.getLogger("veilmq.client")

MAX_SUBSCRIPTIONS = 10_000
"""Stops a caller that subscribes in a loop from filling memory."""
FILTERS_PER_PACKET = 64


class TooManySubscriptionsError(Exception):
    """An error of more than MAX_SUBSCRIPTIONS filters on a connection; use wildcards."""


@dataclass(slots=True)
class _Wish:
    options: Subscription
    on_answer: Callable[[int], None] | None
    asked: bool = False
    code: int | None = None


@dataclass(frozen=True, slots=True)
class _Dropping:
    """The token of an UNSUBSCRIBE."""

    filters: tuple[str, ...]


class WantedSubscriptions:
    """The wanted subscriptions of a client; they outlive connections and sessions."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._wanted: dict[str, _Wish] = {}
        self._unwanted: dict[str, None] = {}

    def add_wanted(self, options: Subscription, on_answer: Callable[[int], None] | None) -> bool:
        """Adds a wanted subscription; returns False if it was already sent on this connection.

        Raises TooManySubscriptionsError. If the answer to the earlier request is known, `on_answer` gets it at once.
        """
        known = self._wanted.get(options.filter)
        if known is not None and known.options == options and known.asked:
            known.on_answer = on_answer
            if known.code is not None and on_answer is not None:
                on_answer(known.code)
            return False
        if known is None and len(self._wanted) >= MAX_SUBSCRIPTIONS:
            raise TooManySubscriptionsError(
                f"more than {MAX_SUBSCRIPTIONS} subscriptions to {self._address}; use wildcards"
            )
        self._wanted[options.filter] = _Wish(options, on_answer)
        self._unwanted.pop(options.filter, None)
        return True

    def drop_wanted(self, topic_filter: str) -> bool:
        """Removes a wanted subscription; returns False if it was not wanted."""
        if self._wanted.pop(topic_filter, None) is None:
            return False
        self._unwanted[topic_filter] = None
        return True

    def begin_connection(self, session_present: bool) -> None:
        """Begins a new connection; without a session the server has none of our subscriptions."""
        if not session_present:
            self._unwanted.clear()
            self._forget_asked()

    def mark_all_unsent(self) -> None:
        """Marks all subscriptions to be sent once more, with a request for retained messages."""
        self._forget_asked()
        for wish in self._wanted.values():
            wish.options = replace(wish.options, retain_handling=0)

    def _forget_asked(self) -> None:
        for wish in self._wanted.values():
            wish.asked, wish.code = False, None

    def send_wanted(self, session: ClientSession, send: Callable[[bytes], None], now: float) -> None:
        """Sends SUBSCRIBE and UNSUBSCRIBE for all filters that were not sent on this connection."""
        missing = [wish for wish in self._wanted.values() if not wish.asked]
        try:
            for start in range(0, len(missing), FILTERS_PER_PACKET):
                part = missing[start : start + FILTERS_PER_PACKET]
                options = tuple(wish.options for wish in part)
                send(session.subscribe(options, options, now))
                for wish in part:
                    wish.asked = True
            while self._unwanted:
                filters = tuple(self._unwanted)[:FILTERS_PER_PACKET]
                send(session.unsubscribe(filters, _Dropping(filters), now))
                for topic_filter in filters:
                    del self._unwanted[topic_filter]
        except Refused:
            pass  # too many at once: the rest is sent with the next answer

    def take_answer(self, action: Answered) -> None:
        """Takes a SUBACK or UNSUBACK."""
        if not isinstance(action.packet, SubAck) or not isinstance(action.token, tuple):
            return
        for options, code in zip(action.token, action.packet.codes, strict=True):
            wish = self._wanted.get(options.filter)
            if code >= ReasonCode.UNSPECIFIED_ERROR:
                LogEvent.SUBSCRIPTION_REFUSED.say(log, self._address, options.filter, code)
            if wish is not None and wish.options == options:
                wish.code = code
                if wish.on_answer is not None:
                    wish.on_answer(code)

    def unanswered(self, action: Unanswered) -> None:
        """Takes back a request whose connection ended before the answer: it is sent again if the session survives."""
        if isinstance(action.token, _Dropping):
            again = (f for f in action.token.filters if f not in self._wanted)
            self._unwanted.update(dict.fromkeys(again))
        elif isinstance(action.token, tuple):
            for options in action.token:
                if (wish := self._wanted.get(options.filter)) is not None:
                    wish.asked = False
