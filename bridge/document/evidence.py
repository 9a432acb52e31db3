"""Evidence: two signed statements of one author that contradict each other. Anybody can check it.

Source: docs/protocol.md §13. The lies:

    publications   two headers of one number under one data key, by one publisher
    overlays       two policies of one version of one overlay, by its owner
    swaps          two swaps of one number on top of one tree, by one organiser

An honest gateway never signs two such statements, whatever its clock, its restarts, backups and rotations do. An owner
that goes on from an old backup may, or that makes two overlays of one name: the verdict on two policies says so, and
calls nobody a liar. Two processes with one key may sign two statements of any kind: evidence speaks of a key. The
table `_READERS` names, for each lie, the words that have to be equal and the words that have to differ. A check needs
no network and no secret. Not here: finding two such statements (`bridge.wire.sealings`, `bridge.membership.adopting`),
files (`gateway.trust.evidence_file`).

No evidence is made of a share that contradicts its commitment, nor of a key server's answer: a share is not signed by
the replica that sent it, and an answer opens with the asker's secret alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from bridge.base import OperatorError
from bridge.document.policy import DOMAIN_POLICY, Policy
from bridge.document.swaps import SignedSwap
from keys.envelope import MessageHeader, Mode, verify_header
from keys.errors import KeysError
from keys.frames import of_base64, to_base64
from keys.identity import CARRIERS, Certificate, verify

FORMAT = 1
OWNER = "the owner"  # the author of documents; no member has a name of two words


UNLESS_TWO = "; no lie if the owner made two overlays of this name, or went on from an old backup"


class NotProvedError(OperatorError):
    """A file that is no evidence, or whose two statements an honest author may have signed: a line, cause and cure."""


class Lie(StrEnum):
    """The kinds of contradiction that evidence shows."""

    PUBLICATIONS = "publications"
    OVERLAYS = "overlays"
    SWAPS = "swaps"


@dataclass(frozen=True, slots=True)
class SignedStatement:
    """A statement: the signed frame, its 64-byte signature and, of a publication, the wire topic signed with it."""

    body: bytes
    signature: bytes
    topic: str = ""

    def to_document(self) -> dict[str, str]:
        document = {"body": to_base64(self.body), "signature": to_base64(self.signature)}
        return document | ({"topic": self.topic} if self.topic else {})

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> SignedStatement:
        """Reads a statement. Raises KeyError, TypeError, ValueError."""
        unknown = set(document) - {"body", "signature", "topic"}
        if unknown:
            raise ValueError(f"unknown field {sorted(unknown)[0]!r}")
        topic = document.get("topic", "")
        if not isinstance(topic, str):
            raise TypeError("topic")
        return cls(of_base64(document["body"]), of_base64(document["signature"]), topic)


@dataclass(frozen=True, slots=True)
class ProvenLie:
    """The outcome of a check: who signed both statements, and which contradiction they are.

    `author`: the name in the certificate, `owner` for the owner. `key`, `owner`: public keys, 32 bytes. `says`: a
    line.
    """

    lie: Lie
    author: str
    key: bytes
    owner: bytes
    says: str


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Two statements of one author. `owner`: the owner's public key, 32 bytes. `certificate`: the author's, as the
    owner signed it; empty where the owner is the author, and for swaps, which carry it.
    """

    lie: Lie
    owner: bytes
    first: SignedStatement
    second: SignedStatement
    certificate: bytes = b""

    def to_document(self) -> dict[str, Any]:
        """Returns the content of the file, for JSON."""
        return {
            "veilmq_evidence": FORMAT,
            "lie": self.lie.value,
            "owner": to_base64(self.owner),
            "certificate": to_base64(self.certificate),
            "first": self.first.to_document(),
            "second": self.second.to_document(),
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Contradiction:
        """Reads a file's content; checks nothing yet. Raises NotProvedError."""
        if document.get("veilmq_evidence") != FORMAT:
            raise NotProvedError("it is no evidence of a format that is known here; upgrade, or ask for the right file")
        try:
            return cls(
                Lie(document["lie"]),
                of_base64(document["owner"]),
                SignedStatement.from_document(document["first"]),
                SignedStatement.from_document(document["second"]),
                of_base64(document["certificate"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise NotProvedError(f"it is damaged: {error!r}; ask for the file again") from None

    def check_proof(self) -> ProvenLie:
        """Returns the contradiction that is proved. Raises NotProvedError if an honest author may have signed both
        statements.
        """
        read = _READERS[self.lie]
        try:
            first, second = read(self, self.first), read(self, self.second)
        except KeysError as error:
            raise NotProvedError(f"it proves nothing: {error}; ask for the file again") from None
        if first.key != second.key:
            raise NotProvedError("it proves nothing: two authors signed the two statements; nobody contradicts itself")
        if first.about != second.about:
            raise NotProvedError(f"it proves nothing: the {self.lie} are not of one {first.of}; both may be true")
        if first.content == second.content:
            raise NotProvedError("it proves nothing: both statements say the same; a repetition is no lie")
        says = (
            f"the key of {first.author} signed two different {self.lie} of one {first.of}: {first.told}; {second.told}"
        )
        return ProvenLie(self.lie, first.author, first.key, self.owner, says + first.unless)


# ---------------------------------------------------------------------------------------- what contradicts what


@dataclass(frozen=True, slots=True)
class _Said:
    """A verified statement. Two contradict each other if `key` and `about` are equal, and `content` differs."""

    author: str
    key: bytes
    of: str
    about: tuple[object, ...]
    content: bytes
    told: str
    unless: str = ""


def _publication(evidence: Contradiction, said: SignedStatement) -> _Said:
    """Reads a header. The key id has to be equal, for an honest gateway seals a number anew, with other bytes, under
    another data key: each key has 128 random bits, and no process but the one that drew it seals under it.
    """
    header, certificate = MessageHeader.decode(said.body), Certificate.decode(evidence.certificate)
    certificate.verify(evidence.owner, 0)
    if certificate.role in CARRIERS:
        raise NotProvedError(f"it proves nothing: {certificate.name} is a {certificate.role}, which publishes nothing")
    verify_header(header, said.body + said.signature, said.topic, certificate.public_key)
    if header.mode is Mode.PLAIN:
        raise NotProvedError(
            "it proves nothing: a plain publication has no data key, and its number may be sealed anew"
        )
    told = f"sealed at {header.time_ms} ms on {said.topic}, digest {header.digests[0].hex()[:16] or '-'}"
    about = header.key_id, header.sequence
    content = said.body + said.topic.encode()
    return _Said(certificate.name, certificate.public_key, "number under one data key", about, content, told)


def _overlay(evidence: Contradiction, said: SignedStatement) -> _Said:
    verify(evidence.owner, DOMAIN_POLICY, said.body, said.signature)
    policy = Policy.decode(said.body, said.signature)
    told = f"version {policy.version} of {policy.overlay!r} with contents {policy.contents.hex()[:16]}"
    about = policy.overlay, policy.version
    return _Said(OWNER, evidence.owner, "version", about, said.body, told, UNLESS_TWO)


def _swap(evidence: Contradiction, said: SignedStatement) -> _Said:
    """Reads a swap. The former tree has to be equal: its digest names the overlay, of which an organiser may serve
    two.
    """
    swap = SignedSwap.decode(said.body + said.signature)
    swap.verify(evidence.owner)
    told = f"number {swap.number} signed at {swap.since_ms} ms, link {swap.added} for {swap.removed}"
    about = swap.number, swap.former
    return _Said(swap.author, swap.certificate.public_key, "number", about, said.body, told)


_READERS: Mapping[Lie, Callable[[Contradiction, SignedStatement], _Said]] = {
    Lie.PUBLICATIONS: _publication,
    Lie.OVERLAYS: _overlay,
    Lie.SWAPS: _swap,
}


# ------------------------------------------------------------------------------------------------ its makers


def of_overlays(owner: bytes, first: Policy, second: Policy) -> Contradiction:
    """Returns the evidence of two signed policies."""
    one, other = (SignedStatement(each.signed_bytes(), each.signature) for each in (first, second))
    return Contradiction(Lie.OVERLAYS, owner, one, other)


def of_swaps(owner: bytes, first: SignedSwap, second: SignedSwap) -> Contradiction:
    """Returns the evidence of two signed swaps."""
    one, other = (SignedStatement(each.signed_bytes(), each.signature) for each in (first, second))
    return Contradiction(Lie.SWAPS, owner, one, other)
