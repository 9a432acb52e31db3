"""Trust domains and identities as files: authorities, keys and cards, with private files checked.

A trust domain (`veilmq trust init DIR`) holds
    ca.pem, ca.key        its certificate authority (TLS)
    owner.key             the key that signs an overlay, if this domain owns one
    root.key              32 secret bytes: the owner derives from it the keys that hide names and, where there is no
                          key service, those of the scopes
    overlays/NAME.json    the owner's record of an overlay (`record`)
An identity (`veilmq trust issue`) is the directory that one member runs from
    key.pem, cert.pem     its Ed25519 key and its TLS certificate
    ca.pem                the authority that issued it
    card.json             its public part, signed by itself, for the overlay's owner
A key may stand in a token (`tokens`): owner.key or ca.key is then the line `key: pkcs11:...` alone, and key.pem has
that line before the working key, a key of this file for TLS and for what is derived.
Private files have mode 0600 and are refused with any other; no private key leaves its directory, except the key of an
identity that the domain issues ready-made. Not here: the overlay file (`overlay_file`, `owner`), new keys for an
identity (`rotation`).
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import ssl
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from gateway.base import PrivateFileError, private_directory, read_private, sync_directory, write_private, write_public
from gateway.trust.errors import TrustError
from gateway.trust.tokens import MAX_URI_CHARS, TokenUri, token_key
from keys.errors import KeysError
from keys.frames import of_base64, to_base64
from keys.identity import Identity, Role, make_ca, make_leaf, public_key_of, verify

CARD_DOMAIN = "veilmq/1 card"
SUCCESSION_DOMAIN = "veilmq/1 card after rotation"
CARD_FORMAT = 2
CARD_BEGIN, CARD_END = b"-----BEGIN VEILMQ CARD-----", b"-----END VEILMQ CARD-----"
LEAF_DAYS = 825
MAX_CARD_BYTES = 64 << 10
"""Stops an endless file in the place of a card from being read."""
ISSUABLE = (Role.REPLICA, Role.GATEWAY, Role.INGEST, Role.KEY_SERVER)
RESTORED = ".restored"
"""File that a restore from a backup leaves: among an owner's records, since versions may have been signed since; in an
identity's directory with the public key that came back, since an organiser may have given numbers since.
"""
PREVIOUS = "previous"
TAKING = "taking"
KEY_LINE = b"key: "
IDENTITY_FILES = ("key.pem", "cert.pem", "ca.pem", "card.json")


@dataclass(frozen=True, slots=True)
class Card:
    """The public part of an identity. `ca`: DER of the authority of its trust domain.

    `former`: after a rotation the previous public key, which also signed this card (`former_signature`).
    """

    name: str
    role: Role
    domain: str
    public_key: bytes
    agreement_key: bytes
    ca: bytes = field(repr=False)
    hosts: tuple[str, ...] = ()
    former: bytes = b""
    signature: bytes = field(default=b"", repr=False)
    former_signature: bytes = field(default=b"", repr=False)

    def _fields(self) -> dict[str, Any]:
        return {
            "veilmq_card": CARD_FORMAT,
            "name": self.name,
            "role": self.role.value,
            "domain": self.domain,
            "public_key": to_base64(self.public_key),
            "agreement_key": to_base64(self.agreement_key),
            "ca": to_base64(self.ca),
            "hosts": list(self.hosts),
            "former": to_base64(self.former),
        }

    def signed_bytes(self) -> bytes:
        """Returns all fields in canonical JSON, signed by the holder as proof that it has the key."""
        return json.dumps(self._fields(), sort_keys=True, separators=(",", ":")).encode()

    def signed(self, identity: Identity, former: Identity | None) -> Card:
        """Returns the card signed by its holder and, after a rotation, by the holder's previous key."""
        card = replace(self, former=former.public_bytes if former else b"")
        content = card.signed_bytes()
        return replace(
            card,
            signature=identity.sign(CARD_DOMAIN, content),
            former_signature=former.sign(SUCCESSION_DOMAIN, content) if former else b"",
        )

    def to_json(self) -> bytes:
        signatures = {"signature": to_base64(self.signature), "former_signature": to_base64(self.former_signature)}
        return json.dumps({**self._fields(), **signatures}, indent=2).encode() + b"\n"

    @classmethod
    def load(cls, path: Path) -> Card:
        """Reads a card and verifies the signatures of its holder and of the previous key, if it names one.

        Raises TrustError.
        """
        content = read_public(path, MAX_CARD_BYTES)
        try:
            if CARD_BEGIN in content:  # as `export` writes it, behind certificates
                content = base64.b64decode(content.split(CARD_BEGIN)[1].split(CARD_END)[0])
            fields = json.loads(content)
            if int(fields["veilmq_card"]) > CARD_FORMAT:
                raise TrustError(f"{path}: is a card of format {fields['veilmq_card']}; upgrade veilmq")
            if fields["veilmq_card"] != CARD_FORMAT:
                raise ValueError("unknown format")
            card = cls(
                name=str(fields["name"]),
                role=Role(fields["role"]),
                domain=str(fields["domain"]),
                public_key=of_base64(fields["public_key"]),
                agreement_key=of_base64(fields["agreement_key"]),
                ca=of_base64(fields["ca"]),
                hosts=tuple(str(host) for host in fields["hosts"]),
                former=of_base64(fields["former"]),
                signature=of_base64(fields["signature"]),
                former_signature=of_base64(fields["former_signature"]),
            )
            verify(card.public_key, CARD_DOMAIN, card.signed_bytes(), card.signature)
            if card.former:
                verify(card.former, SUCCESSION_DOMAIN, card.signed_bytes(), card.former_signature)
        except (KeysError, ValueError, KeyError, TypeError) as error:
            raise TrustError(f"{path}: is not an unaltered card ({error}); ask its holder for card.json") from None
        return card


