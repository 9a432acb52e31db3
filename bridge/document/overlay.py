"""The overlay: regions, their members and thresholds, and the members' rights, all signed by the owner.

A *region* is a single virtual node: n replicas in distinct trust domains (A1). Its *view* (`region_view`) is numbered
and signed; the number is in every share's label, so shares of different views never mix. A *certificate* names a
member; the *policy* (`policy`) gives its rights, the scopes and the edges between regions.

The overlay file is a JSON document of base64 frames; `Overlay.from_document` believes only parts the owner signed, and
endorsements, which carry the signatures of their own authors.

Which views are in force and open, and how a newer version is adopted, stands in `succession`: **read that first if
you attach or detach**. Not here: placement (A11, A12).
"""

from __future__ import annotations

import binascii
import contextlib
import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from bridge.base import OperatorError, matches, overlaps, specificity
from bridge.document.arrangement import Arrangement
from bridge.document.history import unkept
from bridge.document.policy import DOMAIN_POLICY, KEY_SERVERS_MAX, Issuer, Policy, Scope, misrouted, numbered
from bridge.document.record_rights import RecordRights
from bridge.document.region_view import DOMAIN_VIEW, VIEW_GRACE_S, Endorsement, Member, RegionView
from bridge.document.reorganised import Reorganised, read_swap_news
from bridge.document.swaps import ENDORSEMENTS_MOST as SWAP_ENDORSEMENTS_MOST
from bridge.document.swaps import NEWS_SWAPS_MOST, ORGANISERS, SwapNews
from bridge.document.tree_checks import overlong, unjoined
from bridge.document.trees import Tree, Trees
from keys.errors import BadFrame, BadSignature, Expired, KeysError
from keys.frames import of_base64, sized, text, to_base64
from keys.grants import Grant, Right
from keys.identity import CARRIERS, Certificate, Identity, Role, verify
from keys.keyheader import frame_bytes
from keys.material import THRESHOLD_SERVERS_MAX, THRESHOLD_SERVERS_MIN
from keys.sharetree import Hop

__all__ = ["VIEW_GRACE_S", "Endorsement", "Member", "Overlay", "OverlayError", "RegionView"]

FORMAT = 1
HOSTED_PROPERTY_CHARS = 8192  # that a hosted broker carries in one user property (docs/protocol.md §2.10)
ENDORSEMENTS_MAX = 4096  # read from one document; honest ones hold one of each replica


class OverlayError(OperatorError):
    """An overlay file that cannot be believed or used: a line, cause and cure."""


