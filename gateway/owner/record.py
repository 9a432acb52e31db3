"""Record of an overlay in its owner's folder: rights in clear names, and the newest signed document.

    OWNER_DIR/overlays/NAME.json (mode 0600; it names hidden topics, but holds no key)

Clear names cannot be recovered from the signed file, so rights are kept in the record, and the policy's grants are
derived from it. The record also holds the signed document, so that an older `overlay.json` put before the owner is
never signed upon. The record is written before `overlay.json`: after a crash between the two, the next version
follows. Not here: how rights change (`rights`), members and signatures (`signing`).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bridge.base import covers, most_specific
from bridge.document import Overlay, OverlayError, Protection, Scope
from gateway.base import PrivateFileError, private_directory, read_private, write_private
from gateway.trust import RESTORED, TrustDomain, TrustError, read_document
from keys.epochs import token_key
from keys.grants import ENDLESS, Grant, Right
from keys.topictokens import tokenise_filter

RECORD_FORMAT = 1
RECORDS = "overlays"
VALID_DAYS = 365


@dataclass(frozen=True, slots=True)
class GrantedRight:
    """A right of a member on a clear filter.

    `since`: bumps of scopes at the time of the grant, where the owner issues keys. Scopes without an entry were at 0,
    or their history was granted too.
    """

    member: str
    filter: str
    right: Right
    first_epoch: int = 0
    last_epoch: int = ENDLESS
    since: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KnownScope:
    """A scope of the overlay as the owner knows it. `generation`: of its tokens; None if names are shown."""

    wire: str
    clear: str
    generation: int | None = None


@dataclass
class OwnerRecord:
    """The owner's record of an overlay.

    `retiring`: the previous token generation, while it is read. `bumps`: by wire filter, also of removed scopes, since
    a scope coming back may not come back under old keys. `numbers`: by wire filter, the scopes' numbers on the wire;
    no number is used again for another scope. `streams`: by clear filter, the scope's first number, under which
    readers remember streams whatever the tokens. `protections`: by wire filter, the scope's protection in earlier
    versions, also of removed scopes, whose publications may still wait. `valid_days`, `renew_before_days`: from the
    last description; None: certificates are not renewed automatically.
    """

    overlay: str
    generation: int = 0
    retiring: int | None = None
    scopes: dict[str, KnownScope] = field(default_factory=dict)
    granted: list[GrantedRight] = field(default_factory=list)
    bumps: dict[str, int] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    streams: dict[str, int] = field(default_factory=dict)
    protections: dict[str, Protection] = field(default_factory=dict)
    document: dict[str, Any] | None = None
    valid_days: int = VALID_DAYS
    renew_before_days: int | None = None
    edges: list[list[int]] | None = None  # from the last description

    def wires(self, clear: str, root: bytes) -> list[str]:
        """Returns a clear filter as the wire shows it: inside a scope with tokens only tokens, of each generation.

        A filter wider than such a scope also yields the scope's token filter.
        """
        scopes = list(self.scopes.values())
        home = most_specific([scope.clear for scope in scopes], clear)
        inside = [s.generation for s in scopes if s.clear == home and s.generation is not None]
        found = [tokenise_filter(clear, token_key(root, generation)) for generation in inside] or [clear]
        found += [s.wire for s in scopes if covers(clear, s.clear) and (inside or s.generation is not None)]
        return list(dict.fromkeys(found))

    def grants(self, root: bytes) -> tuple[Grant, ...]:
        """Returns the policy's grants."""
        merged: dict[tuple[str, str, int, int], Right] = {}
        wires = {clear: self.wires(clear, root) for clear in {granted.filter for granted in self.granted}}
        for granted in self.granted:
            for wire in wires[granted.filter]:
                key = (granted.member, wire, granted.first_epoch, granted.last_epoch)
                merged[key] = merged.get(key, Right(0)) | granted.right
        return tuple(
            Grant(member, wire, rights, first, last) for (member, wire, first, last), rights in sorted(merged.items())
        )

    def granted_by_member(self) -> dict[str, list[GrantedRight]]:
        """Returns granted rights by member, for callers asking for each of thousands of members."""
        found: dict[str, list[GrantedRight]] = {}
        for granted in self.granted:
            found.setdefault(granted.member, []).append(granted)
        return found

    def number_of(self, wire: str) -> int:
        """Returns the number of the scope with this wire filter; assigns the next number if it has none."""
        return self.numbers.setdefault(wire, max(self.numbers.values(), default=0) + 1)

    def origin_of(self, known: KnownScope) -> int:
        """Returns the number whose streams a scope continues: the first of its clear filter, or 0 for its own."""
        own = self.number_of(known.wire)
        first = self.streams.setdefault(known.clear, own)
        return first if first < own else 0

    def raise_bumps(self, scopes: Iterable[Scope]) -> list[str]:
        """Outdates the keys of these scopes; returns the scopes' clear filters."""
        raised = [scope.filter for scope in scopes if scope.keyed]
        for wire in raised:
            self.bumps[wire] = self.bumps.get(wire, 0) + 1
        return sorted({self.scopes[wire].clear for wire in raised if wire in self.scopes})

    def clear_names(self, root: bytes) -> dict[str, str]:
        """Returns clear filters by wire filter, for scopes and rights."""
        clears = sorted({granted.filter for granted in self.granted})
        names = {wire: clear for clear in clears for wire in self.wires(clear, root)}
        return names | {scope.wire: scope.clear for scope in self.scopes.values()}

    def to_json(self) -> bytes:
        content = {
            "veilmq_owner": RECORD_FORMAT,
            "overlay": self.overlay,
            "generation": self.generation,
            "retiring": self.retiring,
            "scopes": [[s.wire, s.clear, s.generation] for s in self.scopes.values()],
            "granted": [
                [g.member, g.filter, int(g.right), g.first_epoch, g.last_epoch, dict(g.since)] for g in self.granted
            ],
            "bumps": self.bumps,
            "numbers": self.numbers,
            "streams": self.streams,
            "protections": self.protections,
            "document": self.document,
            "renewal": [self.valid_days, self.renew_before_days],
            "edges": self.edges,
        }
        return json.dumps(content, separators=(",", ":")).encode() + b"\n"

    @classmethod
    def from_json(cls, content: bytes) -> OwnerRecord:
        """Parses a record.

        Raises ValueError, KeyError or TypeError for an invalid one, TrustError for a newer format.
        """
        fields = json.loads(content)
        if int(fields["veilmq_owner"]) > RECORD_FORMAT:
            found = fields["veilmq_owner"]
            raise TrustError(f"is of format {found}, this program knows {RECORD_FORMAT}; upgrade veilmq")
        # Absent in older records: renewal, streams, protections.
        valid_days, renew_before_days = fields.get("renewal", [VALID_DAYS, None])
        scopes = [KnownScope(str(wire), str(clear), generation) for wire, clear, generation in fields["scopes"]]
        numbers = {str(wire): int(number) for wire, number in fields["numbers"].items()}
        known = {s.clear: numbers[s.wire] for s in sorted(scopes, key=lambda s: -numbers[s.wire])}
        return cls(
            overlay=str(fields["overlay"]),
            generation=int(fields["generation"]),
            retiring=None if fields["retiring"] is None else int(fields["retiring"]),
            scopes={scope.wire: scope for scope in scopes},
            granted=[GrantedRight(m, f, Right(right), first, last, since) for m, f, right, first, last, since in
                     fields["granted"]],
            bumps={str(wire): int(bump) for wire, bump in fields["bumps"].items()},
            numbers=numbers,
            streams={str(clear): int(number) for clear, number in fields.get("streams", known).items()},
            protections={str(wire): Protection(was) for wire, was in fields.get("protections", {}).items()},
            document=fields["document"],
            valid_days=int(valid_days),
            renew_before_days=None if renew_before_days is None else int(renew_before_days),
            edges=None if fields.get("edges") is None else [[int(a), int(b)] for a, b in fields["edges"]],
        )  # fmt: skip


