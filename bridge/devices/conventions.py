"""How others say that a device is there: Home Assistant, Homie, Sparkplug B, as clients publish it.

    Home Assistant   a discovery message (`homeassistant/COMPONENT/…/config`) names availability topics and their two
                     payloads, `online` and `offline` unless it says so. A topic that several devices name is a
                     bridge's. A document for a device names its components; `expire_after` makes a heartbeat
    Homie            `homie/DEVICE/$state` (version 5: `DOMAIN/5/DEVICE/$state`, any domain): init, ready,
                     disconnected, sleeping, lost, in version 4 alert; an empty payload removes the device. In version 5
                     `$alert/ID` holds one alert, until it is empty, and `$description` names a child's root
    Sparkplug B      `spBv1.0/GROUP/NBIRTH|NDEATH|DBIRTH|DDEATH|NDATA|DDATA/NODE[/DEVICE]`, with the numbers that tell
                     sessions and gaps (`sparkplug`)

What a client says here is its own word about itself, or a bridge's about others. Who may say what about whom is not
decided here (`devices`): a discovery message is read as `Named`, and counts once `watch` was called with it. What a
gateway itself writes for dashboards (`dashboards`), ours or another one, is never read.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from bridge.base import TopicIndex, has_wildcard
from bridge.contract import FairTable
from bridge.devices.discovery import (
    ANYTHING,
    CONFIG_BYTES_MAX,
    NAME_MAX,
    OURS,
    REPORTED,
    ConventionAvailability,
    Named,
    is_json,
    is_text,
    parse_object,
    read_document,
    text_of,
)
from bridge.devices.sparkplug import NOTHING, SequenceNumbers, numbers_of

HOME_ASSISTANT, HOMIE, SPARKPLUG = "homeassistant", "homie", "spBv1.0"
CONVENTIONS = (HOME_ASSISTANT, HOMIE, SPARKPLUG)
ALERTS = f"{HOMIE} $alert "  # what the sources of Homie's alerts begin with
ROOT = f"{HOMIE} root"  # the source of a loss that a child has from its root
WATCHED_MAX = 50_000  # (availability topic, device) that discovery messages named; the greediest origin loses its own
WATCHERS_MAX = 1_024  # devices that name one topic: a bridge's; more are not watched there
TOPICS_OF_DEVICE_MAX = 64  # words on topics that discovery messages named of one device; its oldest entities go first
ENTITIES_MAX = 64  # of one device; its oldest go
DOCUMENTS_MAX = 50_000  # discovery messages of which is known whose they are; the greediest origin loses its own
WILD_MAX = 1_000  # filters with wildcards among the topics that are watched; the greediest origin loses its own


class Said(StrEnum):
    """The statements a device can make about itself."""

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
    """A statement. `device`: its name in the convention's own terms; `source`: what a later word replaces."""

    convention: str
    device: str
    said: Said
    source: str = ""
    numbers: SequenceNumbers = NOTHING  # of Sparkplug's messages


@dataclass(frozen=True, slots=True)
class Rooted:
    """A Homie 5 device whose `$description` names its root, which owns the connection; `root` empty: it is a root."""

    device: str
    root: str = ""


@dataclass(frozen=True, slots=True)
class Cleared:
    """A device was removed from its convention's tree, or the entities of one `document` from the device."""

    convention: str
    device: str
    document: str = ""


Statement: TypeAlias = ConventionWord | Named | Rooted | Cleared