@dataclass(frozen=True, slots=True)
class TrustDomain:
    """The files of `veilmq trust init`. `root`: 32 secret bytes."""

    name: str
    directory: Path
    ca_pem: bytes = field(repr=False)
    ca: Identity = field(repr=False)
    owner: Identity = field(repr=False)
    root: bytes = field(repr=False)

    @classmethod
    def create(cls, directory: Path, name: str, now: float, owner_key: str = "", ca_key: str = "") -> TrustDomain:
        """Makes a new trust domain. `owner_key`, `ca_key`: URIs of keys in a token; empty for new keys in files.

        Raises TrustError if the directory has one already, or the token does not answer.
        """
        if (directory / "ca.key").exists():
            raise TrustError(f"{directory}: holds a trust domain already; take another directory")
        if owner_key and ca_key and token_key(owner_key).public_bytes == token_key(ca_key).public_bytes:
            raise TrustError("owner and authority have one key; give each a key of its own")
        authority, ca = _signing_key(ca_key)
        owner = _signing_key(owner_key)[1]
        try:
            ca_pem = make_ca(authority, name, now)
            private_directory(directory)
            write_private(directory / "root.key", secrets.token_bytes(32))
            write_private(directory / "owner.key", owner)
            write_public(directory / "ca.pem", ca_pem)
            write_public(directory / "domain.json", json.dumps({"veilmq_domain": 1, "name": name}).encode() + b"\n")
            write_private(directory / "ca.key", ca)  # last: its presence means that all files are there
        except (KeysError, PrivateFileError) as error:
            raise TrustError(str(error)) from None
        return cls.load(directory)

    @classmethod
    def load(cls, directory: Path) -> TrustDomain:
        """Reads a trust domain. Raises TrustError when a file is missing, readable by others, or invalid."""
        if not (directory / "ca.key").exists():
            raise TrustError(f"{directory}: holds no trust domain; make one with `veilmq trust init {directory}`")
        try:
            root = read_private(directory / "root.key")
        except PrivateFileError as error:
            raise TrustError(str(error)) from None
        if len(root) != 32:
            raise TrustError(f"{directory / 'root.key'}: is damaged; restore it from a backup")
        try:
            name = str(json.loads(read_public(directory / "domain.json", MAX_CARD_BYTES))["name"])
        except (ValueError, KeyError, TypeError):
            raise TrustError(f"{directory / 'domain.json'}: is damaged; restore it from a backup") from None
        return cls(
            name=name,
            directory=directory,
            ca_pem=read_public(directory / "ca.pem", MAX_CARD_BYTES),
            ca=load_key(directory / "ca.key"),
            owner=load_key(directory / "owner.key"),
            root=root,
        )

    def issue(
        self,
        name: str,
        role: Role,
        hosts: tuple[str, ...],
        out: Path,
        now: float,
        former: Identity | None = None,
        key: str = "",
    ) -> LocalIdentity:
        """Makes an identity directory: a new key, a TLS certificate for `hosts`, and a card.

        `former`: the identity to be replaced. `key`: URI of a key in a token.

        Raises TrustError for an invalid name or host, or when `out` holds an
        identity already.
        """
        if role not in ISSUABLE:
            raise TrustError(f"role {role} is not issued; take one of {', '.join(ISSUABLE)}")
        if (out / "key.pem").exists():
            raise TrustError(f"{out}: holds an identity already; take another --out")
        if key and former is not None and token_key(key).public_bytes == former.public_bytes:
            raise TrustError(f"{TokenUri.parse(key)} is the present key; make another one in the token")
        identity, content = _new_key(key)
        try:
            leaf = make_leaf(self.ca, self.ca_pem, identity, name, self.name, hosts, now, LEAF_DAYS)
            ca_der = ssl.PEM_cert_to_DER_cert(self.ca_pem.decode("ascii"))
            card = Card(name, role, self.name, identity.public_bytes, identity.hybrid_bytes, ca_der, hosts)
            private_directory(out)
            write_public(out / "ca.pem", self.ca_pem)
            write_public(out / "cert.pem", leaf)
            write_public(out / "card.json", card.signed(identity, former).to_json())
            write_private(out / "key.pem", content)  # last: its presence means that all files are there
        except (KeysError, PrivateFileError) as error:
            raise TrustError(str(error)) from None
        return LocalIdentity.load(out)

    def check_issued(self, local: LocalIdentity) -> None:
        """Raises TrustError for an identity of another domain."""
        authority = ssl.PEM_cert_to_DER_cert(self.ca_pem.decode("ascii"))
        if (local.card.domain, local.card.ca) != (self.name, authority):
            raise TrustError(
                f"{local.directory}: was issued by {local.card.domain}, not by {self.directory}; name that domain"
            )


