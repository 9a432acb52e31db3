"""How others say that a device is there: Home Assistant, Homie, Sparkplug B, as clients publish it.

    Home Assistant   a discovery message (`homeassistant/COMPONENT/…/config`) names availability topics and their two
                     payloads, `online` and `offline` unless it says so. A topic that several devices name is a
                     bridge's. A document for a device names its components; `expire_after` makes a heartbeat
    Homie            `homie/DEVICE/$state` (version 5: `homie/5/DEVICE/$state`): init, ready, disconnected, sleeping,
                     lost, in version 4 alert; an empty one removes the device. In version 5 `$alert/ID` holds what is
                     amiss, until it is empty, and `$description` names a child's root
    Sparkplug B      `spBv1.0/GROUP/NBIRTH|NDEATH|DBIRTH|DDEATH|NDATA|DDATA/NODE[/DEVICE]`, with the numbers that tell
                     sessions and gaps (`sparkplug`)

What a client says here is its own word about itself, or a bridge's about others. Who may say what about whom is not
decided here (`devices`): a discovery message is read as `Named`, and counts once `watch` was called with it. What a
gateway itself writes for dashboards (`dashboards`), ours or another one, is never read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Any, TypeAlias

from bridge.contract import FairTable
from bridge.devices.sparkplug import NOTHING, SequenceNumbers, numbers_of

HOME_ASSISTANT, HOMIE, SPARKPLUG = "homeassistant", "homie", "spBv1.0"
CONVENTIONS = (HOME_ASSISTANT, HOMIE, SPARKPLUG)
ONLINE, OFFLINE = "online", "offline"
ALERTS = f"{HOMIE} $alert "  # what the sources of Homie's alerts begin with
ANYTHING = "\0"  # in place of a payload: whatever comes on a state topic that expires
REPORTED = "\0\0"  # the same, on a state topic that does not expire
OURS = "veilmq"  # what a gateway writes for dashboards begins so, in either convention's spelling
CONFIG_BYTES_MAX = 65_536  # of a discovery message
WATCHED_MAX = 50_000  # (availability topic, device) that discovery messages named; the greediest origin loses its own
WATCHERS_MAX = 1_024  # devices that name one topic: a bridge's; more are not watched there
TOPICS_OF_DEVICE_MAX = 64  # that discovery messages named of one device; its oldest go
NAMED_MAX = 16  # availability topics that one discovery message may name
NAME_MAX = 512  # characters of a device's name; longer ones are nobody's
EXPIRE_MAX_S = 30 * 86_400  # of a state: longer ones are no statement about life
TOPIC_MAX = 2_048  # characters of an availability topic that is watched


class Said(StrEnum):
    """What a device says of itself."""

    READY = "ready"
    STARTING = "starting"
    SLEEPING = "sleeping"
    ALERT = "alert"
    CALM = "calm"
    """What was amiss by this source is so no longer."""
    GONE = "gone"
    """It left, and said so."""
    LOST = "lost"
    """It vanished: somebody else, or its will, says so."""
    SPEAKS = "speaks"
    """It says something else, and so it lives."""
    REPORTS = "reports"
    """Its state is published, at no rhythm: a device that is known lives."""


@dataclass(frozen=True, slots=True)
class ConventionWord:
    """One statement. `device`: its name in the convention's own terms; `source`: what a later word replaces."""

    convention: str
    device: str
    said: Said
    source: str = ""
    numbers: SequenceNumbers = NOTHING  # of Sparkplug's messages


@dataclass(frozen=True, slots=True)
class ConventionAvailability:
    """Where and how Home Assistant hears whether a device is there. `key`: of the JSON object that holds the word."""

    topic: str
    online: str = ONLINE
    offline: str = OFFLINE
    key: str = ""


@dataclass(frozen=True, slots=True)
class Named:
    """A discovery message of Home Assistant's: where a device's availability is said."""

    device: str
    topics: tuple[ConventionAvailability, ...]
    mode: str = "all"
    """Of several topics in one message: `all` must say that it is there, `any` of them, or the `latest` word counts."""
    expire_s: float | None = None
    """Without a word on its state topic for so long it is not there."""


@dataclass(frozen=True, slots=True)
class Rooted:
    """A device of Homie's whose connection is that of another one: it is there no more when that one is not."""

    device: str
    root: str


@dataclass(frozen=True, slots=True)
class Cleared:
    """A device was removed from its convention's tree."""

    convention: str
    device: str


