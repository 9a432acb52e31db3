"""Identities: Ed25519 key pairs, overlay certificates, and X.509 for TLS (docs/protocol.md §2.1).

An overlay certificate is a frame signed by the overlay's owner:

    opening(3: version, kind 6, flag bit 0: hybrid)  role(1)  name  public_key(32)
    agreement_key(32, or 1,216 if hybrid)  trust domain  region(4)  not_after_ms(8)
    signature(64), domain "veilmq/1 certificate"

A certificate says who a party is; the owner's policy says which rights it has (`grants`). The keys to which boxes are
sealed (`sealedbox`) are derived from the Ed25519 key, so that an identity stays a single secret of 32 bytes.

Every signature of the overlay is over `domain ‖ 0x00 ‖ data`, so that none can be passed off as one of
another kind. The same key pair serves TLS. In TLS 1.2 a peer chooses the first 32 bytes of what a server
signs: use TLS 1.3 only, whose signatures start with a fixed text.

An identity whose key stands in a token (`Signer`) has a second key pair, its *working key*, for TLS and for the keys to
which boxes are sealed. Its X.509 certificate shows the working key, and an alternative name of it carries the
identity's signature over that key (docs/protocol.md §2.1).

Not here: files, TLS contexts (`gateway.client.tls`), passwords, revocation lists.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any, Protocol

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from nacl.bindings import crypto_sign_open
from nacl.exceptions import BadSignatureError

from keys import frames
from keys.errors import BadFrame, BadSignature, Expired, KeysError, OurFault
from keys.sealedbox import AGREEMENT_KEY_BYTES, HYBRID_KEY_BYTES, BoxKey, check_receiver, is_hybrid, seal_box

PARTY_ID_BYTES = 16
PUBLIC_KEY_BYTES = 32
SIGNATURE_BYTES = 64
PUBLIC_KEYS_KEPT = 4096  # parsed keys of peers; bounds memory when strangers send certificates
CERTIFICATE_DOMAIN = "veilmq/1 certificate"
FLAG_HYBRID = 0x01  # of a certificate: its key for boxes is a hybrid one
CLOCK_SKEW_S = 3600  # X.509 certificates are valid this long before they were made
CA_DAYS = 3650
DAY_S = 86_400
WORKING_KEY_DOMAIN = "veilmq/1 tls key"
WORKING_KEY_URI = "veilmq-key:"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Signer(Protocol):
    """A private Ed25519 key of which only signatures leave its place, such as a token of PKCS#11."""

    @property
    def public_bytes(self) -> bytes:
        """The 32-byte public key."""

    def sign(self, data: bytes, /) -> bytes:
        """Returns the 64-byte signature over `data` (RFC 8032 §5.1.6)."""


