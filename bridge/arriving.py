"""What every honest party checks before it deduplicates, charges, waits or stores (PROTOCOL §2).

A wire message is *admitted* when its header is signed by a certified publisher that may publish on this very
topic; its key header likewise; its shares are well-formed and stamped for this link. Used by replicas and
subscribers alike. Everything refused raises a keys error; the caller charges the link.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from keys.envelope import (
    PROPERTY_HEADER,
    PROPERTY_KEY,
    PROPERTY_SHARES,
    HeaderVerifier,
    KeyHeader,
    MessageHeader,
    SignedHeader,
    content_digest,
    from_property,
)
from keys.errors import BadFrame, BadShare, Expired, NotAuthorised
from keys.identity import Certificate, Role
from keys.sharetree import Label, Place, Share, decode_shares

from .machine import Wire
from .topics import TopicError, check_name, matches, overlaps
from .views import Overlay, Scope

VERIFIED_KEYS_MAX = 4096  # key headers whose signature we remember; a flood of keys evicts only memory of work


@dataclass(frozen=True, slots=True)
class Admitted:
    """A publication whose header holds. `intact`: the content matches the digest in the signed header."""

    header: MessageHeader
    publisher: Certificate
    scope: Scope
    intact: bool


class Admission:
    """Checks wires against the overlay; remembers only which signatures it has verified."""

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay
        self._headers = HeaderVerifier()
        self._keys: OrderedDict[bytes, KeyHeader] = OrderedDict()
        self._scopes: dict[str, Scope | None] = {}

    def publication(self, wire: Wire, properties: dict[str, str], now: float) -> Admitted:
        """Raises BadFrame, BadSignature, NotAuthorised, Expired."""
        signed = SignedHeader.decode(from_property(properties[PROPERTY_HEADER]))
        header = signed.header
        publisher = self.publisher(header.publisher, now)
        self._headers.verify(signed, wire.topic, publisher.public_key)
        scope = self._scope_of(wire.topic)
        if scope is None:
            raise NotAuthorised("topic belongs to no scope of the overlay")
        if not any(matches(granted, wire.topic) for granted in publisher.publish):
            raise NotAuthorised(f"{publisher.name} may not publish on this topic")
        if header.mode is not scope.mode or len(header.digests) != 1:
            raise BadFrame(f"content mode {header.mode.name} does not fit the scope's {scope.mode.name}")
        if header.previous >= header.sequence:
            raise BadFrame(f"sequence {header.sequence} follows {header.previous}")
        return Admitted(header, publisher, scope, content_digest(wire.payload) == header.digests[0])

    def key(self, properties: dict[str, str], now: float) -> KeyHeader | None:
        """The key header that rides along, verified; None if there is none. Raises as `publication` does."""
        text = properties.get(PROPERTY_KEY)
        if text is None:
            return None
        key = KeyHeader.decode(from_property(text))
        publisher = self.publisher(key.publisher, now)
        known = self._keys.get(key.key_id)
        if known is not None and known.signature == key.signature:
            return known
        key.verify(publisher.public_key)
        scope = self._overlay.scope_named(key.scope)
        if scope is None:
            raise NotAuthorised("key for an unknown scope")
        if not any(overlaps(granted, scope.filter) for granted in publisher.publish):
            raise NotAuthorised(f"{publisher.name} may not publish in {scope.filter}")
        if key.hops != self._overlay.key_hops(scope, publisher.region):
            raise BadShare("key was split for other views than ours")
        self._keys[key.key_id] = key
        if len(self._keys) > VERIFIED_KEYS_MAX:
            self._keys.popitem(last=False)
        return key

    def shares(self, properties: dict[str, str], expected: Sequence[Place | int]) -> list[Share]:
        """The shares that ride along, each with a label over the regions `expected` and our stamps.

        `expected` is the path as region numbers, where a Place pins that coordinate: the sender's own place
        is certain (its certificate says it), earlier coordinates are the sender's claim. Raises BadShare.
        """
        text = properties.get(PROPERTY_SHARES)
        if text is None:
            return []
        shares = decode_shares(from_property(text))
        for share in shares:
            self._check_label(share.label, expected)
        return shares

    def _check_label(self, label: Label, expected: Sequence[Place | int]) -> None:
        if len(label) != len(expected):
            raise BadShare(f"label has depth {len(label)}, the path {len(expected)}")
        for place, wanted in zip(label, expected, strict=True):
            if isinstance(wanted, Place):
                if place != wanted:
                    raise BadShare(f"label says {place}, the link says {wanted}")
                continue
            view = self._overlay.views[wanted]
            if place.region != wanted or place.view != view.number or not 1 <= place.place <= len(view.members):
                raise BadShare(f"label {place} is not of view {view.number} of region {wanted}")

    def publisher(self, party_id: bytes, now: float = 0.0) -> Certificate:
        """Raises NotAuthorised, or, asked with the time, Expired: we may run for longer than a certificate lasts."""
        certificate = self._overlay.by_party.get(party_id)
        if certificate is None or certificate.role is Role.REPLICA:
            raise NotAuthorised("publisher is not a member that may publish")
        if now * 1000 > certificate.not_after_ms:
            raise Expired(f"the certificate of {certificate.name} ended")
        return certificate

    def _scope_of(self, wire_topic: str) -> Scope | None:
        if wire_topic not in self._scopes:
            if len(self._scopes) >= VERIFIED_KEYS_MAX:
                self._scopes.clear()
            try:
                # The peer's codec may let through what a next party's codec hangs up on: us.
                self._scopes[wire_topic] = self._overlay.scope_of(check_name(wire_topic))
            except TopicError as error:
                raise BadFrame(str(error)) from None
        return self._scopes[wire_topic]
