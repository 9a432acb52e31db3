"""Who is in: regions, their members and thresholds, scopes and the region tree, all signed by the overlay's owner.

A *region* is one virtual node: n replicas in distinct trust domains (A1). Its *view* is numbered and signed;
the number is in every share's label, so shares of different views never mix. The *policy* lists the scopes and
the edges of the region tree. A *certificate* says who a member is and what it may publish and read.

The overlay file is a JSON document of base64 frames; `Overlay.load` believes nothing in it that the owner did
not sign. Not here: attaching and detaching live members (A13, A14), placement (A11, A12).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from keys.envelope import Mode
from keys.errors import BadFrame, BadSignature, Expired, KeysError
from keys.frames import Kind, Reader, number, opening, sized, text
from keys.identity import Certificate, Identity, Role, verify
from keys.shamir import threshold_of
from keys.sharetree import Hop

from .topics import covers, matches, specificity

FLAG_TRUSTED = 0x01
FLAG_TOKENS = 0x01
FLAG_SHARES_ONLY = 0x02
SHARES_PER_KEY_MAX = 1024  # what one receiver may be made to hold for one key (PROTOCOL §3)
DEPTH_MAX = 4  # regions on a path (A8)
DOMAIN_VIEW = "veilmq/1 view"
DOMAIN_POLICY = "veilmq/1 policy"


class OverlayError(Exception):
    """The overlay file cannot be believed or used: one line, cause and cure."""


@dataclass(frozen=True, slots=True)
class RegionView:
    """The members of one region in one view. `members[i]` holds place i + 1."""

    region: int
    number: int
    name: str
    members: tuple[str, ...]
    trusted: bool = False
    signature: bytes = b""

    @property
    def threshold(self) -> int:
        return threshold_of(len(self.members))

    @property
    def hop(self) -> Hop:
        return Hop(self.region, self.number, self.threshold, len(self.members))

    def place_of(self, member: str) -> int:
        """1..n; raises ValueError for a stranger."""
        return self.members.index(member) + 1

    def body(self) -> bytes:
        parts = [opening(Kind.VIEW, FLAG_TRUSTED if self.trusted else 0), number(self.region, 4)]
        parts += [number(self.number, 4), text(self.name), number(len(self.members), 1)]
        return b"".join([*parts, *map(text, self.members)])

    def signed(self, owner: Identity) -> RegionView:
        return replace(self, signature=owner.sign(DOMAIN_VIEW, self.body()))

    @classmethod
    def decode(cls, body: bytes, signature: bytes) -> RegionView:
        frame = Reader(body)
        flags = frame.opening(Kind.VIEW, FLAG_TRUSTED)
        view = cls(
            region=frame.number(4),
            number=frame.number(4),
            name=frame.text(),
            members=tuple(frame.text() for _ in range(frame.number(1))),
            trusted=bool(flags & FLAG_TRUSTED),
            signature=signature,
        )
        frame.end()
        return view


@dataclass(frozen=True, slots=True)
class Scope:
    """Topics that share one epoch key. `filter` is what the wire shows: tokens where names are hidden.

    `regions` are the regions that publications of the scope may enter; empty means all of them.
    """

    filter: str
    mode: Mode = Mode.COPIES
    regions: tuple[int, ...] = ()
    tokens: bool = False
    shares_only: bool = False

    def encode(self) -> bytes:
        flags = (FLAG_TOKENS if self.tokens else 0) | (FLAG_SHARES_ONLY if self.shares_only else 0)
        parts = [opening(Kind.SCOPE, flags), text(self.filter), number(self.mode, 1)]
        return b"".join([*parts, number(len(self.regions), 1), *(number(r, 4) for r in self.regions)])

    @classmethod
    def decode(cls, data: bytes) -> Scope:
        frame = Reader(data)
        flags = frame.opening(Kind.SCOPE, FLAG_TOKENS | FLAG_SHARES_ONLY)
        wire_filter, mode = frame.text(), frame.number(1)
        if mode not in Mode.__members__.values():
            raise BadFrame(f"unknown content mode {mode}")
        regions = tuple(frame.number(4) for _ in range(frame.number(1)))
        frame.end()
        return cls(wire_filter, Mode(mode), regions, bool(flags & FLAG_TOKENS), bool(flags & FLAG_SHARES_ONLY))


@dataclass(frozen=True, slots=True)
class Policy:
    """The owner's versioned rules: which scopes exist and how regions are joined (a tree).

    `contents`: SHA-256 over all views and members that go with this version, so that nobody who delivers the file
    can mix old parts with new ones, or exchange an address.
    """

    overlay: str
    version: int
    edges: tuple[tuple[int, int], ...]
    scopes: tuple[Scope, ...]
    contents: bytes = bytes(32)
    signature: bytes = b""

    def body(self) -> bytes:
        parts = [
            opening(Kind.POLICY),
            text(self.overlay),
            number(self.version, 8),
            self.contents,
            number(len(self.edges), 2),
        ]
        parts += [number(a, 4) + number(b, 4) for a, b in self.edges]
        return b"".join([*parts, number(len(self.scopes), 2), *(sized(s.encode()) for s in self.scopes)])

    def signed(self, owner: Identity) -> Policy:
        return replace(self, signature=owner.sign(DOMAIN_POLICY, self.body()))

    @classmethod
    def decode(cls, body: bytes, signature: bytes) -> Policy:
        frame = Reader(body)
        frame.opening(Kind.POLICY)
        overlay, version, contents = frame.text(), frame.number(8), frame.take(32)
        edges = tuple((frame.number(4), frame.number(4)) for _ in range(frame.number(2)))
        scopes = tuple(Scope.decode(frame.sized()) for _ in range(frame.number(2)))
        frame.end()
        return cls(overlay, version, edges, scopes, contents, signature)


@dataclass(frozen=True, slots=True)
class Member:
    """A certificate, where its holder listens (replicas; HOST:PORT) and the CA of its trust domain (DER)."""

    certificate: Certificate
    address: str = ""
    ca: bytes = b""


class Overlay:
    """Everything signed, verified once, and the questions that machines ask of it."""

    def __init__(self, owner: bytes, policy: Policy, views: Iterable[RegionView], members: Iterable[Member]) -> None:
        self.owner = owner
        self.policy = policy
        views, members = list(views), list(members)
        self.views = {view.region: view for view in views}
        self.members = {member.certificate.name: member for member in members}
        self.by_party = {m.certificate.party_id: m.certificate for m in self.members.values()}
        self._neighbours: dict[int, tuple[int, ...]] = {
            region: tuple(sorted({b for a, b in self._both_ways() if a == region})) for region in self.views
        }
        # The last of two would win silently: an old view, say, over the one that replaced it.
        if len(self.views) < len(views) or len(self.by_party) < len(members) or len(self.members) < len(members):
            raise OverlayError("the overlay lists a region, a member or a key twice; keep the newest of each only")
        self._check()
        self._paths = {a: self._paths_from(a) for a in self.views}
        self._check_loads()

    # -------------------------------------------------------------------------------- making and reading

    @classmethod
    def sign(cls, owner: Identity, policy: Policy, views: Iterable[RegionView], members: Iterable[Member]) -> Overlay:
        """The owner's side: sign policy and views; certificates come signed (`Certificate.issue`)."""
        views, members = [view.signed(owner) for view in views], list(members)
        whole = replace(policy, contents=_contents(views, members))
        return cls(owner.public_bytes, whole.signed(owner), views, members)

    def to_document(self) -> dict[str, Any]:
        """The overlay file as a JSON object."""
        return {
            "veilmq_overlay": 1,
            "name": self.policy.overlay,
            "owner": _b64(self.owner),
            "policy": _signed(self.policy.body(), self.policy.signature),
            "views": [_signed(v.body(), v.signature) for _, v in sorted(self.views.items())],
            "members": [
                {"certificate": _b64(m.certificate.encode()), "address": m.address, "ca": _b64(m.ca)}
                for _, m in sorted(self.members.items())
            ],
        }

    @classmethod
    def load(cls, document: Mapping[str, Any], now_ms: int, owner: bytes | None = None) -> Overlay:
        """Verify a document of `to_document`; `owner` pins the public key that must have signed it.

        Raises OverlayError naming what does not hold: shape, signature, expiry, size of a region, the tree.
        """
        try:
            public = _unb64(document["owner"])
            if owner is not None and public != owner:
                raise OverlayError("overlay file is signed by another owner; ask the owner for the right file")
            policy = Policy.decode(*_verified(document["policy"], public, DOMAIN_POLICY, "policy"))
            views = [
                RegionView.decode(*_verified(entry, public, DOMAIN_VIEW, f"view {index + 1}"))
                for index, entry in enumerate(document["views"])
            ]
            members = []
            for entry in document["members"]:
                certificate = Certificate.decode(_unb64(entry["certificate"]))
                certificate.verify(public, now_ms)
                members.append(Member(certificate, str(entry["address"]), _unb64(entry["ca"])))
            if _contents(views, members) != policy.contents:
                raise BadSignature("views or members are not those of this version of the policy")
        except Expired as error:
            raise OverlayError(f"overlay file: {error}; ask the owner to issue it anew") from error
        except (BadSignature, BadFrame) as error:
            raise OverlayError(f"overlay file was tampered with: {error}; fetch it from the owner") from error
        except (KeyError, TypeError, AttributeError, ValueError, KeysError) as error:
            raise OverlayError(f"overlay file is not one: {error!r}; make it with `veilmq overlay sign`") from error
        return cls(public, policy, views, members)

    # ------------------------------------------------------------------------------------------ questions

    def certificate(self, name: str) -> Certificate:
        return self.members[name].certificate

    def neighbours(self, region: int) -> tuple[int, ...]:
        """Regions one edge of the tree away."""
        return self._neighbours[region]

    def path(self, start: int, end: int) -> tuple[int, ...]:
        """Regions from `start` to `end`, both included."""
        return self._paths[start][end]

    def scope_of(self, wire_topic: str) -> Scope | None:
        """The most specific scope of a wire topic, or None."""
        found = [scope for scope in self.policy.scopes if matches(scope.filter, wire_topic)]
        return min(found, key=lambda scope: specificity(scope.filter), default=None)

    def scope_named(self, wire_filter: str) -> Scope | None:
        return next((scope for scope in self.policy.scopes if scope.filter == wire_filter), None)

    def regions_of(self, scope: Scope) -> frozenset[int]:
        return frozenset(scope.regions) if scope.regions else frozenset(self.views)

    def key_hops(self, scope: Scope, home: int) -> tuple[Hop, ...]:
        """What a key header states: the publisher's region first, then every other region of the scope."""
        others = sorted(self.regions_of(scope) - {home})
        return tuple(self.views[region].hop for region in (home, *others))

    def hops_between(self, start: int, end: int) -> tuple[Hop, ...]:
        return tuple(self.views[region].hop for region in self.path(start, end))

    def may_read(self, name: str, scope: Scope) -> bool:
        """Whether the member's certificate covers the whole scope."""
        return any(covers(granted, scope.filter) for granted in self.certificate(name).read)

    # --------------------------------------------------------------------------------------------- checks

    def _both_ways(self) -> list[tuple[int, int]]:
        return [edge for a, b in self.policy.edges for edge in ((a, b), (b, a))]

    def _check(self) -> None:
        for view in self.views.values():
            if len(view.members) <= 2 and not view.trusted:
                raise OverlayError(
                    f"region {view.name} has {len(view.members)} replicas and cannot share a secret; "
                    "give it at least 3, or mark it `trusted: true` if you trust each of them with it"
                )
            if len(set(view.members)) != len(view.members):
                raise OverlayError(f"region {view.name} lists a replica twice; list each once")
            self._check_members(view)
        for a, b in self.policy.edges:
            if a not in self.views or b not in self.views:
                raise OverlayError(f"the tree joins region {a} to {b}, but one of them has no view; add it")
        if len(self.policy.edges) != len(self.views) - 1:
            raise OverlayError("the regions must form a tree: one edge fewer than there are regions")

    def _check_members(self, view: RegionView) -> None:
        domains: dict[str, str] = {}
        for name in view.members:
            member = self.members.get(name)
            if member is None:
                raise OverlayError(f"region {view.name} names {name}, who has no certificate here; add its card")
            certificate = member.certificate
            if certificate.role is not Role.REPLICA or certificate.region != view.region:
                raise OverlayError(f"{name} is not certified as a replica of region {view.name}; issue it as one")
            other = domains.setdefault(certificate.domain, name)
            if other != name and not view.trusted:
                raise OverlayError(
                    f"{other} and {name} of region {view.name} are of one trust domain ({certificate.domain}); "
                    "replicas of a region must be run by different parties"
                )

    def _paths_from(self, start: int) -> dict[int, tuple[int, ...]]:
        paths: dict[int, tuple[int, ...]] = {start: (start,)}
        queue = deque([start])
        while queue:
            region = queue.popleft()
            for following in self._neighbours[region]:
                if following not in paths:
                    paths[following] = (*paths[region], following)
                    queue.append(following)
        if len(paths) != len(self.views):
            raise OverlayError("the regions must form one tree; join the separate ones with an edge")
        return paths

    def _check_loads(self) -> None:
        """No path on which a receiver would hold too many shares of one key (A8).

        A subscriber of the last region holds the product of all n of the path.
        """
        for paths in self._paths.values():
            for path in paths.values():
                shares = 1
                for region in path:
                    shares *= len(self.views[region].members)
                if shares > SHARES_PER_KEY_MAX or len(path) > DEPTH_MAX:
                    names = " - ".join(self.views[region].name for region in path)
                    raise OverlayError(
                        f"path {names} has {len(path)} regions and {shares} shares a key "
                        f"(at most {DEPTH_MAX} and {SHARES_PER_KEY_MAX}); shorten it or use fewer replicas"
                    )


def _contents(views: Iterable[RegionView], members: Iterable[Member]) -> bytes:
    """The digest that binds one version's views and members, whatever order a file lists them in."""
    parts = [sized(view.body()) for view in sorted(views, key=lambda view: view.region)]
    for member in sorted(members, key=lambda member: member.certificate.name):
        parts += [sized(member.certificate.encode()), text(member.address), sized(member.ca)]
    return hashlib.sha256(b"".join(parts)).digest()


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _unb64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise BadFrame("field is not base64") from error


def _signed(body: bytes, signature: bytes) -> dict[str, str]:
    return {"body": _b64(body), "signature": _b64(signature)}


def _verified(entry: Mapping[str, str], public: bytes, domain: str, what: str) -> tuple[bytes, bytes]:
    body, signature = _unb64(entry["body"]), _unb64(entry["signature"])
    try:
        verify(public, domain, body, signature)
    except BadSignature as error:
        raise BadSignature(f"signature of {what} does not fit") from error
    return body, signature
