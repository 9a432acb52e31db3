"""Discovery documents of Home Assistant's: which entities a device has, and where their availability is said.

Values are read as Home Assistant's schema reads them: text may be a number or a truth value, numbers may be text.
Source: Home Assistant, `homeassistant/components/mqtt/discovery.py`, `schemas.py`, `util.py` and
`helpers/config_validation.py`. Not here: what follows for the device (`entities`), whose document counts (`devices`).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from bridge.base import has_wildcard

ONLINE, OFFLINE = "online", "offline"
ANYTHING = "\0"  # in place of a payload: whatever comes on a state topic that expires
REPORTED = "\0\0"  # the same, on a state topic that does not expire
OURS = "veilmq"  # what a gateway writes for dashboards begins so, in either convention's spelling
CONFIG_BYTES_MAX = 65_536  # of a discovery message
NAMED_MAX = 16  # availability topics that one entity may name; components of one document
NAME_MAX = 512  # characters of a device's name; longer ones are nobody's
EXPIRE_MAX_S = 30 * 86_400  # of a state: longer ones are no statement about life
TOPIC_MAX = 2_048  # characters of an availability topic that is watched
_TEMPLATES, _TEMPLATES_ALONE = ("value_template", "val_tpl"), ("availability_template", "avty_tpl")
_KEY = re.compile(r"\{\{\s*value_json\.(\w{1,64})\s*\}\}")  # the only template that we understand
_MODES = ("all", "any", "latest")
_SHARED = (  # what stands at the top of a document for a device counts for each component that does not say otherwise
    "~", "availability", "avty", "availability_mode", "avty_mode", "availability_topic", "avty_t", "payload_available",
    "pl_avail", "payload_not_available", "pl_not_avail", *_TEMPLATES_ALONE, "state_topic", "stat_t",
)  # fmt: skip
_PLATFORM = {"p", "platform"}
_EXPIRING = ("sensor", "binary_sensor")  # the only components that have `expire_after`
_SAME = {"avty": "availability", "avty_t": "availability_topic", "stat_t": "state_topic"}


@dataclass(frozen=True, slots=True)
class ConventionAvailability:
    """A topic on which Home Assistant hears if an entity is available. `key`: the field of the JSON object with the
    word.
    """

    topic: str
    online: str = ONLINE
    offline: str = OFFLINE
    key: str = ""

    @property
    def is_word(self) -> bool:
        """True for an availability topic without wildcards, which is not a state topic."""
        return self.online not in (ANYTHING, REPORTED) and not has_wildcard(self.topic)

    @property
    def source(self) -> str:
        """The name of what is said there: of a topic, two entities may understand different words."""
        usual = (self.online, self.offline, self.key) == (ONLINE, OFFLINE, "")
        return self.topic if usual else "\0".join((self.topic, self.online, self.offline, self.key))


@dataclass(frozen=True, slots=True)
class Named:
    """An entity of a device a discovery message describes: where its availability is said. `document`: what replaces
    and removes it.
    """

    device: str
    topics: tuple[ConventionAvailability, ...]
    mode: str = "all"
    """Of several topics: `all` must say that it is there, `any` of them, or the `latest` word counts."""
    expire_s: float | None = None
    """Without a word on its state topic for so long it is not there."""
    document: str = field(default="", compare=False)
    is_removed: bool = False
    """The document of the device takes this component out."""


def read_document(rest: str, payload: bytes) -> tuple[Named, ...]:
    """Returns the entities of a document on `homeassistant/REST`; those without an availability have no topics."""
    config = parse_object(payload)
    if config is None:
        return ()
    # The device that several sensors and switches belong to, if the message says which.
    device = _identifier(config) or text_of(config, "unique_id", "uniq_id") or rest.removesuffix("/config")
    if device.startswith(OURS) or len(device) > NAME_MAX or not is_text(device):
        return ()
    components = config.get("components", config.get("cmps")) if rest.startswith("device/") else None
    if not isinstance(components, dict):
        return (_entity(device, config, rest, rest.partition("/")[0]),)
    described = islice(((key, each) for key, each in components.items() if isinstance(each, dict)), NAMED_MAX)
    return tuple(_component(device, each, config, f"{rest}#{key}") for key, each in described)


def _component(device: str, component: dict[str, Any], config: dict[str, Any], document: str) -> Named:
    """Returns a component of a device document; one that has no more than a platform is removed."""
    if not set(component) - _PLATFORM:
        return Named(device, (), document=document, is_removed=True)
    return _entity(device, _merged(component, config), document, text_of(component, *_PLATFORM) or "")


def _merged(component: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    own = {_SAME.get(key, key) for key in component}
    shared = {key: config[key] for key in _SHARED if key in config and _SAME.get(key, key) not in own}
    return {**shared, **component}


def _entity(device: str, config: dict[str, Any], document: str, component: str) -> Named:
    words = list(dict.fromkeys(_availabilities(config)))[:NAMED_MAX]
    mode = text_of(config, "availability_mode", "avty_mode") or "latest"
    state, expire_s = _state_topic(config), _expiry(config) if component in _EXPIRING else None
    states = [] if state is None else [ConventionAvailability(state, REPORTED if expire_s is None else ANYTHING)]
    if not words and expire_s is None:
        states = []  # it makes no statement, ever
    return Named(device, (*words, *states), mode if len(words) > 1 and mode in _MODES else "all", expire_s, document)


def _availabilities(config: dict[str, Any]) -> list[ConventionAvailability]:
    """The topics that one part of a discovery message names."""
    listed = config.get("availability", config.get("avty"))
    entries = listed if isinstance(listed, list) else [listed]
    named = [entry for entry in entries if isinstance(entry, dict)][:NAMED_MAX] or [config]
    topics = list[ConventionAvailability]()
    for entry in named:
        topic = text_of(entry, "topic", "t") if entry is not config else text_of(config, "availability_topic", "avty_t")
        topic = _topic(config, topic)
        if topic:
            online = text_of(entry, "payload_available", "pl_avail") or ONLINE
            offline = text_of(entry, "payload_not_available", "pl_not_avail") or OFFLINE
            template = text_of(entry, *(_TEMPLATES if entry is not config else _TEMPLATES_ALONE)) or ""
            key = _KEY.fullmatch(template)
            if template and key is None:
                continue  # a program of Home Assistant's that we do not run
            if max(len(topic), len(online), len(offline)) <= TOPIC_MAX:
                topics.append(ConventionAvailability(topic, online, offline, key[1] if key else ""))
    return topics


def _expiry(config: dict[str, Any]) -> float | None:
    """Returns how long the last message on the state topic counts, whole seconds (`cv.positive_int`); None: always."""
    given = config.get("expire_after", config.get("exp_aft"))
    if _state_topic(config) is None or not isinstance(given, int | float | str):
        return None
    try:
        seconds = float(int(given))
    except (ValueError, OverflowError):
        return None
    return seconds if 0 < seconds <= EXPIRE_MAX_S else None


def _state_topic(config: dict[str, Any]) -> str | None:
    return _topic(config, text_of(config, "state_topic", "stat_t"))


def _topic(config: dict[str, Any], topic: str | None) -> str | None:
    """With its base in place of `~`; None for none, or one that is too long."""
    if not topic:
        return None
    base = text_of(config, "~") or ""
    topic = base + topic[1:] if topic.startswith("~") else topic
    topic = topic[:-1] + base if topic.endswith("~") else topic
    return topic if len(topic) <= TOPIC_MAX else None


def parse_object(payload: bytes | str) -> dict[str, Any] | None:
    """Returns a JSON object; None for anything else."""
    if len(payload) > CONFIG_BYTES_MAX:
        return None
    try:
        found = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def is_json(payload: bytes) -> bool:
    """Returns True for any JSON value, also one that is no object."""
    try:
        json.loads(payload)
    except (ValueError, RecursionError):
        return False
    return True


def _identifier(config: dict[str, Any]) -> str | None:
    described = config.get("device", config.get("dev"))
    if not isinstance(described, dict):
        return None
    found = described.get("identifiers", described.get("ids"))
    first = found[0] if isinstance(found, list) and found else found
    return (coerced(first) or None) if first is not None else None


def is_text(name: str) -> bool:
    """Returns True if a name can be written in UTF-8: JSON may spell half a character."""
    return not any("\ud800" <= character <= "\udfff" for character in name)


def coerced(value: object) -> str | None:
    """Returns a scalar as text, as Home Assistant's `cv.string` and templates write it; None for anything else."""
    return str(value) if isinstance(value, str | int | float) else None


def text_of(fields: dict[str, Any], *names: str) -> str | None:
    """Returns the first of these fields that is text, or a number or truth value as text."""
    return next((text for name in names if (text := coerced(fields.get(name))) is not None), None)