Statement: TypeAlias = ConventionWord | Named | Rooted | Cleared

_TEMPLATES, _TEMPLATES_ALONE = ("value_template", "val_tpl"), ("availability_template", "avty_tpl")
_KEY = re.compile(r"\{\{\s*value_json\.(\w{1,64})\s*\}\}")  # the only template that we understand
_HOMIE_VALUE = re.compile(r"(5/)?(?!5/)[^/$]+/[^/$]+/[^/$]+")  # device, node, property
_HOMIE = {
    "init": Said.STARTING, "ready": Said.READY, "disconnected": Said.GONE, "sleeping": Said.SLEEPING,
    "lost": Said.LOST, "alert": Said.ALERT,
}  # fmt: skip
_SPARKPLUG = {
    "NBIRTH": Said.READY, "DBIRTH": Said.READY, "NDEATH": Said.LOST, "DDEATH": Said.LOST, "NDATA": Said.SPEAKS,
    "DDATA": Said.SPEAKS,
}  # fmt: skip
_MODES = ("all", "any", "latest")
_STATES = {ANYTHING: Said.SPEAKS, REPORTED: Said.REPORTS}
# Where conventions have what is retained. Documents come first: they say where words are.
_KEPT = {
    HOME_ASSISTANT: (f"{HOME_ASSISTANT}/+/+/config", f"{HOME_ASSISTANT}/+/+/+/config"),
    HOMIE: (f"{HOMIE}/5/+/$description", f"{HOMIE}/5/+/$state", f"{HOMIE}/5/+/$alert/+", f"{HOMIE}/+/$state"),
}


class Conventions:
    """Reads publications; remembers which topics Home Assistant's discovery messages named."""

    def __init__(self, prefix: str = HOME_ASSISTANT, read: tuple[str, ...] = CONVENTIONS) -> None:
        """`prefix`: of discovery messages; `read`: the conventions that are."""
        self._prefix, self._reads = prefix, frozenset(read)
        self._watched: FairTable[tuple[str, str], ConventionAvailability] = FairTable(WATCHED_MAX)
        self._devices: dict[str, dict[str, None]] = {}  # by topic that is watched
        self._topics: dict[str, dict[str, None]] = {}  # by device

    def __len__(self) -> int:
        return len(self._watched)

    def read(self, topic: str, payload: bytes) -> tuple[Statement, ...]:
        """What a publication says about devices. That somebody watches a topic hides no other word on it."""
        words = self.words_at(topic, payload)
        return (
            *(word for device in self.watching(topic) for word in words.about(device)),
            *self.read_tree(topic, payload),
        )

    def read_tree(self, topic: str, payload: bytes) -> tuple[Statement, ...]:
        """The same without what is said on watched topics."""
        first, _, rest = topic.partition("/")
        if first == self._prefix and HOME_ASSISTANT in self._reads:
            return self._read_config(rest, payload) if rest.endswith("/config") else ()
        if first == HOMIE and HOMIE in self._reads:
            return _read_homie(rest, payload)
        if first == SPARKPLUG and SPARKPLUG in self._reads:
            return _read_sparkplug(rest, payload)
        return ()

    def watch(self, named: Named, owner: bytes) -> None:
        """From now on what is said on these topics is about this device. `owner`: who pays for the place."""
        for availability in named.topics:
            devices = self._devices.setdefault(availability.topic, {})
            if named.device not in devices and len(devices) >= WATCHERS_MAX:
                continue
            devices[named.device] = None
            topics = self._topics.setdefault(named.device, {})
            if availability.online == REPORTED and len(topics) >= TOPICS_OF_DEVICE_MAX:
                continue  # where words are said is worth more
            topics[availability.topic] = None
            if len(topics) > TOPICS_OF_DEVICE_MAX:
                oldest = next(iter(topics))
                self._watched.pop((oldest, named.device))
                self._unwatch(oldest, named.device)
            gone = self._watched.put((availability.topic, named.device), owner, availability)
            if gone is not None:
                self._unwatch(*gone[0])

    def forget(self, device: str) -> None:
        """Nothing is said about it any more."""
        for topic in list(self._topics.get(device, ())):
            self._watched.pop((topic, device))
            self._unwatch(topic, device)

    def _unwatch(self, topic: str, device: str) -> None:
        for table, key, value in ((self._devices, topic, device), (self._topics, device, topic)):
            table[key].pop(value, None)
            if not table[key]:
                del table[key]

    def kept_filters(self) -> list[str]:
        """Returns filters of retained publications that are evidence after a restart."""
        return [each for convention, filters in _KEPT.items() if convention in self._reads for each in filters]

    def watched_topics(self) -> list[str]:
        """Returns the topics on which availability is said."""
        return list(self._devices)

    def watching(self, topic: str) -> Collection[str]:
        """Devices whose availability is said on a topic. It must not change meanwhile."""
        return self._devices.get(topic, {}).keys()

    def words_at(self, topic: str, payload: bytes) -> WordsAt:
        """What a publication on a watched topic says, device by device."""
        return WordsAt(topic, payload, self._watched)

    def _read_config(self, rest: str, payload: bytes) -> tuple[Statement, ...]:
        config = _object(payload)
        if config is None:
            return ()
        # The device that several sensors and switches belong to, if the message says which.
        device = _identifier(config) or _text(config, "unique_id", "uniq_id") or rest.removesuffix("/config")
        if device.startswith(OURS) or len(device) > NAME_MAX or not _is_text(device):
            return ()
        # One message for a whole device: what stands at the top counts for each of its components.
        components = config.get("components", config.get("cmps")) if rest.startswith("device/") else None
        parts = [config]
        if isinstance(components, dict):
            described = (each for each in components.values() if isinstance(each, dict))
            parts += [{"~": config.get("~"), **each} for each in islice(described, NAMED_MAX)]
        topics = dict.fromkeys(topic for part in parts[:NAMED_MAX] for topic in _availabilities(part))
        expiries = [found for part in parts[:NAMED_MAX] if (found := _expiry(part)) is not None]
        topics |= dict.fromkeys(ConventionAvailability(topic, ANYTHING) for topic, _ in expiries)
        taken = {each.topic for each in topics}
        reported = [] if not topics else [topic for part in parts[:NAMED_MAX] if (topic := _state_topic(part))]
        topics |= dict.fromkeys(ConventionAvailability(topic, REPORTED) for topic in reported if topic not in taken)
        mode = _text(config, "availability_mode", "avty_mode") or "latest"
        several = len(_availabilities(config)) > 1 and mode in _MODES
        expire_s = min((seconds for _, seconds in expiries), default=None)
        named = Named(device, tuple(topics)[: 2 * NAMED_MAX], mode if several else "all", expire_s)
        return (named,) if topics else ()