class Identity:
    """A party's Ed25519 key pair. The private key shows in no repr and leaves only by `private_bytes`."""

    __slots__ = ("_derived", "_private", "_sign", "party_id", "public_bytes")
    _sign: Callable[[bytes], bytes]

    def __init__(self, private: Ed25519PrivateKey | None, signer: Signer | None = None) -> None:
        """`signer`: the key that signs, if it stands elsewhere; `private` is then the working key, or None for a party
        that only signs, such as an owner.
        """
        if signer is None:
            assert private is not None
            self._sign, self.public_bytes = private.sign, private.public_key().public_bytes_raw()
        else:
            self._sign, self.public_bytes = signer.sign, signer.public_bytes
        self._private = private
        self.party_id: bytes = party_id_of(self.public_bytes)
        self._derived: BoxKey | None = None

    @property
    def working_bytes(self) -> bytes:
        """The 32-byte public key that TLS shows: `public_bytes`, or the working key's beside a `Signer`."""
        return self._working().public_key().public_bytes_raw()

    @property
    def agreement_bytes(self) -> bytes:
        """The classical public key for boxes to this party: X25519, 32 bytes."""
        return self._box_key().agreement_bytes

    @property
    def hybrid_bytes(self) -> bytes:
        """The hybrid public key for boxes to this party: ML-KEM-768 and X25519, 1,216 bytes."""
        return self._box_key().hybrid_bytes

    def _box_key(self) -> BoxKey:
        """Returns the key pair for boxes, derived at the first use: most keys only sign. Each part has a derivation of
        its own, so that neither tells about the other.
        """
        if self._derived is None:
            secret = self.private_bytes()
            agreement = HKDFExpand(hashes.SHA256(), 32, b"veilmq/1 agreement").derive(secret)
            seed = HKDFExpand(hashes.SHA256(), 64, b"veilmq/1 encapsulation").derive(secret)
            self._derived = BoxKey(agreement, seed)
        return self._derived

    @classmethod
    def generate(cls, random: bytes) -> Identity:
        """Returns a new identity from 32 uniformly random secret bytes."""
        return cls.from_private_bytes(random)

    @classmethod
    def from_private_bytes(cls, private: bytes) -> Identity:
        """Returns the identity of a 32-byte Ed25519 private key (RFC 8032 §5.1.5). Raises `OurFault` for other
        sizes.
        """
        if len(private) != 32:
            raise OurFault(f"an Ed25519 private key has 32 bytes, not {len(private)}")
        return cls(Ed25519PrivateKey.from_private_bytes(private))

    def private_bytes(self) -> bytes:
        """Returns the 32 secret bytes, to be stored: those of the working key beside a `Signer`."""
        return self._working().private_bytes_raw()

    def private_pem(self) -> bytes:
        """Returns the private key of `private_bytes` as unencrypted PKCS #8 PEM, as TLS libraries load it."""
        return self._working().private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    def sign(self, domain: str, data: bytes) -> bytes:
        """Returns the 64-byte signature over `domain ‖ 0x00 ‖ data`."""
        return self._sign(_with_domain(domain, data))

    def _working(self) -> Ed25519PrivateKey:
        if self._private is None:
            raise OurFault("this key stands in a token and only signs: nothing can be derived from it")
        return self._private

    def open_box(self, box: bytes, info: bytes) -> bytes:
        """Returns the content of a box sealed to `hybrid_bytes` or `agreement_bytes` (`sealedbox.seal_box`). Raises
        `BadFrame`, `BadContent`.
        """
        return self._box_key().open(box, info)

    def seal_box(self, receiver: bytes, plaintext: bytes, info: bytes) -> bytes:
        """Returns a box for a receiver (`sealedbox.seal_box`), by a party that draws nothing: the ephemeral key of a
        classical box follows from our key and from all that is sealed, so two different boxes never have one.
        """
        said = hashlib.sha256(info).digest() + hashlib.sha256(plaintext).digest()
        bound = hashlib.sha256(receiver + said).digest()
        drawn = HKDFExpand(hashes.SHA256(), 32, b"veilmq/1 own box" + bound).derive(self.private_bytes())
        return seal_box(receiver, plaintext, info, drawn)

    def __repr__(self) -> str:
        return f"Identity({self.party_id.hex()})"

    def __reduce__(self) -> str:
        raise OurFault("an identity is not pickled: send its public bytes, or store its private bytes")


@lru_cache(maxsize=PUBLIC_KEYS_KEPT)
def party_id_of(public_key: bytes) -> bytes:
    """Returns the first 16 bytes of SHA-256 of a public key, by which headers name a party."""
    return hashlib.sha256(public_key).digest()[:PARTY_ID_BYTES]


def verify(public_key: bytes, domain: str, data: bytes, signature: bytes) -> None:
    """Raises `BadSignature` unless the owner of `public_key` signed `data` in `domain`.

    libsodium verifies, in half the time of OpenSSL. It accepts a part of what OpenSSL accepts: S below the group's
    order, the equation without the cofactor, and no key or point that is of small order or not canonical.
    """
    if len(public_key) != PUBLIC_KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        raise BadSignature("a public key has 32 bytes, and a signature 64")
    try:
        crypto_sign_open(signature + _with_domain(domain, data), public_key)
    except BadSignatureError:
        raise BadSignature(f"a signature ({domain}) does not verify") from None


@lru_cache(maxsize=PUBLIC_KEYS_KEPT)
def _parsed(public_key: bytes) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(public_key)


