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
from dataclasses import dataclass
from typing import Protocol

from gateway.contents import check_mode
from keys.envelope import HeaderVerifier, MessageHeader, SignedHeader, from_property
from keys.errors import BadFrame, Expired, NotAuthorised
from keys.identity import CARRIERS, Certificate

from .directory import Directory, Scope

TIME_MS_MAX = 253_402_300_799_999
"""End of year 9999: the last time that Spark's timestamps can show."""
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


@dataclass(frozen=True, slots=True)
class Admitted:
    """A publication whose header holds. `frame`: header and proof as they came."""

    header: MessageHeader
    frame: bytes
    scope: Scope
    vouchers_needed: int
    """So many replicas must bring it: one if it was sealed in an epoch that is live now, else f + 1 of our region, all
    of one view (`Directory.honest_among`)."""


class Admission:
    """Checks headers against the overlay; remembers only which signatures it has verified."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._verifier = HeaderVerifier()

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
        scope = self._directory.scope_of(wire_topic)
        calendar = self._directory.calendar
        epoch = calendar.at(sealed_at_s(header))
        if scope is None or not self._directory.may_publish(certificate.name, wire_topic, epoch):
            raise NotAuthorised(f"{certificate.name} may not publish on this topic in epoch {epoch}")
        check_mode(header, scope.mode)
        if calendar.live(epoch, now):
            return Admitted(header, frame, scope, 1)
        path_from(self._directory, certificate)
        return Admitted(header, frame, scope, self._directory.faults() + 1)


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