class WordsAt:
    """What one publication says to those who watch its topic; parsed once, however many read it."""

    __slots__ = ("_parsed", "_payload", "_plain", "_topic", "_watched")

    def __init__(self, topic: str, payload: bytes, watched: FairTable[tuple[str, str], ConventionAvailability]) -> None:
        self._topic, self._watched = topic, watched
        self._payload = payload if len(payload) <= CONFIG_BYTES_MAX else b""  # no word is so long
        self._plain: str | None = None
        self._parsed: dict[str, Any] | None = None

    def about(self, device: str) -> tuple[ConventionWord, ...]:
        """The word about one of them, if there is one."""
        availability = self._watched.get((self._topic, device))
        if availability is None:
            return ()
        self._watched.touch((self._topic, device))
        said = _STATES.get(availability.online) or self._said(availability)
        return () if said is None else (ConventionWord(HOME_ASSISTANT, device, said, self._topic),)

    def _said(self, availability: ConventionAvailability) -> Said | None:
        if availability.key:
            if self._parsed is None:
                self._parsed = _object(self._payload) or {}
            text = _text(self._parsed, availability.key) or ""
        else:
            if self._plain is None:
                self._plain = self._payload.decode("utf-8", "replace")
            text = self._plain
        return {availability.offline: Said.LOST, availability.online: Said.READY}.get(text)


def _availabilities(config: dict[str, Any]) -> list[ConventionAvailability]:
    """The topics that one part of a discovery message names."""
    listed = config.get("availability", config.get("avty"))
    entries = listed if isinstance(listed, list) else [listed]
    named = [entry for entry in entries if isinstance(entry, dict)][:NAMED_MAX] or [config]
    topics = list[ConventionAvailability]()
    for entry in named:
        topic = _text(entry, "topic", "t") if entry is not config else _text(config, "availability_topic", "avty_t")
        topic = _topic(config, topic)
        if topic:
            online = _text(entry, "payload_available", "pl_avail") or ONLINE
            offline = _text(entry, "payload_not_available", "pl_not_avail") or OFFLINE
            template = _text(entry, *(_TEMPLATES if entry is not config else _TEMPLATES_ALONE)) or ""
            key = _KEY.fullmatch(template)
            if template and key is None:
                continue  # a program of Home Assistant's that we do not run
            if max(len(topic), len(online), len(offline)) <= TOPIC_MAX:
                topics.append(ConventionAvailability(topic, online, offline, key[1] if key else ""))
    return topics


