"""Steps of the overlay's messages for administrators that follow them: stored, sealed, sent, taken, received, opened.

A replica shows what its place lets it know: the publisher and number in the header, sizes, and to whom it went. The
name of a message, `publisher/number`, is the one in the signed header. Called only while somebody follows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from bridge.contract import Deliver, Publication, UserProperties, Wire
from bridge.contract.batches import numbers_of
from bridge.document import Overlay
from gateway.base.followed import FollowedMessages
from keys.envelope import PROPERTY_HEADER, PROPERTY_KEY, PROPERTY_SHARES, from_property, header_of
from keys.errors import KeysError


class FollowedWires:
    """The steps at one member. `overlay`: returns the overlay in force; `counts`: the member's figures."""

    def __init__(self, followed: FollowedMessages, overlay: Callable[[], Overlay], counts: Mapping[str, int]) -> None:
        self._followed, self._overlay, self._counts = followed, overlay, counts

    @property
    def _member_name(self) -> str:
        return self._followed.member

    # ----------------------------------------------------------------------------------- into the overlay

    def numbered(self, number: int, publication: Publication, client: str) -> None:
        """Says that a local publication got its number, and if it goes to disk first."""
        where = "to disk" if publication.qos else "in memory"
        self._followed.say_step(
            "numbered", message=f"{self._member_name}/{number}", publisher=client, topic=publication.topic, stays=where
        )

    def gathered(self, first: int, publication: Publication) -> None:
        """Says which publications leave together, under the number of the first."""
        with suppress(KeysError):
            for number in numbers_of(publication, first):
                self._followed.say_step(
                    "on its way", message=f"{self._member_name}/{number}", then=f"{self._member_name}/{first}",
                    records=publication.records or None,
                )  # fmt: skip

    def sent(self, peer: str, wire: Wire) -> None:
        """Says that a message left for a member."""
        if message := self.message_of(wire.properties):
            self._followed.say_step("sent to member", message=message, receiver=peer, **_sizes(wire))

    def taken(self, peer: str, number: int) -> None:
        """Says that a replica acknowledged a message of ours."""
        if number > 0:
            self._followed.say_step("taken by member", message=f"{self._member_name}/{number}", receiver=peer)

    def not_taken(self, peer: str, number: int, reason: str) -> None:
        """Says that a replica refused a message of ours."""
        self._followed.say_step(
            "refused by member", message=f"{self._member_name}/{number}", receiver=peer, reason=reason
        )

    # ------------------------------------------------------------------------------- through and out of it

    def handled(self, peer: str, wire: Wire, handle: Callable[[], object], refused: Callable[[], str]) -> None:
        """Handles what a member sent, and says what it was and what came of it: refused, or what was counted."""
        message = self.message_of(wire.properties)
        if not message:
            handle()
            return
        self._followed.say_step("came from member", message=message, client=peer, wire=wire.topic, **_sizes(wire))
        before = dict(self._counts)
        handle()
        if reason := refused():
            self._followed.say_step("refused", message=message, client=peer, reason=reason)
        grown = {name: count for name, count in self._counts.items() if count != before.get(name, 0)}
        if grown:
            self._followed.say_step("judged", message=message, counted=", ".join(sorted(grown)))

    def say_opened(self, effect: Deliver, hand_out: Callable[[], None]) -> None:
        """Says that a message was opened here, and hands it out: what local clients get has its name."""
        message = f"{effect.publisher}/{effect.sequence}"
        publication = effect.publication
        self._followed.say_step(
            "opened", message=message, topic=publication.topic, qos=publication.qos, bytes=len(publication.payload),
            retain=publication.retain or None, late=effect.late or None,
        )  # fmt: skip
        before, self._followed.current = self._followed.current, message
        try:
            hand_out()
        finally:
            self._followed.current = before

    def message_of(self, properties: UserProperties) -> str:
        """Returns the name of the message in a wire's header, empty for a wire without one. Nothing is verified."""
        told = dict(properties).get(PROPERTY_HEADER)
        if told is None:
            return ""
        try:
            header = header_of(from_property(told))
        except KeysError:
            return ""
        certificate = self._overlay().by_party.get(header.publisher)
        return f"{certificate.name if certificate is not None else header.publisher.hex()}/{header.sequence}"


def _sizes(wire: Wire) -> dict[str, Any]:
    properties = dict(wire.properties)
    carried = [name for name, key in (("key", PROPERTY_KEY), ("shares", PROPERTY_SHARES)) if key in properties]
    return {"bytes": len(wire.payload), **({"carries": ", ".join(carried)} if carried else {})}