_HOMIE_5 = "5/"  # the level of the version, which version 4 does not have
_HOMIE_VALUE = re.compile(r"(?!5/)[^/$]+/[^/$]+/[^/$]+")  # device, node, property
_HOMIE = {
    "init": Said.STARTING, "ready": Said.READY, "disconnected": Said.GONE, "sleeping": Said.SLEEPING,
    "lost": Said.LOST, "alert": Said.ALERT,
}  # fmt: skip
_SPARKPLUG = {
    "NBIRTH": Said.READY, "DBIRTH": Said.READY, "NDEATH": Said.LOST, "DDEATH": Said.LOST, "NDATA": Said.SPEAKS,
    "DDATA": Said.SPEAKS,
}  # fmt: skip
_STATES = {ANYTHING: Said.SPEAKS, REPORTED: Said.REPORTS}
# Where conventions have what is retained. Documents come first: they say where words are.
_KEPT = {
    HOME_ASSISTANT: (f"{HOME_ASSISTANT}/+/+/config", f"{HOME_ASSISTANT}/+/+/+/config"),
    HOMIE: ("+/5/+/$description", "+/5/+/$state", "+/5/+/$alert/+", f"{HOMIE}/+/$state"),
}


class Conventions:
    """Reads publications; remembers which topics Home Assistant's discovery messages named."""

    def __init__(self, prefix: str = HOME_ASSISTANT, read: tuple[str, ...] = CONVENTIONS) -> None:
        """`prefix`: of discovery messages; `read`: the conventions that are."""
        self._prefix, self._reads = prefix, frozenset(read)
        self._watched: FairTable[tuple[str, str], tuple[ConventionAvailability, ...]] = FairTable(WATCHED_MAX)
        self._devices: dict[str, dict[str, None]] = {}  # by topic that is watched
        self._topics: dict[str, dict[str, None]] = {}  # by device
        self._entities: dict[str, dict[str, Named]] = {}  # by device, then by document
        self._documents: FairTable[str, str] = FairTable(DOCUMENTS_MAX)  # whose they are
        self._wild: FairTable[str, bool] = FairTable(WILD_MAX)
        self._filters: TopicIndex[str] = TopicIndex()

    def __len__(self) -> int:
        return len(self._watched)

    def read_publication(self, topic: str, payload: bytes) -> tuple[Statement, ...]:
        """Returns the words of a publication about devices. A watched topic hides no other word on it."""
        words = self.words_at(topic, payload)
        return (
            *(word for device in self.watching(topic) for word in words.about(device)),
            *self.read_tree(topic, payload),
        )

    def read_tree(self, topic: str, payload: bytes) -> tuple[Statement, ...]:
        """Returns the words of a publication about devices, without those on watched topics."""
        first, _, rest = topic.partition("/")
        if first == self._prefix and HOME_ASSISTANT in self._reads:
            return self._read_config(rest, payload) if rest.endswith("/config") else ()
        if first == SPARKPLUG:
            return _read_sparkplug(rest, payload) if SPARKPLUG in self._reads else ()
        if (first == HOMIE or rest.startswith(_HOMIE_5)) and HOMIE in self._reads:
            return _read_homie(first, rest, payload)
        return ()

    def watch(self, named: Named, owner: bytes) -> None:
        """From now on what is said on these topics is about this device. `owner`: who pays for the place."""
        entities = self._entities.setdefault(named.device, {})
        entities.pop(named.document, None)
        entities[named.document] = named
        if len(entities) > ENTITIES_MAX:
            del entities[next(iter(entities))]
        base = base_of(named.document)
        if self._documents.get(base) in (None, named.device):  # else another device has the document still
            self._documents.put(base, owner, named.device)
        self._watch_entities(named.device, owner)

    def entities(self, device: str) -> Collection[Named]:
        """Returns the entities that discovery messages describe of a device. The result must not be changed."""
        return self._entities.get(device, {}).values()

    def describes(self, device: str, document: str) -> bool:
        return document in self._entities.get(device, {})

    def described_by(self, document: str) -> str | None:
        """Returns the device that a document describes, by what is known; None for an unknown document."""
        return self._documents.get(base_of(document))

    def unwatch(self, device: str, document: str) -> None:
        """Forgets the entities of a document, or one component of a device document, which has `#` in its name."""
        entities = self._entities.get(device, {})
        for each in [one for one in entities if document in (one, base_of(one))]:
            del entities[each]
        self._documents.pop(document)
        if not entities:
            self.forget_device(device)
        else:
            self._watch_entities(device, b"")

    def _watch_entities(self, device: str, owner: bytes) -> None:
        """Watch what the entities of a device name, and nothing else of it."""
        wanted: dict[str, dict[ConventionAvailability, None]] = {}
        named = [topic for entity in reversed(self._entities[device].values()) for topic in entity.topics]
        named.sort(key=lambda each: each.online == REPORTED)  # where words are said is worth more
        for availability in named[:TOPICS_OF_DEVICE_MAX]:
            wanted.setdefault(availability.topic, {})[availability] = None
        for topic in [topic for topic in self._topics.get(device, ()) if topic not in wanted]:
            self._watched.pop((topic, device))
            self._unwatch(topic, device)
        for topic, understood in wanted.items():
            devices = self._devices.setdefault(topic, {})
            if device not in devices and len(devices) >= WATCHERS_MAX:
                continue
            if self._watched.get((topic, device)) == tuple(understood):
                continue
            devices[device] = None
            self._topics.setdefault(device, {})[topic] = None
            if has_wildcard(topic):
                self._filters.add(topic, topic, topic)
                if (full := self._wild.put(topic, owner, True)) is not None:
                    self._filters.remove(full[0], full[0])
            gone = self._watched.put((topic, device), owner, tuple(understood))
            if gone is not None:
                self._unwatch(*gone[0])

    def forget_device(self, device: str) -> None:
        """Nothing is said about it any more."""
        for topic in list(self._topics.get(device, ())):
            self._watched.pop((topic, device))
            self._unwatch(topic, device)
        for document in self._entities.pop(device, ()):
            if self._documents.get(base_of(document)) == device:
                self._documents.pop(base_of(document))

    def _unwatch(self, topic: str, device: str) -> None:
        for table, key, value in ((self._devices, topic, device), (self._topics, device, topic)):
            table[key].pop(value, None)
            if not table[key]:
                del table[key]
        if topic not in self._devices and has_wildcard(topic):
            self._filters.remove(topic, topic)
            self._wild.pop(topic)

    def kept_filters(self) -> list[str]:
        """Returns filters of retained publications that are evidence after a restart."""
        return [each for convention, filters in _KEPT.items() if convention in self._reads for each in filters]

    def watched_topics(self) -> list[str]:
        """Returns the topics on which availability is said."""
        return list(self._devices)

    def watching(self, topic: str) -> Collection[str]:
        """Devices whose availability is said on a topic. It must not change meanwhile."""
        exact = self._devices.get(topic, {})
        filters = self._filters.match(topic)
        if not filters:
            return exact.keys()
        return dict.fromkeys((*exact, *(device for each in filters for device in self._devices.get(each, ())))).keys()

    def words_at(self, topic: str, payload: bytes) -> WordsAt:
        """Returns the words of a publication on a watched topic, device by device."""
        return WordsAt((topic, *self._filters.match(topic)), payload, self._watched)

    def _read_config(self, rest: str, payload: bytes) -> tuple[Statement, ...]:
        """An empty document removes its entities; one that names nothing more takes back what it named before."""
        if payload:
            return tuple(
                Cleared(HOME_ASSISTANT, named.device, named.document) if named.is_removed else named
                for named in read_document(rest, payload)
                if named.topics or self.describes(named.device, named.document)
            )
        device = self._documents.get(rest)
        return () if device is None else (Cleared(HOME_ASSISTANT, device, rest),)


