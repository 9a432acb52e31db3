"""Unpacking of an opened batch at a reader into its deliverable records.

The publisher of the batch may publish on some topic of the scope, so each record's topic must be in the scope and
within the publisher's rights. Names and texts that would break connections of local clients, and expired records, are
left out singly. `collector` opens batches, `bridge.contract` defines their form.
"""

from __future__ import annotations

from dataclasses import replace

from bridge.base import matches
from bridge.contract import Blame, Count, Deliver, Effect, Numbered, Publication, unpacked
from bridge.document import RecordRights, ScopeSecret, read_wire_topic
from bridge.wire import NUL, Admitted, has_expired, is_of_a_time, is_topic
from keys.errors import BadContent, KeysError
from keys.topictokens import retained_id


class Unpacked:
    """The deliverable records of a batch. The constructor raises `BadFrame` for invalid content."""

    __slots__ = ("_scope", "_token_key", "expired", "records", "refused")

    def __init__(self, secret: ScopeSecret, admitted: Admitted, content: bytes, now: float) -> None:
        self._scope, self._token_key = secret.scope.filter, secret.token_key
        self.records: list[Numbered] = []
        self.expired = self.refused = 0
        names: dict[str, bool] = {}
        header, rights = admitted.header, admitted.rights
        for record in unpacked(content, header.sequence):
            if not isinstance(record, Numbered):
                self.refused += 1
                continue
            publication = record.publication
            topic = publication.topic
            fits = names.get(topic)
            if fits is None:
                fits = names[topic] = is_topic(topic) and _may_have(rights, secret, topic)
            if (
                not fits
                or publication.retain is not header.retain
                or not is_of_a_time(publication.time_ms)
                or not _has_fit_texts(publication)
            ):
                self.refused += 1
            elif publication.expiry_s is not None and has_expired(
                publication.time_ms, publication.expiry_s, now * 1000
            ):
                self.expired += 1
            else:
                self.records.append(record)

    def check_retained(self, admitted: Admitted, wire_topic: str) -> None:
        """Raises BadContent unless the batch is a single record, of the topic for which the wire topic stands."""
        if len(self.records) + self.expired + self.refused != 1:
            raise BadContent("several records where one is retained")
        wanted = read_wire_topic(wire_topic).id, admitted.header.sequence
        if any((retained_id(self._token_key, p.topic), number) != wanted for number, p in self.records):
            raise BadContent("sealed topic is not the one on the wire")

    def as_live(self) -> None:
        """Clears the retain flag of all records."""
        self.records = [Numbered(number, replace(each, retain=False)) for number, each in self.records]

    def delivered(self, publisher: str, sealed_ms: int, late: bool, stored: bool = False) -> list[Effect]:
        """Returns deliveries to local clients, in order, and counts. `stored` has the meaning that it has in
        `Deliver`.
        """
        effects: list[Effect] = [
            Deliver(publisher, number, publication, late, self._scope, sealed_ms, stored=stored)
            for number, publication in self.records
        ]
        if self.expired:
            effects.append(Count("expired", self.expired))
        if self.refused:
            why = "records of a batch that may not be delivered"
            effects += [Count("unopened", self.refused), Blame(publisher, False, why)]
        return [*effects, Count("delivered", len(self.records))]


def _may_have(rights: RecordRights, secret: ScopeSecret, topic: str) -> bool:
    if rights.is_all:
        return matches(secret.clear_filter, topic)  # the same, and nothing has to be hidden for it
    try:
        return rights.allow(secret.wire_topic(topic))
    except KeysError:  # too many levels for names that are hidden
        return False


def _has_fit_texts(p: Publication) -> bool:
    if p.response_topic is not None and not is_topic(p.response_topic):
        return False
    return not (p.content_type and NUL in p.content_type) and not any(
        NUL in text for pair in p.properties for text in pair
    )