def record_path(domain: TrustDomain, overlay: str) -> Path:
    """Returns the path of an owner's record of an overlay."""
    return domain.directory / RECORDS / f"{overlay}.json"


def keys_elsewhere(domain: TrustDomain, overlay: str) -> dict[bytes, str]:
    """Returns the members' keys in all other overlays of this owner, each with its overlay. Raises TrustError."""
    found = {}
    for path in sorted((domain.directory / RECORDS).glob("*.json")):
        if path != record_path(domain, overlay):
            record, newest = _read(path, domain, None)
            for member in newest.members.values():
                for certificate in member.certificates:
                    found[certificate.public_key] = record.overlay
    return found


def open_record(domain: TrustDomain, overlay: str, out: Path) -> tuple[OwnerRecord, Overlay | None]:
    """Returns the record of an overlay and the last signed version; an empty record if this owner never signed one.

    `out`: the present signed file. Raises TrustError if the file is of another owner or overlay, or newer than the
    record, or missing after a restore from a backup; an older file is ignored.
    """
    path = record_path(domain, overlay)
    present = _at(out, domain)
    if present is not None and present.policy.overlay != overlay:
        raise TrustError(f"{out}: exists and is overlay {present.policy.overlay}, not {overlay}; take another --out")
    if not path.exists():
        if present is not None:
            raise TrustError(f"{path}: is missing, but {out} was signed before; restore it from a backup")
        return OwnerRecord(overlay), None
    record, newest = _read(path, domain, present)
    if present is not None and present.policy.version > newest.policy.version:
        raise TrustError(
            f"{path}: remembers version {newest.policy.version}, but {out} is version {present.policy.version}; "
            "restore a newer backup of it"
        )
    if present is None and (path.parent / RESTORED).exists():
        raise TrustError(
            f"{path}: comes from a backup, and later versions may have been signed since; copy the overlay.json of a "
            f"member that runs to {out}, so that no version is signed twice"
        )
    return record, newest