def _with_domain(domain: str, data: bytes) -> bytes:
    return domain.encode("ascii") + b"\0" + data


# ------------------------------------------------------------------------------------ overlay certificates


class Role(StrEnum):
    """The roles a party may have in the overlay."""

    REPLICA = "replica"
    GATEWAY = "gateway"
    INGEST = "ingest"
    OWNER = "owner"
    KEY_SERVER = "keyserver"
    ENTITY = "entity"
    """A party that is traced, or tracks: certified by a trust domain, no member of any overlay."""
    HOSTED = "hosted"
    """Another operator's MQTT 5 broker in the place of a replica. It has no key: the private half of the key in its
    certificate was thrown away, and it proves its identity as any web server does.
    """


CARRIERS = frozenset({Role.REPLICA, Role.HOSTED})
"""Roles that have a place in a region. They carry; nothing is published in their name."""
_ROLE_CODES = {
    Role.REPLICA: 1, Role.GATEWAY: 2, Role.INGEST: 3, Role.OWNER: 4, Role.KEY_SERVER: 5, Role.ENTITY: 6, Role.HOSTED: 7,
}  # fmt: skip
_ROLES = {code: role for role, code in _ROLE_CODES.items()}


@dataclass(frozen=True, slots=True)
class Certificate:
    """The owner's signed statement about a party.

    `name`, `domain` (its trust domain): 1 to 64 letters, digits, dots, dashes and underscores. `public_key`: 32 bytes,
    Ed25519. `agreement_key`: 1,216 bytes, hybrid, or 32, X25519 (`sealedbox`). `region`: the member's region, or the
    region of its replicas for a gateway or job; 0 for key servers, which are in none. `not_after_ms`: UNIX time.
    `encode` and `issue` raise `OurFault`, `decode` `BadFrame`.
    """

    name: str
    role: Role
    public_key: bytes
    agreement_key: bytes
    domain: str
    region: int
    not_after_ms: int
    signature: bytes = field(default=b"", repr=False)

    @classmethod
    def issue(
        cls,
        owner: Identity,
        *,
        name: str,
        role: Role,
        public_key: bytes,
        agreement_key: bytes,
        domain: str,
        region: int,
        not_after_ms: int,
    ) -> Certificate:
        """Returns a certificate signed by `owner`. Raises `OurFault` if a name or key is invalid."""
        bare = cls(name, Role(role), public_key, agreement_key, domain, region, not_after_ms)
        return replace(bare, signature=owner.sign(CERTIFICATE_DOMAIN, bare.signed_bytes()))

    @property
    def party_id(self) -> bytes:
        """The 16 bytes by which headers name this party."""
        return party_id_of(self.public_key)

    @property
    def is_hybrid(self) -> bool:
        """True if boxes to this party stay closed to whoever breaks X25519 alone."""
        return is_hybrid(self.agreement_key)

    def signed_bytes(self) -> bytes:
        """Returns the frame without its signature."""
        self._check(OurFault)
        flags = FLAG_HYBRID if self.is_hybrid else 0
        parts = [frames.opening(frames.Kind.CERTIFICATE, flags), bytes([_ROLE_CODES[self.role]])]
        parts += [frames.text(self.name), self.public_key, self.agreement_key, frames.text(self.domain)]
        parts += [frames.number(self.region, 4), frames.number(self.not_after_ms, 8)]
        return b"".join(parts)

    def encode(self) -> bytes:
        """Returns the frame. Raises `OurFault` if the certificate is not signed."""
        if len(self.signature) != SIGNATURE_BYTES:
            raise OurFault("a certificate is signed before it is sent")
        return self.signed_bytes() + self.signature

    @classmethod
    def decode(cls, data: bytes) -> Certificate:
        """Reads a frame; does not check its signature and its end. Raises `BadFrame`."""
        reader = frames.Reader(data)
        flags = reader.opening(frames.Kind.CERTIFICATE, FLAG_HYBRID)
        role = _ROLES.get(reader.number(1))
        if role is None:
            raise BadFrame("a certificate for an unknown role")
        certificate = cls(
            role=role,
            name=reader.text(),
            public_key=reader.take_bytes(PUBLIC_KEY_BYTES),
            agreement_key=reader.take_bytes(HYBRID_KEY_BYTES if flags else AGREEMENT_KEY_BYTES),
            domain=reader.text(),
            region=reader.number(4),
            not_after_ms=reader.number(8),
            signature=reader.take_bytes(SIGNATURE_BYTES),
        )
        reader.expect_end()
        certificate._check(BadFrame)
        return certificate

    def verify(self, owner_public: bytes, now_ms: int) -> None:
        """Raises `BadSignature` unless the owner signed this certificate, `Expired` after its end."""
        verify(owner_public, CERTIFICATE_DOMAIN, self.signed_bytes(), self.signature)
        self.check_time(now_ms)

    def check_time(self, now_ms: int) -> None:
        """Raises `Expired` after the certificate's end. Suffices for a certificate whose bytes were verified
        before.
        """
        if now_ms > self.not_after_ms:
            raise Expired(f"the certificate of {self.name} ended {(now_ms - self.not_after_ms) // 1000} s ago")

    def _check(self, error: type[KeysError]) -> None:
        for value, what in ((self.name, "name"), (self.domain, "trust domain")):
            if not _NAME.fullmatch(value):
                raise error(f"a {what} is 1 to 64 of A-Z a-z 0-9 . _ - and starts with a letter or digit")
        if len(self.public_key) != PUBLIC_KEY_BYTES:
            raise error(f"a public key has {PUBLIC_KEY_BYTES} bytes")
        try:
            check_receiver(self.agreement_key)
        except OurFault as fault:
            raise error(str(fault)) from None