class Overlay(Reorganised):
    """An overlay, signed and verified once, with the questions that machines ask of it."""

    def __init__(
        self,
        owner: bytes,
        policy: Policy,
        views: Iterable[RegionView],
        members: Iterable[Member],
        endorsements: Iterable[Endorsement] = (),
    ) -> None:
        self.owner = owner
        self.policy = policy
        views, members = list(views), list(members)
        self.latest = {view.region: view for view in views}
        self.members = {member.certificate.name: member for member in members}
        self.by_party = {c.party_id: c for member in self.members.values() for c in member.certificates}
        self.hosted = frozenset(n for n, m in self.members.items() if m.certificate.role is Role.HOSTED)
        """Names of the hosted brokers, which know nothing of VeilMQ."""
        self.set_grants(policy.grants)
        self.trees = Trees.at_start(policy.tree, policy.edges, self.latest)
        self._numbered = {scope.number: scope for scope in policy.scopes}
        self.scope_named = {scope.filter: scope for scope in reversed(policy.scopes)}.get
        """Returns the scope with a wire filter; None without one."""
        # The last of two would win silently: an old view, say, over the one that replaced it.
        keys = sum(len(member.certificates) for member in members)
        if len(self.latest) < len(views) or len(self.by_party) < keys or len(self.members) < len(members):
            raise OverlayError("the overlay lists a region, a member or a key twice; keep the newest of each only")
        self._check()
        self._check_scopes()
        for tree in self._all_trees():
            if wrong := unjoined(self, tree) or overlong(self, tree):
                raise OverlayError(wrong)
        self._judge_endorsements(endorsements)
        self._arrange()

    # -------------------------------------------------------------------------------- making and reading

    @classmethod
    def sign(
        cls,
        owner: Identity,
        policy: Policy,
        views: Iterable[RegionView],
        members: Iterable[Member],
        endorsements: Iterable[Endorsement] = (),
    ) -> Overlay:
        """Signs policy and views for the owner, and numbers scopes without number; certificates come signed
        (`Certificate.issue`).
        """
        views, members = [view.signed(owner) for view in views], list(members)
        whole = replace(policy, scopes=numbered(policy.scopes), contents=_contents(views, members))
        return cls(owner.public_bytes, whole.signed(owner), views, members, endorsements)

    def to_document(self) -> dict[str, Any]:
        """Returns the overlay file as a JSON object."""
        return {
            "veilmq_overlay": FORMAT,
            "name": self.policy.overlay,
            "owner": to_base64(self.owner),
            "policy": _signed(self.policy.signed_bytes(), self.policy.signature),
            "views": [_view_document(v) for _, v in sorted(self.latest.items())],
            "endorsements": sorted(to_base64(endorsement.encode()) for endorsement in self.endorsements),
            "swaps": [to_base64(swap.encode()) for swap in self.swap_news.swaps],
            "swap_endorsements": [to_base64(each.encode()) for each in self.swap_news.endorsements],
            "members": [
                {
                    "certificate": to_base64(m.certificate.encode()), "address": m.address, "ca": to_base64(m.ca),
                    "box": to_base64(m.box), "before": to_base64(m.before.encode() if m.before else b""),
                }
                for _, m in sorted(self.members.items())
            ],
        }  # fmt: skip

    @classmethod
    def from_document(cls, document: Mapping[str, Any], now_ms: int, owner: bytes | None = None) -> Overlay:
        """Verifies a document of `to_document`; `owner` pins the public key that must have signed it.

        Raises OverlayError naming the fault: shape, signature, expiry, size of a region, the tree.
        """
        try:
            if (version := int(document.get("veilmq_overlay", FORMAT))) > FORMAT:
                raise OverlayError(f"overlay file is of format {version}, this program knows {FORMAT}; upgrade veilmq")
            public = _unb64(document["owner"])
            if owner is not None and public != owner:
                raise OverlayError("overlay file is signed by another owner; ask the owner for the right file")
            policy = Policy.decode(*_verified(document["policy"], public, DOMAIN_POLICY, "policy"))
            views = [_view(entry, public, f"view {index + 1}") for index, entry in enumerate(document["views"])]
            members = []
            for entry in document["members"]:
                certificate = Certificate.decode(_unb64(entry["certificate"]))
                certificate.verify(public, now_ms)
                old = _unb64(entry["before"])
                before = Certificate.decode(old) if old else None
                if before is not None:
                    before.verify(public, 0)  # that it ended is no fault of the file; users check its end
                box = _unb64(entry["box"])
                members.append(Member(certificate, str(entry["address"]), _unb64(entry["ca"]), box, before))
            if _contents(views, members) != policy.contents:
                raise BadSignature("views or members are not those of this version of the policy")
        except Expired as error:
            raise OverlayError(f"overlay file: {error}; ask the owner to issue it anew") from error
        except (BadSignature, BadFrame) as error:
            raise OverlayError(f"overlay file was tampered with: {error}; fetch it from the owner") from error
        except (KeyError, TypeError, AttributeError, ValueError, KeysError) as error:
            raise OverlayError(f"overlay file is not one: {error!r}; make it with `veilmq overlay sign`") from error
        made = cls(public, policy, views, members, _endorsements(document))
        return made.hears(_swap_news(document, public)).as_of(now_ms / 1000)

    @classmethod
    def policy_of(cls, document: Mapping[str, Any], owner: bytes) -> Policy:
        """Returns the policy alone, its signature verified: the cheap part of `from_document`. Raises OverlayError."""
        try:
            return Policy.decode(*_verified(document["policy"], owner, DOMAIN_POLICY, "policy"))
        except (BadSignature, BadFrame) as error:
            raise OverlayError(f"overlay file was tampered with: {error}; fetch it from the owner") from error
        except (KeyError, TypeError, AttributeError, ValueError, KeysError) as error:
            raise OverlayError(f"overlay file is not one: {error!r}; make it with `veilmq overlay sign`") from error

    # ------------------------------------------------------------------------------------------ questions

    def certificate(self, name: str) -> Certificate:
        return self.members[name].certificate

    def classical(self) -> list[str]:
        """Returns gateways and ingest jobs to which boxes are sealed with X25519 alone, now or to a former key."""
        return [
            name
            for name, member in self.members.items()
            if member.certificate.role in (Role.GATEWAY, Role.INGEST)
            and not all(each.is_hybrid for each in (member.certificate, member.before) if each is not None)
        ]

    def neighbours(self, region: int) -> tuple[int, ...]:
        """Returns the regions a single edge away, in any open tree."""
        return tuple(sorted({other for tree in self.trees.open for other in tree.neighbours(region)}))

    def path(self, start: int, end: int) -> tuple[int, ...]:
        """Returns the regions from `start` to `end`, both included, in the tree in force."""
        return self.trees.in_force.path(start, end)

    def scope_of(self, wire_topic: str) -> Scope | None:
        """Returns the most specific scope of a wire topic, or None."""
        found = [scope for scope in self.policy.scopes if matches(scope.filter, wire_topic)]
        return min(found, key=lambda scope: specificity(scope.filter), default=None)

    def regions_of(self, scope: Scope) -> frozenset[int]:
        return frozenset(scope.regions) if scope.regions else frozenset(self.latest)

    def key_hops(self, scope: Scope, home: int) -> tuple[Hop, ...]:
        """Returns the hops a key header states.

        The publisher's region comes first, then every other region of the scope in the tree in force.
        """
        others = sorted((self.regions_of(scope) & self.trees.in_force.regions) - {home})
        return tuple(self.views[region].hop for region in (home, *others))

    def hops_between(self, start: int, end: int) -> tuple[Hop, ...]:
        return tuple(self.views[region].hop for region in self.path(start, end))

    def scope_numbered(self, number: int) -> Scope | None:
        return self._numbered.get(number)

    def stream_of(self, number: int) -> int:
        """Returns the stream of the scope with this number, under which readers remember its publications
        (`Scope.stream`).
        """
        scope = self._numbered.get(number)
        return number if scope is None else scope.stream

    def is_to_come(self, number: int) -> bool:
        """Returns True if only a later version can list a scope of this number: no number is used again."""
        return number > max(self._numbered, default=0)

    def may_publish(self, name: str, wire_topic: str, epoch: int) -> bool:
        return any(grant.may_publish(wire_topic, epoch) for grant in self._grants.get(name, ()))

    def may_publish_in(self, name: str, scope: Scope, epoch: int) -> bool:
        """Returns True if the member may publish on some topic of the scope."""
        return any(
            Right.PUBLISH in grant.rights and grant.live(epoch) and overlaps(grant.filter, scope.filter)
            for grant in self._grants.get(name, ())
        )

    def rights_in(self, name: str, scope: Scope, epoch: int) -> RecordRights:
        """Returns the topics of the scope on which the member may publish."""
        live = [g for g in self._grants.get(name, ()) if Right.PUBLISH in g.rights and g.live(epoch)]
        whole = any(g.may_publish_all(scope.filter, epoch) for g in live)
        granted = [scope.filter] if whole else [g.filter for g in live if overlaps(g.filter, scope.filter)]
        here = specificity(scope.filter)
        within = [s.filter for s in self.policy.scopes if specificity(s.filter) < here]
        return RecordRights(
            scope.filter, tuple([f for f in within if overlaps(f, scope.filter)]), tuple(dict.fromkeys(granted))
        )

    def may_read(self, name: str, scope: Scope, epoch: int) -> bool:
        """Returns True if the member may read the whole scope."""
        return any(grant.may_read_all(scope.filter, epoch) for grant in self._grants.get(name, ()))

    def set_grants(self, grants: Iterable[Grant]) -> None:
        """Sets the grants in effect: all grants of the policy, or fewer."""
        self._grants: dict[str, list[Grant]] = {}
        for grant in grants:
            self._grants.setdefault(grant.member, []).append(grant)

    def grants_of(self, name: str) -> tuple[Grant, ...]:
        return tuple(self._grants.get(name, ()))

    # --------------------------------------------------------------------------------------------- checks

    def _bears(self, arrangement: Arrangement) -> bool:
        try:
            Overlay(self.owner, arrangement.in_policy(self.policy), self.latest.values(), self.members.values())
        except OverlayError:
            return False
        return True

    def _all_trees(self) -> list[Tree]:
        return [tree for tree in (self.trees.newest, self.trees.former) if tree is not None]

    def _check(self) -> None:
        for view in self._all_views():
            if len(view.members) <= 2 and not view.trusted:
                raise OverlayError(
                    f"region {view.name} has {len(view.members)} replicas and cannot share a secret; "
                    "give it at least 3, or mark it `trusted: true` if you trust each of them with it"
                )
            if len(set(view.members)) != len(view.members):
                raise OverlayError(f"region {view.name} lists a replica twice; list each once")
            self._check_members(view)
            self._check_hosted(view)
            if view.former is not None and not _follows(view, view.former):
                raise OverlayError(f"the view before that of region {view.name} is another than it names; sign anew")
        for a, b in self.policy.edges:
            if a not in self.latest or b not in self.latest:
                raise OverlayError(f"the tree joins region {a} to {b}, but one of them has no view; add it")
        if len(self.policy.edges) != len(self.latest) - 1:
            raise OverlayError("the regions must form a tree: one edge fewer than there are regions")
        if self.policy.organising and (strange := self.policy.organising.strange(self.latest)):
            raise OverlayError(f"potential link {strange} does not join two regions that there are; take it out")
        organiser = self.policy.organising.organiser if self.policy.organising else ""
        if organiser and (organiser not in self.members or self.certificate(organiser).role not in ORGANISERS):
            raise OverlayError(
                f"{organiser} is to organise, and no gateway or ingest job is called so; add its card, or name another"
            )
        if not self.trees.newest.joined:
            raise OverlayError("the regions must form one tree; join the separate ones with an edge")
        if self.policy.tree.former and self.trees.former is not None and not self.trees.former.joined:
            raise OverlayError(
                "a region that lay between others is gone; join those by other edges first, and remove it when the "
                "tree before is closed"
            )
        self._check_parties()

    def _all_views(self) -> list[RegionView]:
        return [v for latest in self.latest.values() for v in (latest, latest.former) if v is not None]

    def _check_parties(self) -> None:
        for name, member in self.members.items():
            old, new = member.before, member.certificate
            if old is not None and (old.name, old.role, old.region) != (name, new.role, new.region):
                raise OverlayError(f"the former certificate of {name} is of another member, role or region")
        if self.policy.quantum_safe and (names := self.classical()):
            raise OverlayError(
                f"{', '.join(names)}: no quantum-safe key for boxes, which this overlay requires; renew their cards by "
                "`veilmq trust renew`, let a former certificate end, or sign with quantum_safe: preferred"
            )
        servers, issuer = self.policy.key_servers, self.policy.issuer
        if (issuer is Issuer.OWNER) != (not servers) or len(set(servers)) < len(servers):
            raise OverlayError("a key service has servers, each once; keys that the owner issues have none")
        if issuer is Issuer.OWNER and self.policy.calendar.length_s:
            raise OverlayError("epochs need a key service; add one, or leave the epochs out")
        if len(servers) > KEY_SERVERS_MAX:
            raise OverlayError(f"a key service has at most {KEY_SERVERS_MAX} servers, not {len(servers)}")
        if issuer is Issuer.THRESHOLD and not THRESHOLD_SERVERS_MIN <= len(servers) <= THRESHOLD_SERVERS_MAX:
            raise OverlayError(
                f"a threshold key service has {THRESHOLD_SERVERS_MIN} to {THRESHOLD_SERVERS_MAX} servers, "
                f"not {len(servers)}; 4 bear one faulty server, 7 two"
            )
        for name in servers:
            if name not in self.members or self.members[name].certificate.role is not Role.KEY_SERVER:
                raise OverlayError(f"{name} is not certified as a key server; issue it as one and add its card")
        domains = [self.members[name].certificate.domain for name in servers]
        if issuer is Issuer.THRESHOLD and len(set(domains)) < len(domains):
            raise OverlayError(
                f"key servers {', '.join(servers)} are not all of different trust domains ({', '.join(domains)}); "
                "a party with two of them could read alone: take servers of other parties, or a chain"
            )

    def _check_members(self, view: RegionView) -> None:
        domains: dict[str, str] = {}
        for name in view.members:
            member = self.members.get(name)
            if member is None:
                raise OverlayError(f"region {view.name} names {name}, who has no certificate here; add its card")
            certificate = member.certificate
            if certificate.role not in CARRIERS or certificate.region != view.region:
                raise OverlayError(f"{name} is not certified as a replica of region {view.name}; issue it as one")
            other = domains.setdefault(certificate.domain, name)
            if other != name and not view.trusted:
                raise OverlayError(
                    f"{other} and {name} of region {view.name} are of one trust domain ({certificate.domain}); "
                    "replicas of a region must be run by different parties"
                )

    def _check_hosted(self, view: RegionView) -> None:
        """Raises OverlayError for a view needing more of a hosted broker than a stock broker can do.

        It cannot split shares anew for a next region, or carry properties of any size.
        """
        hosted = sorted(self.hosted.intersection(view.members))
        if not hosted:
            return
        if any(tree.neighbours(view.region) for tree in self._all_trees()):
            raise OverlayError(
                f"region {view.name} is joined to another, and the hosted broker {hosted[0]} in it cannot split shares "
                "for that; give the region replicas of ours, or no neighbour"
            )
        for scope in self.policy.scopes:
            chars = -(-frame_bytes(scope.filter, 1, len(view.members)) * 4 // 3)
            if chars > HOSTED_PROPERTY_CHARS:
                raise OverlayError(
                    f"keys of scope {scope.filter:.40}... take user properties of {chars} characters, and hosted "
                    f"brokers carry {HOSTED_PROPERTY_CHARS}; shorten the filter, or use fewer replicas"
                )

    def _check_scopes(self) -> None:
        """Raises OverlayError unless each scope has its own number, existing regions, and brokers that can carry
        it.
        """
        if len(self._numbered) < len(self.policy.scopes) or 0 in self._numbered:
            raise OverlayError("two scopes have one number, or one has none; sign the overlay anew")
        present = [scope.stream for scope in self.policy.scopes if not scope.retiring]
        if len(set(present)) < len(present):
            raise OverlayError("two scopes go on with the streams of one, and only one may; sign the overlay anew")
        for scope in self.policy.scopes:
            unknown = sorted(set(scope.regions) - self.latest.keys())
            if unknown:
                raise OverlayError(
                    f"scope {scope.filter:.40} names region {unknown[0]}, and there is no region of that number; "
                    "take it out, or add the region"
                )
            carriers = {name for region in self.regions_of(scope) for name in self.latest[region].members}
            if wrong := misrouted(scope, self.hosted & carriers) or self._unkept(scope, self.hosted & carriers):
                raise OverlayError(wrong)

    def _unkept(self, scope: Scope, hosted: Collection[str]) -> str:
        """Returns why the history of a scope cannot be kept, or nothing."""
        if scope.history is None:
            return ""
        regions = self.regions_of(scope)
        if strange := sorted(set(scope.history.regions) - regions):
            return (
                f"region {strange[0]} is to keep the history of scope {scope.filter:.40}, which may not enter it; "
                "add it to the scope's regions"
            )
        sizes = {region: len(self.latest[region].members) for region in regions}
        return unkept(scope.filter, scope.mode, scope.by_planes, sizes, hosted)


def _contents(views: Iterable[RegionView], members: Iterable[Member]) -> bytes:
    """Returns the digest binding a single version's views and members, independent of their order in a file."""
    both = [v for view in sorted(views, key=lambda view: view.region) for v in (view, view.former) if v is not None]
    parts = [sized(view.signed_bytes()) for view in both]
    for member in sorted(members, key=lambda member: member.certificate.name):
        parts += [sized(member.certificate.encode()), text(member.address), sized(member.ca)]
        parts += [hashlib.sha256(member.box).digest(), sized(member.before.encode() if member.before else b"")]
    return hashlib.sha256(b"".join(parts)).digest()


def _follows(view: RegionView, former: RegionView) -> bool:
    """Returns True if `former` is the view before."""
    same = (former.region, former.number + 1, former.trusted) == (view.region, view.number, view.trusted)
    return same and former.digest == view.predecessor and former.former is None


def _endorsements(document: Mapping[str, Any]) -> Iterable[Endorsement]:
    """Yields the readable endorsements; an unreadable one is no fault of the owner's."""
    for entry in list(document.get("endorsements", ()))[:ENDORSEMENTS_MAX]:
        try:
            yield Endorsement.decode(_unb64(entry))
        except (KeysError, TypeError, ValueError, AttributeError):
            continue


def _swap_news(document: Mapping[str, Any], owner: bytes) -> SwapNews:
    """Returns the readable swaps and their endorsements, as for `_endorsements`."""
    return read_swap_news(
        _frames(document.get("swaps"), NEWS_SWAPS_MOST),
        _frames(document.get("swap_endorsements"), SWAP_ENDORSEMENTS_MOST),
        owner,
    )


def _frames(entries: object, most: int) -> Iterable[bytes]:
    for entry in (entries if isinstance(entries, list) else [])[:most]:
        with contextlib.suppress(KeysError, TypeError, ValueError, AttributeError):
            yield _unb64(entry)


def _view_document(view: RegionView) -> dict[str, Any]:
    former = {} if view.former is None else {"former": _view_document(view.former)}
    return _signed(view.signed_bytes(), view.signature) | former


def _view(entry: Mapping[str, Any], public: bytes, what: str) -> RegionView:
    """Reads a signed view, with the view before if the document has it."""
    former = entry.get("former")
    before = None if former is None else RegionView.decode(*_verified(former, public, DOMAIN_VIEW, f"former {what}"))
    return RegionView.decode(*_verified(entry, public, DOMAIN_VIEW, what), before)


def _unb64(text: str) -> bytes:
    try:
        return of_base64(text)
    except binascii.Error as error:
        raise BadFrame("field is not base64") from error


def _signed(body: bytes, signature: bytes) -> dict[str, str]:
    return {"body": to_base64(body), "signature": to_base64(signature)}


def _verified(entry: Mapping[str, str], public: bytes, domain: str, what: str) -> tuple[bytes, bytes]:
    body, signature = _unb64(entry["body"]), _unb64(entry["signature"])
    try:
        verify(public, domain, body, signature)
    except BadSignature as error:
        raise BadSignature(f"signature of {what} does not fit") from error
    return body, signature
