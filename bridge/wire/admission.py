"""What every honest party checks before it deduplicates, charges, waits or stores (docs/protocol.md §2).

A wire message is *admitted* when its header is signed by a certified publisher that may publish on this very
topic in the epoch in which it says it was sealed; its key header likewise; its shares are well-formed and stamped
for this link. Everything refused raises a keys error; the caller charges the link.

Replicas and subscribers differ in one thing. A replica refuses what cannot be fresh: a dead epoch, a key that a bump
outdated. A subscriber may have been away, so it admits that and asks for vouchers (`Admitted.live`, `collector`);
a key needs none, since k of our replicas must have passed on its shares before it opens anything.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bridge.base import TopicError, check_name
from bridge.contract import Blame, Count, Effect, Wire
from bridge.document import REFRESH_MESSAGES_MAX, Overlay, Scope
from bridge.topology import Topology
from bridge.wire import pieces as content
from keys.envelope import (
    PROPERTY_HEADER,
    PROPERTY_KEY,
    PROPERTY_SHARES,
    HeaderVerifier,
    KeyHeader,
    MessageHeader,
    SignedHeader,
    from_property,
)
from keys.epochs import KeyName
from keys.errors import BadFrame, BadShare, Expired, KeysError, NotAuthorised, UnknownView, WrongEpochKey
from keys.identity import CARRIERS, Certificate
from keys.sharetree import Hop, Label, Place, Share, decode_shares

HEADERS_MAX = 4096  # signed headers that we remember to have verified, for the other replicas' copies of them ...
HEADERS_TOPIC_MAX = 512  # ... unless their topic is longer: bounds what a publisher can make us hold
VERIFIED_KEYS_MAX = 4096  # key headers whose signature we remember; a flood of keys evicts only memory of work
RIGHTS_MAX = 65_536  # (publisher, topic, epoch) whose right is remembered: no scan over grants for each copy
BUMP_GRACE_S = 30.0  # a bump reaches all members within it, whatever the calendar's grace is


def refused(peer: str, error: KeysError) -> list[Effect]:
    """What a wire that does not hold comes to. The link is suspected, unless being late explains it: an epoch, a bump
    or a view may end while an honest neighbour still has something for us (docs/protocol.md §3.4: late is never
    blamed)."""
    counted = Count("refused", 1, type(error).__name__)
    return (
        [counted]
        if isinstance(error, Expired | WrongEpochKey | UnknownView)
        else [counted, Blame(peer, False, str(error))]
    )


@dataclass(frozen=True, slots=True)
class Admitted:
    """A publication whose header holds. `intact`: what content came matches the digests in the signed header. `live`:
    the epoch in which it was sealed can be now. `pieces`: of the content, as `content` cuts it; all, some or none."""

    header: MessageHeader
    publisher: Certificate
    scope: Scope
    intact: bool
    live: bool = True
    pieces: Mapping[int, bytes] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class _Verified:
    """What holds of a signed header on its topic for as long as the overlay stays: all but what time changes."""

    header: MessageHeader
    publisher: Certificate
    scope: Scope
    epoch: int


class Admission:
    """Checks wires against the overlay; remembers only which signatures and rights it has verified.

    The copies of one publication that come over several links carry the same signed header, character by character:
    its first copy is read and verified, and for the others only what the time or their content can change is asked.

    `replica`: whether it refuses what cannot be fresh.
    """

    def __init__(self, overlay: Overlay, *, replica: bool) -> None:
        self._overlay, self._topology = overlay, Topology(overlay)
        self._calendar = overlay.policy.calendar
        self._replica = replica
        self._headers = HeaderVerifier()
        self._verified: dict[tuple[str, str], _Verified] = {}  # by property and wire topic, oldest first
        self._keys: OrderedDict[bytes, KeyHeader] = OrderedDict()
        self._scopes: dict[str, Scope | None] = {}
        self._rights: dict[tuple[str, str, int], bool] = {}
        self._bumped: dict[str, float] = {}  # by scope: when its earlier bumps are outdated, if that is to come

    def adopt(self, overlay: Overlay, now: float) -> None:
        """Another version of the overlay, or other views of it, of the same regions."""
        until = now + max(overlay.policy.calendar.grace_s, BUMP_GRACE_S)
        bumps = {scope.filter: scope.bump for scope in self._overlay.policy.scopes}
        self._bumped = {f: at for f, at in self._bumped.items() if at > now}
        for scope in overlay.policy.scopes:
            if scope.bump > bumps.get(scope.filter, scope.bump):
                self._bumped[scope.filter] = until
        self._overlay, self._topology = overlay, Topology(overlay)
        self._calendar = overlay.policy.calendar
        self._verified.clear()
        self._keys.clear()
        self._scopes.clear()
        self._rights.clear()

    def publication(self, wire: Wire, properties: dict[str, str], now: float) -> Admitted:
        """Raises BadFrame, BadSignature, NotAuthorised, Expired."""
        copy = (properties[PROPERTY_HEADER], wire.topic)
        verified = self._verified.get(copy)
        if verified is None:
            verified = self._verify(*copy, now)
        else:
            _check_end(verified.publisher, now)
        header = verified.header
        live = self._check_epoch(verified.epoch, now)
        if not self._may_publish(verified.publisher.name, wire.topic, verified.epoch):
            raise NotAuthorised(f"{verified.publisher.name} may not publish on this topic in epoch {verified.epoch}")
        content.check_mode(header, verified.scope.mode)
        if header.previous >= header.sequence:
            raise BadFrame(f"sequence {header.sequence} follows {header.previous}")
        self._remember(copy, verified)
        pieces = content.read(header, wire.payload, properties.get(content.PROPERTY_PART))
        return Admitted(header, verified.publisher, verified.scope, pieces is not None, live, pieces or {})

    def _verify(self, text: str, topic: str, now: float) -> _Verified:
        signed = SignedHeader.decode(from_property(text))
        publisher = self.publisher(signed.header.publisher, now)
        self._headers.verify(signed, topic, publisher.public_key)
        scope = self._scope_of(topic)
        if scope is None:
            raise NotAuthorised("topic belongs to no scope of the overlay")
        return _Verified(signed.header, publisher, scope, self._calendar.at(signed.header.time_ms / 1000))

    def _remember(self, copy: tuple[str, str], verified: _Verified) -> None:
        """Only what was admitted: a header that is refused costs its link the same each time."""
        if copy not in self._verified and len(copy[1]) <= HEADERS_TOPIC_MAX:
            self._verified[copy] = verified
            if len(self._verified) > HEADERS_MAX:
                del self._verified[next(iter(self._verified))]

    def key(self, properties: dict[str, str], now: float) -> KeyHeader | None:
        """The key header that rides along, verified; None if there is none.

        Raises as `publication` does; WrongEpochKey at a replica for a key that a bump outdated; Expired for views that
        are closed, UnknownView for some that are not in force here yet, BadShare for other ones.
        """
        text = properties.get(PROPERTY_KEY)
        if text is None:
            return None
        key = KeyHeader.decode(from_property(text))
        publisher = self.publisher(key.publisher, now)
        known = self._keys.get(key.key_id)
        if known is not None and known.signature == key.signature:
            self._check_name(known.epoch_key, now)
            return known
        key.verify(publisher.public_key)
        scope = self._overlay.scope_named(key.scope)
        if scope is None:
            raise NotAuthorised("key for an unknown scope")
        self._check_name(key.epoch_key, now)
        if not self._overlay.may_publish_in(publisher.name, scope, key.epoch):
            raise NotAuthorised(f"{publisher.name} may not publish in {scope.filter} in epoch {key.epoch}")
        # Of another bump: made under other rules, since the owner raises it when it changes them.
        most = scope.refresh.messages if scope.keyed and key.bump == scope.bump else REFRESH_MESSAGES_MAX
        if key.message_limit > most:
            raise NotAuthorised(f"key for {key.message_limit} messages; the scope has {most}")
        self._check_views(key.hops, scope, publisher.region)
        self._keys[key.key_id] = key
        if len(self._keys) > VERIFIED_KEYS_MAX:
            self._keys.popitem(last=False)
        return key

    def _check_views(self, hops: Sequence[Hop], scope: Scope, home: int) -> None:
        """A key names one open view of every region that it may enter."""
        if [hop.region for hop in hops] != [hop.region for hop in self._topology.key_hops(scope, home)]:
            raise BadShare("key was split for other regions than those of its scope")
        for hop in hops:
            self._overlay.check_view(hop)

    # ---------------------------------------------------------------------------------------- epochs, bumps

    def stale(self, name: KeyName, now: float) -> bool:
        """Whether nothing under this epoch key can be fresh any more: its epoch is dead or a bump outdated it."""
        return self._outdated(name, now) or name.epoch < self.oldest(now)

    def oldest(self, now: float) -> int:
        """The first epoch that is not dead."""
        return self._calendar.at(now - self._calendar.grace_s - self._calendar.skew_s)

    def next_stale(self, now: float) -> float:
        """When something that is fresh now becomes stale; infinite without epochs and bumps."""
        dies = self._calendar.end_s(self.oldest(now)) + self._calendar.grace_s + self._calendar.skew_s
        return min([dies, *(at for at in self._bumped.values() if at > now)])

    def _outdated(self, name: KeyName, now: float) -> bool:
        scope = self._overlay.scope_named(name.scope)
        return scope is None or (name.bump < scope.bump and now >= self._bumped.get(name.scope, 0.0))

    def _check_name(self, name: KeyName, now: float) -> None:
        self._check_epoch(name.epoch, now)
        if self._replica and self._outdated(name, now):
            raise WrongEpochKey(f"the key of {name.scope} was outdated by a bump")

    def _check_epoch(self, epoch: int, now: float) -> bool:
        """Whether it can be now. Raises NotAuthorised for one to come; at a replica, Expired for a dead one."""
        if self._calendar.live(epoch, now):
            return True
        if epoch >= self.oldest(now):
            raise NotAuthorised(f"epoch {epoch} has not begun")
        if self._replica:
            raise Expired(f"epoch {epoch} is over")
        return False

    def _may_publish(self, name: str, wire_topic: str, epoch: int) -> bool:
        asked = (name, wire_topic, epoch)
        allowed = self._rights.get(asked)
        if allowed is None:
            if len(self._rights) >= RIGHTS_MAX:
                self._rights.clear()
            allowed = self._rights[asked] = self._overlay.may_publish(name, wire_topic, epoch)
        return allowed

    @staticmethod
    def shares(properties: dict[str, str], expected: Sequence[Place | Hop]) -> list[Share]:
        """The shares that ride along, each with a label over the regions `expected` and our stamps.

        `expected` is the path as its key's header has it, where a Place pins that coordinate: the sender's own place
        is certain (its certificate says it), earlier coordinates are the sender's claim. Raises BadShare.
        """
        text = properties.get(PROPERTY_SHARES)
        if text is None:
            return []
        shares = decode_shares(from_property(text))
        for share in shares:
            _check_label(share.label, expected)
        return shares

    def publisher(self, party_id: bytes, now: float = 0.0) -> Certificate:
        """Raises NotAuthorised, or, asked with the time, Expired: we may run for longer than a certificate lasts."""
        certificate = self._overlay.by_party.get(party_id)
        if certificate is None or certificate.role in CARRIERS:
            raise NotAuthorised("publisher is not a member that may publish")
        _check_end(certificate, now)
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


def _check_label(label: Label, expected: Sequence[Place | Hop]) -> None:
    if len(label) != len(expected):
        raise BadShare(f"label has depth {len(label)}, the path {len(expected)}")
    for place, wanted in zip(label, expected, strict=True):
        if isinstance(wanted, Place):
            if place != wanted:
                raise BadShare(f"label says {place}, the link says {wanted}")
        elif (place.region, place.view) != (wanted.region, wanted.view) or not 1 <= place.place <= wanted.count:
            raise BadShare(f"label {place} is not of view {wanted.view} of region {wanted.region}")


def _check_end(certificate: Certificate, now: float) -> None:
    if now * 1000 > certificate.not_after_ms:
        raise Expired(f"the certificate of {certificate.name} ended")
