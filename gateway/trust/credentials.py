"""Credentials of an entity that knows VeilMQ, or of a tracker: a directory, made by its trust domain.

    key.pem        its Ed25519 key, mode 0600
    entity.json    its certificate, the issuing authority, and the trusted discovery nodes
    topic.bin      the advertisement of its trace topic, if any (written by the entity itself)

An entity is no member of an overlay: it connects to a gateway like any MQTT client, and these files prove its
identity inside the messages. Not here: the messages (`bridge.tracking.entity`, `bridge.tracking.tracker`), TLS and
passwords of the connection.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from bridge.base import TopicError
from bridge.document import constrained
from bridge.traces import answers_to
from gateway.base import PrivateFileError, private_directory, write_private, write_public
from gateway.trust.domains import Card, TrustDomain, load_key, read_public
from gateway.trust.errors import TrustError
from keys.delegation import Advertisement
from keys.errors import KeysError
from keys.frames import of_base64, to_base64
from keys.identity import Certificate, Identity, Role

FORMAT = 1
LIFE_DAYS = 825
MAX_BYTES = 1 << 20  # of a file of credentials: stops a wrong path from being read


@dataclass(frozen=True, slots=True)
class Credentials:
    """The content of the directory. `nodes`: public keys of discovery nodes by name."""

    directory: Path
    identity: Identity = field(repr=False)
    certificate: Certificate
    authority: bytes
    nodes: dict[str, bytes]

    @property
    def name(self) -> str:
        return self.certificate.name

    @classmethod
    def issue(
        cls, domain: TrustDomain, name: str, nodes: Iterable[Card], out: Path, now: float, days: int = LIFE_DAYS
    ) -> Credentials:
        """Makes a directory with a new key, certified by the domain.

        `nodes`: cards of gateways that are discovery nodes. Raises TrustError for an invalid name, or when `out`
        holds an identity already.
        """
        if (out / "key.pem").exists():
            raise TrustError(f"{out}: holds an identity already; take another --out")
        if not _fits_a_topic(name):
            raise TrustError(
                f"name {name!r} cannot stand in constrained topics; take one without / + # that is no rule"
            )
        identity = Identity.generate(secrets.token_bytes(32))
        try:
            certificate = Certificate.issue(
                domain.ca, name=name, role=Role.ENTITY, public_key=identity.public_bytes,
                agreement_key=identity.agreement_bytes, domain=domain.name, region=0,
                not_after_ms=int((now + days * 86_400) * 1000),
            )  # fmt: skip
            private_directory(out)
            content = {
                "veilmq_entity": FORMAT,
                "certificate": to_base64(certificate.encode()),
                "authority": to_base64(domain.ca.public_bytes),
                "nodes": {card.name: to_base64(card.public_key) for card in nodes},
            }
            write_public(out / "entity.json", json.dumps(content, indent=2).encode() + b"\n")
            write_private(out / "key.pem", identity.private_pem())  # last: its presence means that all files are there
        except (KeysError, PrivateFileError) as error:
            raise TrustError(str(error)) from None
        return cls.load(out, now)

    @classmethod
    def load(cls, directory: Path, now: float) -> Credentials:
        """Reads the directory. Raises TrustError when a file is missing, readable by others, damaged or expired."""
        path = directory / "entity.json"
        if not path.exists():
            raise TrustError(f"{directory}: holds no entity; make one with `veilmq trust issue --role entity`")
        identity = load_key(directory / "key.pem")
        try:
            content = json.loads(read_public(path, MAX_BYTES))
            if content["veilmq_entity"] != FORMAT:
                raise ValueError("unknown format")
            certificate = Certificate.decode(of_base64(content["certificate"]))
            authority = of_base64(content["authority"])
            nodes = {str(name): of_base64(key) for name, key in content["nodes"].items()}
        except (KeysError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise TrustError(f"{path}: is damaged ({error}); issue the entity anew") from None
        if certificate.public_key != identity.public_bytes:
            raise TrustError(f"{directory}: key.pem and entity.json are of different keys; issue the entity anew")
        try:
            certificate.verify(authority, int(now * 1000))
        except KeysError as error:
            raise TrustError(f"{path}: {error}; issue the entity anew") from None
        if not nodes:
            raise TrustError(f"{path}: names no discovery node; issue the entity with --node CARD")
        return cls(directory, identity, certificate, authority, nodes)

    # ---------------------------------------------------------------------------------------- the trace topic

    def advertisement(self) -> Advertisement | None:
        """Returns the stored advertisement; None if it is missing or damaged: the entity then asks for a new topic."""
        try:
            return Advertisement.decode((self.directory / "topic.bin").read_bytes())
        except (OSError, KeysError):
            return None

    def keep_advertisement(self, advertisement: Advertisement) -> None:
        """Stores the advertisement for the next start.

        After a failed write the next start asks for a new trace topic.
        """
        try:
            write_private(self.directory / "topic.bin", advertisement.encode(), replace=True)
        except PrivateFileError:
            return


def _fits_a_topic(name: str) -> bool:
    """Returns True if topics constrained to this entity parse so.

    Names such as `Broker` and `PublishOnly` have other meanings there.
    """
    try:
        parsed = constrained.parse(answers_to(name))
    except TopicError:
        return False
    return parsed is not None and parsed.constrainer == name and name != constrained.BROKER