def is_name(name: str) -> bool:
    """Returns True if a party may have this name."""
    return _NAME.fullmatch(name) is not None


# --------------------------------------------------------------------------------------------------- X.509


class _CertificateKey(Ed25519PrivateKey):
    """The key of an authority as the builder of certificates takes it: it signs, wherever it stands, and shows its
    public key.
    """

    def __init__(self, identity: Identity) -> None:
        self._identity = identity

    def public_key(self) -> Ed25519PublicKey:
        return Ed25519PublicKey.from_public_bytes(self._identity.public_bytes)

    def sign(self, data: Any) -> bytes:
        return self._identity._sign(bytes(data))

    def private_bytes(self, *_: object) -> bytes:
        raise OurFault("an authority's key signs, and does not leave its place")

    def private_bytes_raw(self) -> bytes:
        raise OurFault("an authority's key signs, and does not leave its place")

    def __copy__(self) -> _CertificateKey:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> _CertificateKey:
        return self


def make_ca(identity: Identity, domain: str, now: float) -> bytes:
    """Returns the self-signed X.509 certificate of a trust domain's authority, PEM. `now`: UNIX time in seconds."""
    if not _NAME.fullmatch(domain):
        raise OurFault("a trust domain is 1 to 64 of A-Z a-z 0-9 . _ -")
    name = _x509_name(f"VeilMQ {domain}"[:64], domain)
    builder = _builder(name, name, (identity.public_bytes, identity.public_bytes), now, CA_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
    return builder.sign(_CertificateKey(identity), None).public_bytes(serialization.Encoding.PEM)


def make_leaf(
    ca: Identity,
    ca_certificate: bytes,
    subject: bytes | Identity,
    name: str,
    domain: str,
    hosts: Sequence[str],
    now: float,
    days: int,
) -> bytes:
    """Returns an X.509 certificate for TLS server and client, PEM.

    `ca_certificate`: PEM of `make_ca(ca, ...)`. `subject`: the party's identity or its 32-byte public key.
    `hosts`: DNS names and IP addresses. The overlay name goes in as the URI `veilmq:NAME`. The certificate of an
    identity with a working key shows the working key, and carries the identity's signature over that key.
    Raises `OurFault` for an invalid name or host, or a `ca_certificate` of another key.
    """
    public = subject.working_bytes if isinstance(subject, Identity) else subject
    if not _NAME.fullmatch(name):
        raise OurFault("a name is 1 to 64 of A-Z a-z 0-9 . _ -")
    if days < 1:
        raise OurFault(f"a certificate lasts at least one day, not {days}")
    issuer = x509.load_pem_x509_certificate(ca_certificate)
    if _raw_public(issuer) != ca.public_bytes:
        raise OurFault("the authority's certificate is for another key: give the certificate of this authority")
    subject_name = _x509_name(name, domain)
    builder = _builder(subject_name, issuer.subject, (public, ca.public_bytes), now, days)
    uses = [x509.oid.ExtendedKeyUsageOID.SERVER_AUTH, x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]
    alternatives = [x509.UniformResourceIdentifier(f"veilmq:{name}"), *(_host(host) for host in hosts)]
    if isinstance(subject, Identity) and subject.public_bytes != public:
        signature = subject.sign(WORKING_KEY_DOMAIN, public + frames.number(int(now) + days * DAY_S, 8))
        vouched = f"{WORKING_KEY_URI}{(subject.public_bytes + signature).hex()}"
        alternatives.append(x509.UniformResourceIdentifier(vouched))
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_key_usage(signs_certificates=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
    builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return builder.sign(_CertificateKey(ca), None).public_bytes(serialization.Encoding.PEM)


def public_key_of(certificate_der: bytes) -> bytes:
    """Returns the 32-byte Ed25519 key of the identity whose X.509 certificate this is, in DER as TLS gives the peer's:
    the key that it shows, or the key that vouches for the shown one until the certificate's end. Raises `BadFrame`,
    and `BadSignature` if the identity did not vouch.
    """
    try:
        certificate = x509.load_der_x509_certificate(certificate_der)
        shown, vouched = _raw_public(certificate), _vouched(certificate)
    except ValueError:
        raise BadFrame("not an X.509 certificate of an Ed25519 key") from None
    if not vouched:
        return shown
    public, signature = vouched[:PUBLIC_KEY_BYTES], vouched[PUBLIC_KEY_BYTES:]
    end_s = int(certificate.not_valid_after_utc.timestamp())
    verify(public, WORKING_KEY_DOMAIN, shown + frames.number(end_s, 8), signature)
    return public


def _vouched(certificate: x509.Certificate) -> bytes:
    """Returns public key and signature of the identity that vouches for the shown key; nothing without one."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return b""
    for uri in names.get_values_for_type(x509.UniformResourceIdentifier):
        if uri.startswith(WORKING_KEY_URI):
            return bytes.fromhex(uri.removeprefix(WORKING_KEY_URI))
    return b""


def _raw_public(certificate: x509.Certificate) -> bytes:
    key = certificate.public_key()
    if not isinstance(key, Ed25519PublicKey):
        raise BadFrame("not an X.509 certificate of an Ed25519 key")
    return key.public_bytes_raw()


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if not host or not host.isascii() or not host.isprintable():
            raise OurFault(f"host {host!r} is neither an IP address nor an ASCII DNS name") from None
        return x509.DNSName(host)


def _x509_name(common_name: str, domain: str) -> x509.Name:
    oid = x509.oid.NameOID
    return x509.Name(
        [x509.NameAttribute(oid.ORGANIZATION_NAME, domain), x509.NameAttribute(oid.COMMON_NAME, common_name)]
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, keys: tuple[bytes, bytes], now: float, days: int
) -> x509.CertificateBuilder:
    public, issuer_public = keys
    start = datetime.fromtimestamp(int(now), UTC)
    key = _ed25519(public)
    # a serial number from what the certificate says: unique enough, and no randomness needed
    serial = hashlib.sha256(public + issuer_public + subject.public_bytes() + str(now).encode()).digest()[:19]
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(int.from_bytes(b"\1" + serial))
        .not_valid_before(start - timedelta(seconds=CLOCK_SKEW_S))
        .not_valid_after(start + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(_ed25519(issuer_public)), critical=False)
    )


def _ed25519(public: bytes) -> Ed25519PublicKey:
    try:
        return _parsed(public)
    except ValueError:
        raise OurFault("an Ed25519 public key has 32 bytes") from None


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
