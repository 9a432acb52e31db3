"""Grants of the owner's policy: who may publish and read, on which topics, in which epochs (E2, docs/protocol.md §6.2).

    Grant: opening(3: version, kind 11, flags: bit 0 publish, bit 1 read)  member: text  wire filter: text
           first epoch(4)  last epoch(4; all ones: no end)

A grant names a member by its overlay name, so that it outlives the member's keys. It is data inside the signed
policy:
nothing here verifies a signature. Revoking sets `last_epoch`; history is a `first_epoch` before the present one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag

from keys import frames
from keys.errors import BadFrame, OurFault
from keys.topictokens import check_filter, covers, matches, split_share

ENDLESS = 0xFFFFFFFF


class Right(IntFlag):
    """The rights of a grant."""

    PUBLISH = 1
    READ = 2


@dataclass(frozen=True, slots=True)
class Grant:
    """A grant: `member` has `rights` on the wire topics of `filter` from `first_epoch` to `last_epoch`, both included.

    `encode` raises `OurFault`, `decode` `BadFrame` for fields no grant can have.
    """

    member: str
    filter: str
    rights: Right
    first_epoch: int = 0
    last_epoch: int = ENDLESS

    def live(self, epoch: int) -> bool:
        """Returns True if the grant counts in this epoch."""
        return self.first_epoch <= epoch <= self.last_epoch

    def may_publish(self, wire_topic: str, epoch: int) -> bool:
        return Right.PUBLISH in self.rights and self.live(epoch) and matches(self.filter, wire_topic)

    def may_publish_all(self, wire_filter: str, epoch: int) -> bool:
        """Returns True if the member may publish on every topic that `wire_filter` matches."""
        return Right.PUBLISH in self.rights and self.live(epoch) and covers(self.filter, wire_filter)

    def may_read_all(self, wire_filter: str, epoch: int) -> bool:
        """Returns True if the member may read every topic that `wire_filter` matches."""
        return Right.READ in self.rights and self.live(epoch) and covers(self.filter, wire_filter)

    def encode(self) -> bytes:
        self._check(OurFault)
        parts = [frames.opening(frames.Kind.GRANT, int(self.rights)), frames.text(self.member)]
        parts += [frames.text(self.filter), frames.number(self.first_epoch, 4), frames.number(self.last_epoch, 4)]
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes) -> Grant:
        reader = frames.Reader(data)
        flags = reader.opening(frames.Kind.GRANT, int(Right.PUBLISH | Right.READ))
        grant = cls(reader.text(), reader.text(), Right(flags), reader.number(4), reader.number(4))
        reader.expect_end()
        grant._check(BadFrame)
        return grant

    def _check(self, error: type[OurFault] | type[BadFrame]) -> None:
        if not self.rights:
            raise error("a grant of nothing")
        try:
            check_filter(self.filter)
        except OurFault as fault:
            raise error(str(fault)) from None
        if split_share(self.filter)[0]:
            raise error("grants name plain filters, not shared subscriptions")