def base_of(document: str) -> str:
    """Returns the topic of a document, which is that of each of its components."""
    return document.partition("#")[0]


class WordsAt:
    """The words of a publication for the watchers of its topic; parsed once, however many read it.

    `filters`: the topic, and the filters with wildcards matching it.
    """

    __slots__ = ("_filters", "_parsed", "_payload", "_plain", "_watched")

    def __init__(
        self, filters: tuple[str, ...], payload: bytes,
        watched: FairTable[tuple[str, str], tuple[ConventionAvailability, ...]],
    ) -> None:  # fmt: skip
        self._filters, self._watched = filters, watched
        self._payload = payload if len(payload) <= CONFIG_BYTES_MAX else b""  # no word is so long
        self._plain: str | None = None
        self._parsed: dict[str, Any] | None = None

    def about(self, device: str) -> tuple[ConventionWord, ...]:
        """Returns the words about one of them; that a state came stands before a word in it."""
        return tuple(sorted(self._words(device), key=lambda word: word.said in (Said.READY, Said.LOST)))

    def _words(self, device: str) -> Iterator[ConventionWord]:
        for topic in self._filters:
            understood = self._watched.get((topic, device))
            if understood is None:
                continue
            self._watched.touch((topic, device))
            for each in understood:
                said = _STATES.get(each.online) or self._said(each)
                if said is not None:
                    source = topic if each.online in _STATES else each.source
                    yield ConventionWord(HOME_ASSISTANT, device, said, source)

    def _said(self, availability: ConventionAvailability) -> Said | None:
        """Returns the word of a payload; where a template cannot be applied, Home Assistant takes the plain payload."""
        if self._plain is None:
            self._plain = self._payload.decode("utf-8", "replace")
            self._parsed = parse_object(self._payload) if self._payload else {}
        text = self._plain
        if availability.key and (self._parsed is not None or is_json(self._payload)):
            text = text_of(self._parsed or {}, availability.key) or ""
        return {availability.offline: Said.LOST, availability.online: Said.READY}.get(text)


