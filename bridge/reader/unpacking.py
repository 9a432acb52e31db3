"""What was opened, at a reader: a publication that travelled alone, or the records of a batch that may be delivered.

Whoever published the batch may publish on some topic of the scope; so each record's topic must be one of the scope that
its publisher has the right to. Names and texts that would break connections of local clients, and what has expired, are
left out one by one. Not here: opening (`collector`), the form (`bridge.contract`).
"""

from __future__ import annotations

from bridge.base import TopicError, check_name, matches
from bridge.contract import Blame, Count, Deliver, Effect, Numbered, Publication, unpacked
from bridge.document import RecordRights, ScopeSecret
from keys.envelope import Inner, MessageHeader
from keys.errors import BadContent, KeysError
from keys.message import SEALED_PROPERTIES

EXPIRY_MAX_S = 0xFFFFFFFF  # MQTT 5.0 §3.3.2.3.3: four bytes; a publisher may sign any deadline


class Unpacked:
    """What is delivered of one batch. Raises `BadFrame` for content that is none."""

    __slots__ = ("_scope", "expired", "records", "refused")

    def __init__(self, secret: ScopeSecret, rights: RecordRights, content: bytes, first: int, now: float) -> None:
        self._scope = secret.scope.filter
        self.records: list[Numbered] = []
        self.expired = self.refused = 0
        names: dict[str, bool] = {}
        for record in unpacked(content, first):
            if not isinstance(record, Numbered):
                self.refused += 1
                continue
            publication = record.publication
            topic = publication.topic
            fits = names.get(topic)
            if fits is None:
                fits = names[topic] = _is_name(topic) and _may_have(rights, secret, topic)
            if not fits or not _has_fit_texts(publication):
                self.refused += 1
            elif publication.expiry_s is not None and publication.time_ms + publication.expiry_s * 1000 < now * 1000:
                self.expired += 1
            else:
                self.records.append(record)

    def delivered(self, publisher: str, sealed_ms: int, late: bool) -> list[Effect]:
        """What local clients get, in order, and what is counted."""
        effects: list[Effect] = [
            Deliver(publisher, number, publication, late, self._scope, sealed_ms)
            for number, publication in self.records
        ]
        if self.expired:
            effects.append(Count("expired", self.expired))
        if self.refused:
            why = "records of a batch that may not be delivered"
            effects += [Count("unopened", self.refused), Blame(publisher, False, why)]
        return [*effects, Count("delivered", len(self.records))]


def read_inner(clear: bytes, secret: ScopeSecret | None, wire_topic: str) -> Inner:
    """A publication that travelled alone. Raises a keys error, or TopicError for names that would break the connections
    of local clients."""
    inner = Inner.decode(clear)
    check_name(inner.topic)
    if secret is None or secret.wire_topic(inner.topic) != wire_topic:
        raise BadContent("sealed topic is not the one on the wire")
    if inner.response_topic is not None:
        check_name(inner.response_topic)
    texts = [inner.content_type or "", *(text for pair in inner.properties for text in pair)]
    if any("\0" in text for text in texts):
        raise BadContent("sealed text contains U+0000")
    return inner


def publication_of(header: MessageHeader, inner: Inner, retain: bool) -> Publication:
    """What local clients get of it. `retain`: whether it is still the last word on its topic."""
    expiry_s = max(0, header.deadline_ms - inner.time_ms) // 1000
    return Publication(
        topic=inner.topic,
        payload=inner.payload,
        qos=header.qos,
        retain=retain,
        properties=inner.properties,
        expiry_s=min(expiry_s, EXPIRY_MAX_S) if header.deadline_ms else None,
        time_ms=inner.time_ms,
        **{name: getattr(inner, name) for name in SEALED_PROPERTIES},
    )


def _is_name(topic: str) -> bool:
    try:
        check_name(topic)
    except TopicError:
        return False
    return True


def _may_have(rights: RecordRights, secret: ScopeSecret, topic: str) -> bool:
    if rights.is_all:
        return matches(secret.clear_filter, topic)  # the same, and nothing has to be hidden for it
    try:
        return rights.allow(secret.wire_topic(topic))
    except KeysError:  # too many levels for names that are hidden
        return False


def _has_fit_texts(p: Publication) -> bool:
    if p.response_topic is not None and not _is_name(p.response_topic):
        return False
    return not (p.content_type and "\0" in p.content_type) and not any(
        "\0" in text for pair in p.properties for text in pair
    )
