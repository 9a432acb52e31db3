"""Which publications a receiver believes: signature, publisher, right to the topic in the epoch, and time.

A publication's right is judged by the epoch in which its publisher sealed it (PROTOCOL §6). Replicas let through
what is of a live epoch only, so an older one is honest only where a replica kept it for us while we were away; a
publisher that was shut out could date back what it makes now and hand it to one bad replica. So what is not live
counts when f + 1 different replicas of our region brought it: one of them is honest and let it through in its time.
The same rule covers our own clock, should it differ by more than the calendar allows. An epoch key that a bump has
outdated needs no rule here: a data key is usable with k > f shares, and honest replicas pass on none under it.

Pure. Not here: pieces and their order (`collector`), key headers and shares (`keyring`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from gateway.contents import check_mode
from keys.envelope import HeaderVerifier, MessageHeader, SignedHeader, from_property
from keys.errors import BadFrame, Expired, NotAuthorised
from keys.identity import CARRIERS, Certificate

from .directory import Directory, Scope

TIME_MS_MAX = 253_402_300_799_999
"""End of year 9999: the last time that Spark's timestamps can show."""
RIGHTS_KEPT = 65_536
"""(Publisher, topic, epoch) whose right is remembered while the overlay stays as it is: no scan over grants for each
publication. Verified publishers only fill it; when it is full, it is begun anew."""
SEQUENCE_MAX = (1 << 63) - 1
"""The largest `long`; a publisher that counts from 0 never gets there."""


class Wire(Protocol):
    """An MQTT message between a replica and us (`bridge.machine.Wire` is one)."""

    @property
    def topic(self) -> str: ...
    @property
    def payload(self) -> bytes: ...
    @property
    def retain(self) -> bool: ...
    @property
    def properties(self) -> Sequence[tuple[str, str]]: ...


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
        self._rights: dict[tuple[bytes, str, int], Scope | None] = {}

    def publication(self, told: str, wire_topic: str, now: float) -> Admitted:
        """`told`: property `vmq` as it came. Raises BadFrame, BadSignature, NotAuthorised, Expired."""
        frame = from_property(told)
        signed = SignedHeader.decode(frame)
        header = signed.header
        certificate = member_of(self._directory, header.publisher)
        if certificate.not_after_ms < now * 1000:
            raise Expired(f"the certificate of {certificate.name} ended")
        self._verifier.verify(signed, wire_topic, certificate.public_key)
        if header.sequence > SEQUENCE_MAX or header.time_ms > TIME_MS_MAX:
            raise BadFrame("a sequence or a time beyond what a row can hold")
        calendar = self._directory.calendar
        epoch = calendar.at(sealed_at_s(header))
        scope = self._right(certificate, header.publisher, wire_topic, epoch)
        if scope is None:
            raise NotAuthorised(f"{certificate.name} may not publish on this topic in epoch {epoch}")
        check_mode(header, scope.mode)
        if calendar.live(epoch, now):
            return Admitted(header, frame, scope, 1)
        path_from(self._directory, certificate)
        return Admitted(header, frame, scope, self._directory.faults() + 1)

    def _right(self, certificate: Certificate, publisher: bytes, wire_topic: str, epoch: int) -> Scope | None:
        """The topic's scope, if the publisher has the right to the topic."""
        edition = self._directory.edition
        if edition is not self._edition or len(self._rights) >= RIGHTS_KEPT:
            self._edition = edition
            self._rights.clear()
        asked = (publisher, wire_topic, epoch)
        if asked not in self._rights:
            scope = self._directory.scope_of(wire_topic)
            allowed = scope is not None and self._directory.may_publish(certificate.name, wire_topic, epoch)
            self._rights[asked] = scope if allowed else None
        return self._rights[asked]


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
