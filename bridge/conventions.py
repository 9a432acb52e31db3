"""How others say that a device is there: Home Assistant, Homie, Sparkplug B; read, and the first two also written.

    Home Assistant   a discovery message (`homeassistant/COMPONENT/…/config`) names an availability topic and its two
                     payloads, `online` and `offline` unless it says so; also a bridge's list of several
    Homie            `homie/DEVICE/$state` (version 5: `homie/5/DEVICE/$state`): init, ready, disconnected, sleeping,
                     lost, alert
    Sparkplug B      `spBv1.0/GROUP/NBIRTH|NDEATH|DBIRTH|DDEATH/NODE[/DEVICE]`: that there is one says it; the payload
                     is not needed

What a client says here is its own word about itself, or a bridge's about others: as good as the client's right to
publish on that topic. Not here: pings, traces (`tracing`), what is done with it (`availability`).
"""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

HOME_ASSISTANT, HOMIE, SPARKPLUG = "homeassistant", "homie", "spBv1.0"
ONLINE, OFFLINE = "online", "offline"
CONFIG_BYTES_MAX = 65_536  # of a discovery message
WATCHED_MAX = 100_000  # availability topics that discovery messages named; the longest unheard of goes first
NAMED_MAX = 16  # availability topics that one discovery message may name


class Said(StrEnum):
    """What a device says of itself."""

    READY = "ready"
    STARTING = "starting"
    SLEEPING = "sleeping"
    ALERT = "alert"
    GONE = "gone"
    """It left, and said so."""
    LOST = "lost"
    """It vanished: somebody else, or its will, says so."""


@dataclass(frozen=True, slots=True)
class Word:
    """One statement. `device`: its name in the convention's own terms; `convention`: one of the three."""

    convention: str
    device: str
    said: Said


_HOMIE = {
    "init": Said.STARTING, "ready": Said.READY, "disconnected": Said.GONE, "sleeping": Said.SLEEPING,
    "lost": Said.LOST, "alert": Said.ALERT,
}  # fmt: skip
_SPARKPLUG = {"NBIRTH": Said.READY, "DBIRTH": Said.READY, "NDEATH": Said.LOST, "DDEATH": Said.LOST}


@dataclass(frozen=True, slots=True)
class _Watched:
    """An availability topic that a discovery message named."""

    device: str
    online: str
    offline: str


class Conventions:
    """Reads publications; remembers which topics Home Assistant's discovery messages named."""

    def __init__(self, prefix: str = HOME_ASSISTANT) -> None:
        """`prefix`: of discovery messages."""
        self._prefix = prefix
        self._watched: OrderedDict[str, _Watched] = OrderedDict()

    def __len__(self) -> int:
        return len(self._watched)

    def read(self, topic: str, payload: bytes) -> Word | None:
        """What a publication says about a device, if it says anything. An empty Homie state clears it: nothing is
        said."""
        watched = self._watched.get(topic)
        if watched is not None:
            return self._read_watched(topic, watched, payload)
        first, _, rest = topic.partition("/")
        if first == self._prefix and rest.endswith("/config"):
            self._read_config(rest, payload)
            return None
        if first == HOMIE and rest.endswith("/$state"):
            said = _HOMIE.get(payload.decode("utf-8", "replace"))
            device = rest.removesuffix("/$state").removeprefix("5/")
            return Word(HOMIE, device, said) if said and device and "/" not in device else None
        if first == SPARKPLUG:
            return _read_sparkplug(rest)
        return None

    def _read_watched(self, topic: str, watched: _Watched, payload: bytes) -> Word | None:
        self._watched.move_to_end(topic)
        text = payload.decode("utf-8", "replace")
        if text == watched.online:
            return Word(HOME_ASSISTANT, watched.device, Said.READY)
        return Word(HOME_ASSISTANT, watched.device, Said.LOST) if text == watched.offline else None

    def _read_config(self, rest: str, payload: bytes) -> None:
        """A discovery message: the topics that it names are watched. Anything else is not."""
        config = _object(payload)
        if config is None:
            return
        device = _text(config, "unique_id", "uniq_id") or rest.removesuffix("/config")
        base = _text(config, "~") or ""
        listed = config.get("availability", config.get("avty"))
        entries = listed if isinstance(listed, list) else [listed]
        named = [entry for entry in entries if isinstance(entry, dict)][:NAMED_MAX] or [config]
        for entry in named:
            topic = _text(entry, "topic", "t") if entry is not config else _text(config, "availability_topic", "avty_t")
            if topic:
                topic = base + topic[1:] if topic.startswith("~") else topic
                topic = topic[:-1] + base if topic.endswith("~") else topic
                online = _text(entry, "payload_available", "pl_avail") or ONLINE
                offline = _text(entry, "payload_not_available", "pl_not_avail") or OFFLINE
                self._watch(topic, _Watched(device, online, offline))

    def _watch(self, topic: str, watched: _Watched) -> None:
        self._watched[topic] = watched
        self._watched.move_to_end(topic)
        if len(self._watched) > WATCHED_MAX:
            self._watched.popitem(last=False)


def _read_sparkplug(rest: str) -> Word | None:
    levels = rest.split("/")
    said = _SPARKPLUG.get(levels[1]) if len(levels) in (3, 4) else None
    if said is None or (levels[1][0] == "D") != (len(levels) == 4) or not all(levels):
        return None
    return Word(SPARKPLUG, "/".join((levels[0], *levels[2:])), said)


def _object(payload: bytes) -> dict[str, Any] | None:
    if len(payload) > CONFIG_BYTES_MAX:
        return None
    try:
        found = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _text(fields: dict[str, Any], *names: str) -> str | None:
    return next((fields[name] for name in names if isinstance(fields.get(name), str)), None)


# --------------------------------------------------------------------------------------------------- writing


def home_assistant_config(device: str, name: str, state_topic: str, prefix: str = HOME_ASSISTANT) -> tuple[str, bytes]:
    """Topic and payload, to be retained, by which Home Assistant shows a device's availability as a sensor.

    `device`: letters, digits, dashes and underscores; `state_topic`: where a JSON object with `state` is retained.
    """
    config = {
        "name": name,
        "unique_id": f"veilmq_{device}",
        "device_class": "connectivity",
        "state_topic": state_topic,
        "value_template": "{{ value_json.state }}",
        "payload_on": ONLINE,
        "payload_off": OFFLINE,
        "json_attributes_topic": state_topic,
    }
    return f"{prefix}/binary_sensor/veilmq_{device}/config", json.dumps(config, ensure_ascii=False).encode()


def homie_state(device: str, said: Said) -> tuple[str, bytes]:
    """Topic and payload, to be retained, of a device's state in Homie's terms."""
    words = {of: word for word, of in _HOMIE.items()}
    return f"{HOMIE}/5/{device}/$state", words[said].encode()
