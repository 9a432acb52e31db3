"""A key server: who may have which key of which epoch, and its archive of ended epochs (E2, docs/protocol.md §6.5).

`KeyServer.answer` turns a single signed request into a single signed answer; `walk` moves the material forward, seals
the ended epoch's outputs to the readers of that epoch, and erases the rest. The driver stores the effects in their
order: an epoch's archive is durable before the erasure of the material.

A replayed request is harmless: only the named server answers, only while the request is fresh, and the answer is
sealed to the asker. The replay costs the asker one of its requests, but only asker and server have seen the request.

Not here: how answers are believed (`fetching`), the key material (`material`), the overlay with its rights
(`bridge.membership.key_service` implements `Directory`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from keys.archive import find_box, make_archive
from keys.epochs import KEY_BYTES, Calendar, KeyName
from keys.errors import (
    BadFrame,
    BadSignature,
    Expired,
    KeyGone,
    NotAuthorised,
    NotFresh,
    NotReady,
    TooEarly,
    TooOften,
    UnknownKey,
)
from keys.identity import Certificate, Identity
from keys.material import Generation, Material, chain, deal
from keys.requests import (
    ANSWER_BYTES_MAX,
    KeyAnswer,
    KeyRequest,
    Outputs,
    Refusal,
    answer_info,
    digest_of,
    encode_outputs,
)
from keys.sealedbox import AGREEMENT_KEY_BYTES, seal_box

__all__ = ["Directory", "KeepArchive", "KeepMaterial", "KeyServer", "Material", "chain", "deal"]

SESSION_MAX_S = 7 * 86_400  # how long somebody may be away and still read what it might have read
REQUEST_AGE_S = 60  # how long a request may travel, beyond the skew of clocks
REQUESTS_BURST = 64  # 16 fetch the 1,024 scopes of one member
REQUEST_EVERY_S = 2.0
ARCHIVE_EPOCHS_MAX = 1024  # of short epochs fewer than SESSION_MAX_S are kept
ARCHIVE_BYTES_MAX = 64 << 20  # of ended epochs that a key server keeps
ARCHIVED_BUMPS = 4  # of a scope in an archive, beside the present one, however large that makes it
ARCHIVED_BYTES = 1 << 20  # of an archive that may be filled with more of the bumps that its epoch may have seen
ARCHIVES_A_WALK = 16  # stops a server that was down from sealing for minutes before it answers again


class Directory(Protocol):
    """The questions that servers and readers ask of the owner's signed overlay. Scopes are wire filters, only those
    with
    keys.
    """

    @property
    def version(self) -> int:
        """The version of the policy."""

    @property
    def calendar(self) -> Calendar: ...

    @property
    def servers(self) -> Sequence[str]:
        """Names of the key servers, in the order that numbers them."""

    @property
    def faults(self) -> int:
        """f: the number of key servers that may lie."""

    @property
    def chain(self) -> bool:
        """True if all servers have one root, instead of a threshold."""

    def certificate(self, party: bytes) -> Certificate | None:
        """Returns a member's present or former certificate by its 16-byte party id; the caller checks its end."""

    def keyed_scopes(self) -> Iterable[str]:
        """Returns every scope that has epoch keys."""

    def bump(self, scope: str) -> int | None:
        """Returns the present bump; None for a scope without keys."""

    def may_read(self, name: str, scope: str, epoch: int) -> bool:
        """Returns True if the member may read the whole scope in that epoch."""

    def may_publish_in(self, name: str, scope: str, epoch: int) -> bool:
        """Returns True if the member may publish on some topic of the scope in that epoch."""

    def readers(self, epoch: int) -> Iterable[tuple[Certificate, Sequence[str]]]:
        """Returns each reader of that epoch with its scopes; a member in rotation comes with either certificate."""


@dataclass(frozen=True, slots=True)
class KeepMaterial:
    """An effect: store this in place of the former material, which is overwritten."""

    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeepArchive:
    """An effect: store the archive of an ended epoch; `data` None removes it."""

    epoch: int
    data: bytes | None = field(repr=False)


class _Requests:
    """A token bucket for a member's requests."""

    __slots__ = ("_at", "_left")

    def __init__(self, now: float) -> None:
        self._at, self._left = now, float(REQUESTS_BURST)

    def spend_request(self, now: float) -> None:
        self._left = min(REQUESTS_BURST, self._left + max(0.0, now - self._at) / REQUEST_EVERY_S)
        self._at = now
        if self._left < 1:
            raise TooOften(f"more than {REQUESTS_BURST} requests for keys at once")
        self._left -= 1