def _read_homie(domain: str, rest: str, payload: bytes) -> tuple[Statement, ...]:
    """Reads `DOMAIN/REST`. A device of version 5 is called by its id in the domain `homie`, else by `DOMAIN/ID`."""
    is_5, rest = rest.startswith(_HOMIE_5), rest.removeprefix(_HOMIE_5)
    device, _, attribute = rest.partition("/")
    prefix = "" if domain == HOMIE else f"{domain}/"
    is_name = domain and device and len(prefix + device) <= NAME_MAX and not device.startswith((OURS, "$"))
    if not is_name or domain.startswith(OURS):
        return ()
    if attribute == "$state":
        return _read_state(prefix + device, payload)
    if is_5 and attribute == "$description":
        return _read_description(prefix, device, payload)
    if len(rest) > NAME_MAX:
        return ()
    if is_5 and attribute.startswith("$alert/"):
        return _read_alert(prefix + device, attribute.removeprefix("$alert/"), payload)
    return (ConventionWord(HOMIE, prefix + device, Said.REPORTS, HOMIE),) if _HOMIE_VALUE.fullmatch(rest) else ()


def _read_state(device: str, payload: bytes) -> tuple[Statement, ...]:
    if not payload:
        return (Cleared(HOMIE, device),)
    said = _HOMIE.get(payload.decode("utf-8", "replace"))
    return (ConventionWord(HOMIE, device, said, HOMIE),) if said else ()


def _read_alert(device: str, alert: str, payload: bytes) -> tuple[Statement, ...]:
    """Returns the word of an alert of a device, which may raise several; the text of an alert is for people."""
    if not alert or "/" in alert:
        return ()
    return (ConventionWord(HOMIE, device, Said.ALERT if payload else Said.CALM, ALERTS + alert),)


def _read_description(prefix: str, device: str, payload: bytes) -> tuple[Statement, ...]:
    """Returns the root a child names, whose connection, and will, are the child's, too; a root names none."""
    described = parse_object(payload)
    if described is None or "root" not in described:
        return () if described is None else (Rooted(prefix + device),)
    root = described["root"]
    if not isinstance(root, str) or not root or root == device or len(root) > NAME_MAX or not is_text(root):
        return ()
    return (Rooted(prefix + device, prefix + root),)


def _read_sparkplug(rest: str, payload: bytes) -> tuple[Statement, ...]:
    levels = rest.split("/")
    said = _SPARKPLUG.get(levels[1]) if len(levels) in (3, 4) and len(rest) <= NAME_MAX else None
    if said is None or (levels[1][0] == "D") != (len(levels) == 4) or not all(levels):
        return ()
    return (ConventionWord(SPARKPLUG, "/".join((levels[0], *levels[2:])), said, SPARKPLUG, numbers_of(payload)),)