def _read(path: Path, domain: TrustDomain, present: Overlay | None) -> tuple[OwnerRecord, Overlay]:
    """Returns a record and the version in it, with what `present` knows beside it. Raises TrustError."""
    try:
        record = OwnerRecord.from_json(read_private(path))
        document = record.document or {}
        if present is not None:  # maybe a member's copy, with endorsements of views and the organiser's changes
            there = present.to_document()
            document |= {"endorsements": document["endorsements"] + there["endorsements"]}
            document |= {"swaps": there["swaps"], "swap_endorsements": there["swap_endorsements"]}
        # Judged at time 0, so that expired certificates do not prevent their own replacement.
        newest = Overlay.from_document(document, 0, domain.owner.public_bytes)
    except PrivateFileError as error:
        raise TrustError(str(error)) from None
    except TrustError as error:
        raise TrustError(f"{path}: {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError, OverlayError):
        raise TrustError(f"{path}: is damaged; restore it from a backup") from None
    return record, newest


def open_record_of(domain: TrustDomain, out: Path) -> tuple[OwnerRecord, Overlay]:
    """Returns the record and the last signed version of the existing file `out`. Raises TrustError."""
    present = _at(out, domain)
    if present is None:
        raise TrustError(f"{out}: No such file; make it with `veilmq overlay sign`")
    record, newest = open_record(domain, present.policy.overlay, out)
    assert newest is not None
    return record, newest


@contextlib.contextmanager
def locked(domain: TrustDomain) -> Iterator[None]:
    """Locks the owner's records for a command: two commands would sign two overlays with a version.

    Raises TrustError.
    """
    path = domain.directory / RECORDS / ".lock"
    try:
        private_directory(path.parent)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except (OSError, PrivateFileError) as error:
        raise TrustError(f"{path}: cannot be made ({error}); correct that") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise TrustError(f"{domain.directory}: another veilmq signs with it now; try again when it has ended") from None
    finally:
        os.close(descriptor)


def save_record(domain: TrustDomain, record: OwnerRecord, overlay: Overlay) -> None:
    """Stores the record with a version before the version is published. Raises TrustError."""
    path = record_path(domain, record.overlay)
    stored = replace(record, document=overlay.to_document())
    try:
        private_directory(path.parent)
        write_private(path, stored.to_json(), replace=True)
        (path.parent / RESTORED).unlink(missing_ok=True)
    except PrivateFileError as error:
        raise TrustError(str(error)) from None


def _at(out: Path, domain: TrustDomain) -> Overlay | None:
    if not out.exists():
        return None
    try:
        return Overlay.from_document(read_document(out), 0, domain.owner.public_bytes)
    except OverlayError as error:
        raise TrustError(f"{out}: exists and is not this owner's overlay ({error}); take another --out") from None