def _expiry(config: dict[str, Any]) -> tuple[str, float] | None:
    """A state topic and how long its last word counts."""
    topic = _state_topic(config)
    seconds = config.get("expire_after", config.get("exp_aft"))
    if not topic or isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    return (topic, float(seconds)) if 0 < seconds <= EXPIRE_MAX_S else None


def _state_topic(config: dict[str, Any]) -> str | None:
    return _topic(config, _text(config, "state_topic", "stat_t"))


def _topic(config: dict[str, Any], topic: str | None) -> str | None:
    """With its base in place of `~`; None for none, or one that is too long."""
    if not topic:
        return None
    base = _text(config, "~") or ""
    topic = base + topic[1:] if topic.startswith("~") else topic
    topic = topic[:-1] + base if topic.endswith("~") else topic
    return topic if len(topic) <= TOPIC_MAX else None


def _read_homie(rest: str, payload: bytes) -> tuple[Statement, ...]:
    if rest.startswith("5/") and "/$alert/" in rest:
        return _read_alert(rest[2:], payload)
    if rest.startswith("5/") and rest.endswith("/$description"):
        return _read_description(rest[2:].removesuffix("/$description"), payload)
    if _HOMIE_VALUE.fullmatch(rest) and len(rest) <= NAME_MAX:
        device = rest.removeprefix("5/").partition("/")[0]
        return () if device.startswith(OURS) else (ConventionWord(HOMIE, device, Said.REPORTS, HOMIE),)
    device = rest.removesuffix("/$state").removeprefix("5/")
    if not rest.endswith("/$state") or not device or "/" in device or len(device) > NAME_MAX or device.startswith(OURS):
        return ()
    if not payload:
        return (Cleared(HOMIE, device),)
    said = _HOMIE.get(payload.decode("utf-8", "replace"))
    return (ConventionWord(HOMIE, device, said, HOMIE),) if said else ()


def _read_alert(rest: str, payload: bytes) -> tuple[Statement, ...]:
    """Homie 5: as many as a device likes, each by its own name; which text it has is for people."""
    device, _, alert = rest.partition("/$alert/")
    if not device or not alert or "/" in device + alert or len(rest) > NAME_MAX or device.startswith(OURS):
        return ()
    return (ConventionWord(HOMIE, device, Said.ALERT if payload else Said.CALM, ALERTS + alert),)


def _read_description(device: str, payload: bytes) -> tuple[Statement, ...]:
    """Homie 5: a child names its root, whose connection, and will, are its own, too."""
    described = _object(payload) if device and "/" not in device and len(device) <= NAME_MAX else None
    root = None if described is None or device.startswith(OURS) else _text(described, "root")
    if not root or root == device or len(root) > NAME_MAX or not _is_text(root):
        return ()
    return (Rooted(device, root),)


def _read_sparkplug(rest: str, payload: bytes) -> tuple[Statement, ...]:
    levels = rest.split("/")
    said = _SPARKPLUG.get(levels[1]) if len(levels) in (3, 4) and len(rest) <= NAME_MAX else None
    if said is None or (levels[1][0] == "D") != (len(levels) == 4) or not all(levels):
        return ()
    return (ConventionWord(SPARKPLUG, "/".join((levels[0], *levels[2:])), said, SPARKPLUG, numbers_of(payload)),)


def _object(payload: bytes | str) -> dict[str, Any] | None:
    if len(payload) > CONFIG_BYTES_MAX:
        return None
    try:
        found = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _identifier(config: dict[str, Any]) -> str | None:
    described = config.get("device", config.get("dev"))
    if not isinstance(described, dict):
        return None
    found = described.get("identifiers", described.get("ids"))
    first = found[0] if isinstance(found, list) and found else found
    return first if isinstance(first, str) and first else None


def _is_text(name: str) -> bool:
    """Whether it can be written in UTF-8: JSON may spell half a character."""
    return not any("\ud800" <= character <= "\udfff" for character in name)


def _text(fields: dict[str, Any], *names: str) -> str | None:
    return next((fields[name] for name in names if isinstance(fields.get(name), str)), None)
