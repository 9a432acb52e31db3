"""The signed word of a replica: "I live, and these replicas of neighbouring regions are linked to me"
(docs/protocol.md §9.18).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from bridge.document import Overlay
from bridge.wire import CONTROL_ROOT
from keys.errors import BadFrame, BadSignature, NotAuthorised
from keys.frames import Kind, Reader, number, opening, text
from keys.identity import Identity, Role, verify

PRESENCE_TOPIC = f"{CONTROL_ROOT}/presence"
DOMAIN_PRESENCE = "veilmq/1 presence"
BEAT_S = 10
"""Seconds from one word of a replica to its next."""
LINKED_MAX = 256
"""Replicas in one word: a longer list costs every member memory and time."""
SIGNATURE_BYTES = 64


@dataclass(frozen=True, slots=True)
class PresenceWord:
    """The word of a replica. `beat`: UNIX time of the word in units of `BEAT_S`. `linked`: replicas of neighbouring
    regions with a link to the author, ascending.
    """

    member: str
    region: int
    beat: int
    linked: tuple[str, ...] = ()
    signature: bytes = b""

    def signed_bytes(self) -> bytes:
        head = opening(Kind.PRESENCE) + text(self.member) + number(self.region, 4) + number(self.beat, 8)
        return head + number(len(self.linked), 2) + b"".join(map(text, self.linked))

    def signed(self, identity: Identity) -> PresenceWord:
        return replace(self, signature=identity.sign(DOMAIN_PRESENCE, self.signed_bytes()))

    def encode(self) -> bytes:
        return self.signed_bytes() + self.signature

    @classmethod
    def decode(cls, data: bytes) -> PresenceWord:
        """Decodes a frame; the signature is not checked yet. Raises BadFrame."""
        frame = Reader(data)
        frame.opening(Kind.PRESENCE)
        member, region, beat, count = frame.text(), frame.number(4), frame.number(8), frame.number(2)
        if count > LINKED_MAX:
            raise BadFrame(f"a word of presence with {count} replicas where {LINKED_MAX} are the most")
        linked = tuple(frame.text() for _ in range(count))
        if any(a >= b for a, b in pairwise(linked)):
            raise BadFrame("replicas in a word of presence are not in order")
        made = cls(member, region, beat, linked, frame.take_bytes(SIGNATURE_BYTES))
        frame.expect_end()
        return made

    def check_author(self, overlay: Overlay) -> None:
        """Raises NotAuthorised unless the author is a replica of the stated region, BadSignature unless the author
        signed.
        """
        member = overlay.members.get(self.member)
        if member is None or (member.certificate.role, member.certificate.region) != (Role.REPLICA, self.region):
            raise NotAuthorised(f"{self.member} is no replica of region {self.region}")
        for certificate in member.certificates:
            try:
                verify(certificate.public_key, DOMAIN_PRESENCE, self.signed_bytes(), self.signature)
            except BadSignature:
                continue
            return
        raise BadSignature(f"signature of a word of {self.member} does not fit")