@dataclass(frozen=True, slots=True)
class LocalIdentity:
    """The identity directory that this process runs from."""

    directory: Path
    card: Card
    identity: Identity = field(repr=False)

    @property
    def name(self) -> str:
        return self.card.name

    @property
    def role(self) -> Role:
        return self.card.role

    @property
    def cert(self) -> Path:
        return self.directory / "cert.pem"

    @property
    def key_path(self) -> Path:
        return self.directory / "key.pem"

    @classmethod
    def load(cls, directory: Path) -> LocalIdentity:
        """Reads an identity, after finishing a rotation a crash interrupted.

        Raises TrustError when a file is missing, readable by others, or does not fit the other files.
        """
        finish_taking(directory)
        if not (directory / "key.pem").exists():
            raise TrustError(f"{directory}: holds no identity; make one with `veilmq trust issue`")
        identity = load_key(directory / "key.pem")
        card = Card.load(directory / "card.json")
        try:
            shown = public_key_of(
                ssl.PEM_cert_to_DER_cert(read_public(directory / "cert.pem", MAX_CARD_BYTES).decode())
            )
        except (KeysError, ValueError) as error:
            raise TrustError(f"{directory / 'cert.pem'}: is not a certificate ({error}); issue it anew") from None
        boxes = (identity.hybrid_bytes, identity.agreement_bytes)
        if not shown == card.public_key == identity.public_bytes or card.agreement_key not in boxes:
            raise TrustError(f"{directory}: key.pem, cert.pem and card.json are of different keys; issue them anew")
        return cls(directory, card, identity)


def finish_taking(directory: Path) -> None:
    """Moves the files of `taking/` to their place, and the replaced files to `previous/`. Raises TrustError.

    Files move singly and each step may be repeated, so that after a crash at any moment the next start continues.
    """
    taking, previous = directory / TAKING, directory / PREVIOUS
    if not taking.is_dir():
        return
    try:
        private_directory(previous)
        for name in IDENTITY_FILES:
            if not (taking / name).exists():
                continue
            with contextlib.suppress(FileNotFoundError):
                os.replace(directory / name, previous / name)  # noqa: PTH105  reads as what it is: one atomic step
            os.replace(taking / name, directory / name)  # noqa: PTH105
        sync_directory(previous)
        sync_directory(directory)
        taking.rmdir()
    except (OSError, PrivateFileError) as error:
        raise TrustError(f"{directory}: the new key cannot be moved to its place ({error}); correct that") from None


