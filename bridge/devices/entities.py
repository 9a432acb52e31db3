"""Whether a device of Home Assistant's is there: availability belongs to entities, of which a device has several.

An entity is available by the last words on its topics: by `all` of them, `any`, or the `latest`. One with
`expire_after` is so for that long behind a message on its state topic. A device is there while one of its entities is,
and gone when none is and one was said not to be. An entity of a topic that was silent so far says nothing. Source:
Home Assistant, `homeassistant/components/mqtt/entity.py` (class MqttAvailabilityMixin), `sensor.py`. Pure. Not here:
documents (`discovery`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bridge.devices.discovery import ANYTHING, REPORTED, ConventionAvailability, Named

SUSPECT_PART = 2 / 3  # of the time for which a state counts, without a message


@dataclass(slots=True)
class SaidOfEntities:
    """The words about a device's entities.

    `words`: by source True if its last word was available, the newest last; `heard`: the time of a state topic's last
    message.
    """

    words: dict[str, bool] = field(default_factory=dict)
    heard: dict[str, float] = field(default_factory=dict)

    def word(self, source: str, is_there: bool) -> None:
        self.words.pop(source, None)
        self.words[source] = is_there

    def prune(self, named: Iterable[Named]) -> None:
        """Forgets what was said where nobody listens any more."""
        topics = [topic for each in named for topic in each.topics]
        sources, states = {topic.source for topic in topics}, {topic.topic for topic in topics}
        self.words = {source: word for source, word in self.words.items() if source in sources}
        self.heard = {topic: at for topic, at in self.heard.items() if topic in states}


@dataclass(frozen=True, slots=True)
class EntitiesVerdict:
    """`there` None: nobody knows. `source`: the word saying so, empty for none. `suspect_at`, `fail_at`: when that
    ends unless something comes; None: never. `claims`: whether any entity has an availability at all.
    """

    there: bool | None
    source: str = ""
    suspect_at: float | None = None
    fail_at: float | None = None
    claims: bool = True


def judge_entities(named: Iterable[Named], said: SaidOfEntities) -> EntitiesVerdict:
    """Returns whether a device is there by its entities, and until when."""
    there: list[tuple[str, Named]] = []
    gone: list[str] = []
    claims = False
    for entity in named:
        topics = [topic for topic in entity.topics if topic.online not in (ANYTHING, REPORTED)]
        claims = claims or bool(topics) or entity.expire_s is not None
        is_there, source = _available(topics, entity.mode, said.words)
        if is_there is False:
            gone.append(source)
        elif is_there and (topics if entity.expire_s is None else _state_at(entity, said.heard) is not None):
            there.append((source, entity))
    if not there:
        return EntitiesVerdict(False if gone else None, gone[-1] if gone else "", claims=claims)
    source = max((source for source, _ in there), key=lambda one: list(said.words).index(one) if one else -1)
    if any(entity.expire_s is None for _, entity in there):
        return EntitiesVerdict(True, source)
    ends = [((_state_at(e, said.heard) or 0.0), e.expire_s or 0.0) for _, e in there]
    at, expire_s = max(ends, key=sum)
    return EntitiesVerdict(True, source, at + SUSPECT_PART * expire_s, at + expire_s)


def _available(topics: list[ConventionAvailability], mode: str, words: Mapping[str, bool]) -> tuple[bool | None, str]:
    """Returns whether an entity is available, and the word that decides; without topics it always is."""
    if not topics:
        return True, ""
    sources = [topic.source for topic in topics]
    order = [source for source in words if source in sources]
    lost, found = [s for s in order if not words[s]], [s for s in order if words[s]]
    if mode == "latest":
        return (words[order[-1]], order[-1]) if order else (None, "")
    if mode == "any":
        if found:
            return True, found[-1]
        return (False, lost[-1]) if lost else (None, "")
    if lost:
        return False, lost[-1]
    return (True, found[-1]) if len(found) == len(set(sources)) else (None, "")


def _state_at(entity: Named, heard: Mapping[str, float]) -> float | None:
    return next((heard[t.topic] for t in entity.topics if t.online == ANYTHING and t.topic in heard), None)
