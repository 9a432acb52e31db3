"""Last step of a publication at a gateway, in its turn: decryption, judgement and handing out to subscribers.

Errors found here are the publisher's own, and charged to the publisher. `collector` decides on the order,
`newest_retained` on the newest of several retained publications.

`Unpacked` is an opened batch as its deliverable records. The publisher of the batch may publish on some topic of the
scope, so each record's topic must be in the scope and within the publisher's rights. Names and texts that would break
connections of local clients, and expired records, are left out singly. `collector` opens batches, `bridge.contract`
defines their form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from bridge.base import matches
from bridge.contract import Blame, Count, Deliver, Effect, Numbered, Publication, is_bare, unpacked
from bridge.document import RecordRights, ScopeSecret, read_wire_topic
from bridge.reader.key_opening import KeyRing
from bridge.reader.newest_retained import Joining, Rank
from bridge.reader.streams import Held
from bridge.wire import NUL, Admitted, has_expired, is_of_a_time, is_topic
from keys.envelope import DataKey, Mode
from keys.errors import BadContent, KeysError
from keys.records import Records
from keys.topictokens import retained_id

Had: TypeAlias = Callable[[Held, Sequence[Numbered], DataKey | None], None]


class Unpacked:
    """The deliverable records of a batch. The constructor raises `BadFrame` for invalid content."""

    __slots__ = ("_scope", "_token_key", "expired", "records", "refused")

    def __init__(self, secret: ScopeSecret, admitted: Admitted, content: bytes, now: float) -> None:
        self._scope, self._token_key = secret.scope.filter, secret.token_key
        self.expired = self.refused = 0
        header, rights = admitted.header, admitted.rights
        if (bare := _bare(Records.decode(content), admitted, secret)) is not None:
            self.records: list[Numbered] = bare
            return
        self.records = []
        names: dict[str, bool] = {}
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
                or not (is_bare(publication) or _has_fit_texts(publication))
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


def _bare(records: Records, admitted: Admitted, secret: ScopeSecret) -> list[Numbered] | None:
    """Returns all records of a batch of which none is more than topic and payload, and none is to be left out, as most
    are; None: each has to be judged.
    """
    if admitted.header.retain or not records.are_bare or not is_of_a_time(max(records.times)):
        return None
    try:
        topics = [topic.decode() for topic in records.topics]
    except UnicodeDecodeError:
        return None
    if not all(is_topic(topic) and _may_have(admitted.rights, secret, topic) for topic in topics):
        return None
    columns = zip(records.indexes, records.payloads(), records.flags, records.times, strict=True)
    return [
        Numbered(number, Publication(topics[index], payload, qos, time_ms=time_ms))
        for number, (index, payload, qos, time_ms) in enumerate(columns, admitted.header.sequence)
    ]


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


class HandingOut:
    """Decryption and handing out of publications at one gateway."""

    def __init__(self, secrets: Sequence[ScopeSecret], keys: KeyRing[DataKey], joining: Joining) -> None:
        self._keys, self._joining = keys, joining
        self.had: Had = lambda held, records, key: None
        """Called with each batch of a scope with receipts of which every record is handed out; the key is None in a
        plain scope.
        """
        self.adopt_scopes(secrets)

    def adopt_scopes(self, secrets: Sequence[ScopeSecret]) -> None:
        """Adopts the scopes that this gateway reads from now on."""
        self._secrets = {secret.scope.filter: secret for secret in secrets}

    def hand_out(self, held: Held, late: bool) -> list[Effect]:
        """Decrypts a publication and hands it out. `late` is True if a later publication was handed out before."""
        admitted = held.admitted
        if held.is_over:
            return [Count("expired")]
        secret = self._secrets.get(admitted.scope.filter)
        try:
            clear = self._clear(held)
            if secret is None:
                raise BadContent("a scope that we do not read any more")
            found = Unpacked(secret, admitted, clear, held.arrived)
            if admitted.header.retain:
                found.check_retained(admitted, held.topic)
        except KeysError as error:
            return [Count("unopened"), Blame(admitted.publisher.name, False, str(error))]
        if admitted.header.retain and found.records:
            sent_ms, is_to_come = found.records[0].publication.time_ms, self._joining.is_to_come(held)
            told = Rank.OVERTAKEN if is_to_come else self._joining.take_opened(held, sent_ms)
            if told is Rank.KNOWN:
                return [Count("duplicates_dropped")]
            if told is Rank.OVERTAKEN and held.replayed and self._joining.may_be_old(held):
                return [Count("replays_dropped")]
            if told is Rank.OVERTAKEN:  # to retain it now would bring back an old value
                found.as_live()
                late = late or self._joining.is_behind(held)
        if admitted.scope.receipts and not (held.replayed or found.expired or found.refused):
            self.had(
                held, found.records, None if admitted.header.mode is Mode.PLAIN else self._keys.opened_key(admitted)
            )
        return found.delivered(admitted.publisher.name, admitted.header.time_ms, late, held.replayed)

    def _clear(self, held: Held) -> bytes:
        """Returns the clear content of a publication. Raises BadContent."""
        header = held.admitted.header
        assert held.content is not None
        if header.mode is Mode.PLAIN:
            return held.content
        key = self._keys.opened_key(held.admitted)
        if key is None:
            raise BadContent("publication names a key that is not here any more")
        return key.open(header.prefix(), header.sequence, held.topic, held.content)