class KeyServer:
    """A key server's state machine.

    `random(n)`: n random secret bytes. `archive`: by epoch, from earlier `KeepArchive` effects. `issued`, `refused`:
    keys
    given out and names refused, for the figures.
    """

    def __init__(
        self,
        identity: Identity,
        name: str,
        material: Material,
        directory: Directory,
        random: Callable[[int], bytes],
        archive: Mapping[int, bytes],
    ) -> None:
        self._identity = identity
        self._name = name
        self._material = material
        self._directory = directory
        self._random = random
        self._archive = dict(archive)
        self._walked: dict[int, Generation] = {}
        self._requests: dict[bytes, _Requests] = {}  # of verified members only, hence no more than there are
        self.issued = 0
        self.refused = 0

    # ------------------------------------------------------------------------------------------- answers

    def answer(self, data: bytes, now: float) -> bytes:
        """Returns the answer to a request, with the names that it refuses inside.

        Raises `BadFrame`, `NotAuthorised` (a stranger), `BadSignature`, `Expired` (its certificate), `NotFresh`,
        `TooOften`: then nothing is sent back.
        """
        request = KeyRequest.decode(data)
        certificate = self._asker(request, now)
        live: list[Outputs] = []
        archived: dict[int, bytes] = {}
        refused: list[tuple[int, Refusal]] = []
        # by epoch, so that what is walked to one is on the way to the next, however many are asked for
        for index, name in sorted(enumerate(request.names), key=lambda asked: asked[1].epoch):
            try:
                self.check_request(certificate.name, name, now)
                if name.epoch >= self._material.epoch:
                    live.append(self._outputs(name))
                else:
                    archived[name.epoch] = archived.get(name.epoch) or self._archived(name.epoch, request.asker)
            except (NotAuthorised, TooEarly, KeyGone, UnknownKey, NotReady) as error:
                refused.append((index, Refusal.from_error(error)))
        self.issued += len(request.names) - len(refused)
        self.refused += len(refused)
        digest = digest_of(data)
        plaintext, info = encode_outputs(live), answer_info(self._name, digest)
        box = seal_box(certificate.agreement_key, plaintext, info, self._random(AGREEMENT_KEY_BYTES))
        boxes = _fitting(archived, ANSWER_BYTES_MAX // 2)
        version = self._directory.version
        answer = KeyAnswer(self._identity.party_id, digest, version, tuple(sorted(refused)), box, boxes)
        return answer.signed_by(self._identity).encode()

    def check_request(self, name: str, key: KeyName, now: float) -> None:
        """Raises unless that member may have that key now.

        Raises `UnknownKey` (no such scope, or a bump our policy does not know yet), `TooEarly`, `NotAuthorised`.
        """
        directory, calendar = self._directory, self._directory.calendar
        bump = directory.bump(key.scope)
        if bump is None or key.bump > bump:
            raise UnknownKey(f"scope {key.scope!r} has no keys of bump {key.bump} under version {directory.version}")
        if key.epoch > calendar.last(now) or now < calendar.fetch_from_s(key.epoch) - calendar.skew_s:
            raise TooEarly(f"keys of epoch {key.epoch} are not issued yet")
        if directory.may_read(name, key.scope, key.epoch):
            return
        # a publisher needs what it seals under from now on, and nothing that others sealed before
        sealing = key.bump == bump and key.epoch >= calendar.epoch_at(now - calendar.skew_s)
        if not (sealing and directory.may_publish_in(name, key.scope, key.epoch)):
            raise NotAuthorised(f"{name} has no right to scope {key.scope!r} in epoch {key.epoch}")

    def _asker(self, request: KeyRequest, now: float) -> Certificate:
        certificate = self._directory.certificate(request.asker)
        if certificate is None:
            raise NotAuthorised("a request for keys by a stranger")
        if request.server != self._name:
            raise BadSignature("a request for keys that names another server")
        request.verify(certificate)
        if now * 1000 > certificate.not_after_ms:
            raise Expired(f"the certificate of {certificate.name} has ended")
        if abs(now - request.time_ms / 1000) > REQUEST_AGE_S + self._directory.calendar.skew_s:
            raise NotFresh(f"a request of {certificate.name} is old, or its clock and ours differ too much")
        self._requests.setdefault(request.asker, _Requests(now)).spend_request(now)
        return certificate

    def _outputs(self, name: KeyName) -> Outputs:
        generation = self._walked.get(name.epoch)
        if generation is None:
            start = self._generation(name.epoch)
            nearer = [g for e, g in self._walked.items() if g.deal == start.deal and e < name.epoch]
            start = max(nearer, key=lambda g: g.epoch, default=start)
            generation = self._walked[name.epoch] = start.at_epoch(name.epoch)
            if len(self._walked) > ARCHIVES_A_WALK:
                del self._walked[next(iter(self._walked))]
        return Outputs(name, generation.deal, generation.outputs(name))

    def _generation(self, epoch: int) -> Generation:
        generation, directory = self._material.generation_of(epoch), self._directory
        place = (0, 0, 0)
        if not directory.chain and self._name in directory.servers:
            place = (len(directory.servers), directory.faults, list(directory.servers).index(self._name) + 1)
        if self._name not in directory.servers or (generation.servers, generation.faults, generation.number) != place:
            raise NotReady("this server's key material is for another list of key servers; rekey")
        return generation

    def _archived(self, epoch: int, party: bytes) -> bytes:
        try:
            box = find_box(self._archive.get(epoch, b""), party)
        except BadFrame:
            box = None
        if box is None:
            raise KeyGone(f"nothing is kept of epoch {epoch} for this asker")
        return box

    # -------------------------------------------------------------------------------------------- epochs

    @property
    def next_deadline(self) -> float:
        """The time of the next `walk`; infinity without epochs."""
        calendar = self._directory.calendar
        dropped = (calendar.end_s(epoch) + SESSION_MAX_S for epoch in self._archive)
        return min(self._dies_s(self._material.epoch), min(dropped, default=float("inf")))

    def walk(self, now: float) -> list[KeepArchive | KeepMaterial]:
        """Archives and erases ended epochs; returns effects to be stored in this order.

        After a long absence several calls are needed: `next_deadline` says so.
        """
        before, oldest = self._material, self._oldest(now)
        since = max(self._directory.calendar.epoch_at(now - SESSION_MAX_S), oldest - ARCHIVE_EPOCHS_MAX)
        effects: list[KeepArchive | KeepMaterial] = []
        for _ in range(ARCHIVES_A_WALK):
            epoch = self._material.epoch
            if epoch >= oldest:
                break
            if epoch < since:  # too long ago for anybody
                self._material = self._material.walked(min(since, oldest))
                if self._material.epoch < since:
                    break
                continue
            effects += self._archive_of(epoch)
            self._material = self._material.walked(epoch + 1)
        if self._material is not before:
            self._walked.clear()
            effects.append(KeepMaterial(self._material.encode()))
        return effects + self._drop_archives(now)

    def adopt_directory(self, directory: Directory) -> None:
        """Adopts another version of the policy."""
        self._directory = directory
        self._requests = {p: left for p, left in self._requests.items() if directory.certificate(p) is not None}

    def rotate_identity(self, identity: Identity) -> None:
        """Adopts a new key pair, which the overlay lists."""
        self._identity = identity

    def take_in(self, material: Material) -> list[KeepMaterial]:
        """Takes the owner's newly dealt material, which counts from its first epoch on. Raises `OurFault` if it is
        older
        than ours.
        """
        self._material = self._material.followed_by(material)
        self._walked.clear()
        return [KeepMaterial(self._material.encode())]

    def _oldest(self, now: float) -> int:
        """Returns the oldest epoch whose keys are still derived, `history_epochs` before the live ones; it may be below
        0.
        """
        calendar = self._directory.calendar
        oldest = calendar.epoch_at(now - calendar.grace_s - calendar.skew_s) - calendar.history_epochs
        return oldest + (now >= self._dies_s(oldest)) - (now < self._dies_s(oldest - 1))  # rounding: `next_deadline`

    def _dies_s(self, epoch: int) -> float:
        calendar = self._directory.calendar
        return calendar.end_s(epoch + calendar.history_epochs) + calendar.grace_s + calendar.skew_s

    def _archive_of(self, epoch: int) -> list[KeepArchive]:
        directory = self._directory
        try:
            generation = self._generation(epoch).at_epoch(epoch)
        except (NotReady, KeyGone):
            return []
        made: dict[str, list[Outputs]] = {}
        readers = list(directory.readers(epoch))
        a_key = KEY_BYTES * (2 + len(generation.subkeys))
        a_bump = sum(a_key + len(scope) for _, scopes in readers for scope in scopes)
        before = max(ARCHIVED_BUMPS, ARCHIVED_BYTES // max(1, a_bump))
        for scope in directory.keyed_scopes():
            bump = directory.bump(scope) or 0
            names = [KeyName(scope, epoch, b) for b in range(max(0, bump - before), bump + 1)]
            made[scope] = [Outputs(name, generation.deal, generation.outputs(name)) for name in names]
        given = [(certificate, [o for scope in scopes for o in made.get(scope, ())]) for certificate, scopes in readers]
        self._archive[epoch] = data = make_archive(self._name, epoch, given, self._random)
        return [KeepArchive(epoch, data)]

    def _drop_archives(self, now: float) -> list[KeepArchive]:
        end_s, dropped, size = self._directory.calendar.end_s, [], sum(map(len, self._archive.values()))
        for epoch in sorted(self._archive):
            full = size > ARCHIVE_BYTES_MAX or len(self._archive) > ARCHIVE_EPOCHS_MAX
            if not full and now < end_s(epoch) + SESSION_MAX_S:
                break
            size -= len(self._archive.pop(epoch))
            dropped.append(KeepArchive(epoch, None))
        return dropped


def _fitting(boxes: Mapping[int, bytes], size_max: int) -> tuple[tuple[int, bytes], ...]:
    """As many boxes as an answer may hold, oldest first as they come; the asker asks for the others again."""
    fitting, size = [], 0
    for epoch, box in boxes.items():
        size += len(box)
        if size <= size_max:
            fitting.append((epoch, box))
    return tuple(fitting)
