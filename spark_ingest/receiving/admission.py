"""Which publications a receiver believes: signature, publisher, right to the topic in the epoch, and time.

A publication's right is judged by the epoch in which its publisher sealed it (docs/protocol.md §6.1). Replicas let
through what is of a live epoch only, so an older one is honest only where a replica kept it for us while we were away;
a publisher that was shut out could date back what it makes now and hand it to one bad replica. So what is not live
counts when f + 1 different replicas of our region brought it: one of them is honest and let it through in its time. The
same rule covers our own clock, should it differ by more than the calendar allows. An epoch key that a bump has outdated
needs no rule here: a data key is usable with k > f shares, and honest replicas pass on none under it.

Pure. Not here: pieces and their order (`collector`), key headers and shares (`keyring`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from gateway.overlay import check_mode
from keys.batch import header_of
from keys.envelope import HeaderVerifier, MessageHeader, from_property
from keys.errors import BadFrame, Expired, NotAuthorised
from keys.identity import CARRIERS, Certificate
from spark_ingest.receiving.directory import Directory, Scope

TIME_MS_MAX = 253_402_300_799_999
"""End of year 9999: the last time that Spark's timestamps can show."""
RIGHTS_KEPT = 65_536
"""(Publisher, topic, epoch) whose right is remembered while the overlay stays as it is: no scan over grants for each
publication. Verified publishers only fill it; when it is full, it is begun anew."""
SEQUENCE_MAX = (1 << 63) - 1
"""The largest `long`; a publisher that counts from 0 never gets there."""


class Message(Protocol):
    """What an MQTT message is, whatever its properties are."""

    @property
    def topic(self) -> str: ...
    @property
    def payload(self) -> bytes: ...
    @property
    def retain(self) -> bool: ...


class Wire(Message, Protocol):
    """An MQTT message between a replica and us (`bridge.contract.machine.Wire` is one)."""

    @property
    def properties(self) -> Sequence[tuple[str, str]]: ...


class Piece(NamedTuple):
    """What a `Wire` has, of a message as it was decoded."""

    topic: str
    payload: bytes
    retain: bool
    properties: tuple[tuple[str, str], ...]


class Admitted(NamedTuple):
    """A publication whose header holds. `frame`: header and proof as they came."""

    header: MessageHeader
    frame: bytes
    scope: Scope
    vouchers_needed: int
    """So many replicas must bring it: one if it was sealed in an epoch that is live now, else f + 1 of our region, all
    of one view (`Directory.honest_among`)."""


class Admission:
    """Checks headers against the overlay; remembers which signatures it has verified, and rights of one edition."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._verifier = HeaderVerifier()
        self._edition: object = None
        self._certificates: dict[bytes, Certificate] = {}  # of members of the overlay only
        self._rights: dict[tuple[bytes, str, int], Scope | None] = {}
        self._epoch, self._begins_ms, self._ends_ms = 0, 0, 0  # the epoch asked for last, and its milliseconds
        self._asked_epoch, self._asked_at, self._live = -1, 0.0, False  # of what it was asked last whether it is live

    def publication(self, told: str, wire_topic: str, now: float) -> Admitted:
        """`told`: property `vmq` as it came. Raises BadFrame, BadSignature, NotAuthorised, Expired."""
        edition = self._directory.edition
        if edition is not self._edition:
            self._begin(edition)
        frame = from_property(told)
        header = header_of(frame)
        publisher = header.publisher
        certificate = self._certificates.get(publisher)
        if certificate is None:
            certificate = self._certificates[publisher] = member_of(self._directory, publisher)
        if certificate.not_after_ms < now * 1000:
            raise Expired(f"the certificate of {certificate.name} ended")
        self._verifier.verify_frame(header, frame, wire_topic, certificate.public_key)
        if header.sequence > SEQUENCE_MAX or header.time_ms > TIME_MS_MAX:
            raise BadFrame("a sequence or a time beyond what a row can hold")
        epoch = self._epoch if self._begins_ms <= header.time_ms < self._ends_ms else self._epoch_of(header)
        asked = (publisher, wire_topic, epoch)
        if asked not in self._rights:
            self._learn(certificate, asked)
        scope = self._rights[asked]
        if scope is None:
            raise NotAuthorised(f"{certificate.name} may not publish on this topic in epoch {epoch}")
        check_mode(header, scope.mode)
        if now != self._asked_at or epoch != self._asked_epoch:
            self._asked_epoch, self._asked_at = epoch, now
            self._live = self._directory.calendar.live(epoch, now)
        if self._live:
            return Admitted(header, frame, scope, 1)
        path_from(self._directory, certificate)
        return Admitted(header, frame, scope, self._directory.faults() + 1)

    def _begin(self, edition: object) -> None:
        """Another overlay: everything is looked up anew."""
        self._edition = edition
        self._certificates.clear()
        self._rights.clear()
        self._begins_ms = self._ends_ms = 0
        self._asked_epoch = -1

    def _learn(self, certificate: Certificate, asked: tuple[bytes, str, int]) -> None:
        """The topic's scope, if the publisher has the right to the topic. Verified publishers only ask."""
        _, wire_topic, epoch = asked
        if len(self._rights) >= RIGHTS_KEPT:
            self._rights.clear()
        scope = self._directory.scope_of(wire_topic)
        allowed = scope is not None and self._directory.may_publish(certificate.name, wire_topic, epoch)
        self._rights[asked] = scope if allowed else None

    def _epoch_of(self, header: MessageHeader) -> int:
        """In which it was sealed; epochs begin and end at whole seconds after a millisecond."""
        calendar = self._directory.calendar
        epoch = self._epoch = calendar.at(sealed_at_s(header))
        begins_ms = self._begins_ms = round(calendar.start_s(epoch) * 1000)
        self._ends_ms = begins_ms + 1000 * calendar.length_s if calendar.length_s else TIME_MS_MAX + 1
        if not begins_ms <= header.time_ms < self._ends_ms:  # before the first epoch, or after the last
            self._ends_ms = begins_ms
        return epoch


def sealed_at_s(header: MessageHeader) -> float:
    """When a publication was sealed, by its publisher's clock: the middle of the millisecond that the header states, so
    that rounding cannot move it over the end of an epoch."""
    return (header.time_ms + 0.5) / 1000


def member_of(directory: Directory, party_id: bytes) -> Certificate:
    """Who may be a publisher. Raises NotAuthorised."""
    certificate = directory.certificate(party_id)
    if certificate is None or certificate.role in CARRIERS:
        raise NotAuthorised("the publisher is no member that may publish")
    return certificate


def path_from(directory: Directory, certificate: Certificate) -> tuple[int, ...]:
    """The regions from a publisher to us. Raises NotAuthorised."""
    path = directory.path(certificate.region)
    if not path:
        raise NotAuthorised("no path of regions leads from the publisher to us")
    return path
