"""Subscriptions that begin in the past: `$since/WHEN/FILTER`, for any client, or the user property `since` of MQTT 5.

WHEN is an age (`90s`, `45m`, `2h`, `7d`) or a UTC time (`2026-11-28T08:00:00Z`). Not here: reading a history.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime

from gateway.mqtt5.packets import Subscribe

SINCE_PREFIX = "$since/"
SINCE = "since"
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_AGE = re.compile(r"([1-9][0-9]{0,6})([smhd])", re.ASCII)
_INVALID = "?"


def with_since(packet: Subscribe) -> Subscribe:
    """Returns the packet with `Subscription.since` filled in."""
    said = [text or _INVALID for name, text in packet.properties.user if name == SINCE][-1:]
    if not said and not any(each.filter.startswith(SINCE_PREFIX) for each in packet.subscriptions):
        return packet
    asked = []
    for each in packet.subscriptions:
        inside = [each.filter.split("/", 2)[1]] if each.filter.startswith(SINCE_PREFIX) else []
        both = [*inside, *said]
        asked.append(replace(each, since=both[0] or _INVALID if len(both) == 1 else _INVALID if both else ""))
    return replace(packet, subscriptions=tuple(asked))


def since_ms(text: str, now: float) -> int | None:
    """Returns the UNIX time in ms that a text names; None for an invalid text."""
    if (age := _AGE.fullmatch(text)) is not None:
        return max(0, int((now - int(age[1]) * _UNITS[age[2]]) * 1000))
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return max(0, int(at.timestamp() * 1000))