def _new_key(uri: str) -> tuple[Identity, bytes]:
    """Returns a new identity and its key file; with a URI a working key beside the key in the token.

    Raises TrustError.
    """
    private = Ed25519PrivateKey.generate()
    if not uri:
        identity = Identity(private)
        return identity, identity.private_pem()
    return Identity(private, token_key(uri)), _key_line(uri) + Identity(private).private_pem()


def _signing_key(uri: str) -> tuple[Identity, bytes]:
    """Returns a key that only signs, with its file: a new one, or the line of the key in a token. Raises TrustError."""
    return (Identity(None, token_key(uri)), _key_line(uri)) if uri else _new_key("")


def _key_line(uri: str) -> bytes:
    """Returns the line that names a key in a token, once the key was found. Raises TrustError."""
    token_key(uri)
    return KEY_LINE + uri.encode() + b"\n"


def load_key(path: Path) -> Identity:
    """Reads an Ed25519 private key in PEM, and opens the key in a token that a line before it names. Raises TrustError;
    the message never holds key material.
    """
    uri, private = _key_file(path)
    if not uri and private is None:
        raise TrustError(f"{path}: is not an unencrypted private key in PEM; restore it or issue it anew")
    try:
        return Identity(private, token_key(uri) if uri else None)
    except TrustError as error:
        raise TrustError(f"{path}: {error}") from None


def load_working_key(path: Path) -> Identity:
    """Reads a key as `load_key`, but leaves a token alone: opens boxes and derives keys. Raises TrustError."""
    private = _key_file(path)[1]
    if private is None:
        raise TrustError(f"{path}: is not an unencrypted private key in PEM; restore it or issue it anew")
    return Identity(private)


def _key_file(path: Path) -> tuple[str, Ed25519PrivateKey | None]:
    """Returns the URI of a key file's first line, or nothing, and the key in PEM after it. Raises TrustError."""
    try:
        content = read_private(path)
    except PrivateFileError as error:
        raise TrustError(str(error)) from None
    uri = ""
    if content.startswith(KEY_LINE):
        line, _, content = content.partition(b"\n")
        uri = line.removeprefix(KEY_LINE).strip()[: MAX_URI_CHARS + 1].decode("utf-8", "replace")
        if not content.strip():
            return uri, None
    try:
        private = load_pem_private_key(content, None)
    except (ValueError, TypeError):
        return uri, None
    if not isinstance(private, Ed25519PrivateKey):
        raise TrustError(f"{path}: is not an Ed25519 key; issue it anew with `veilmq trust issue`")
    return uri, private


def read_public(path: Path, max_bytes: int) -> bytes:
    """Reads a file that is no secret. Raises TrustError when it is absent or larger than `max_bytes`."""
    try:
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except OSError as error:
        raise TrustError(f"{path}: {error.strerror or error}") from None
    if len(content) > max_bytes:
        raise TrustError(f"{path}: larger than {max_bytes} bytes; is this the right file?")
    return content


def describe(directory: Path) -> dict[str, Any]:
    """Returns the output of `veilmq trust show` for a trust domain or an identity directory, without secrets."""
    if (directory / "ca.key").exists():
        domain = TrustDomain.load(directory)
        return {
            "kind": "trust domain",
            "domain": domain.name,
            "authority": domain.ca.public_bytes.hex(),
            "owner": domain.owner.public_bytes.hex(),
        }
    local = LocalIdentity.load(directory)
    return {
        "kind": "identity",
        "name": local.name,
        "role": local.role.value,
        "domain": local.card.domain,
        "party_id": local.identity.party_id.hex(),
        "public_key": local.identity.public_bytes.hex(),
        "hosts": list(local.card.hosts),
    }


def export(directory: Path, out: Path) -> None:
    """Writes the public part in PEM, for other tools. Raises TrustError.

    A trust domain: its authority and the owner's public key. An identity: certificate, authority and card, which
    `Card.load` finds there too.
    """
    if (directory / "ca.key").exists():
        domain = TrustDomain.load(directory)
        owner = Ed25519PublicKey.from_public_bytes(domain.owner.public_bytes)
        content = domain.ca_pem + owner.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    else:
        local = LocalIdentity.load(directory)
        chain = [read_public(directory / name, MAX_CARD_BYTES) for name in ("cert.pem", "ca.pem")]
        content = b"".join([*chain, CARD_BEGIN, b"\n", base64.encodebytes(local.card.to_json()), CARD_END, b"\n"])
    try:
        write_public(out, content)
    except PrivateFileError as error:
        raise TrustError(str(error)) from None
