"""TLS certificates for listeners of devices, and for devices themselves, by an authority of the trust domain.

Members of an overlay have Ed25519 keys, which microcontrollers do not know. So a trust domain has a second authority,
made at the first use, with keys on the curve P-256, which every TLS stack of devices knows:
    devices.pem, devices.key    the authority, in the trust domain
    key.pem, cert.pem, ca.pem   of one listener or client, in a directory of its own
The authority issues nothing for links of members: those trust `ca.pem` of the domain alone.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gateway.base import PrivateFileError, private_directory, read_private, write_private, write_public
from gateway.trust.domains import MAX_CARD_BYTES, TrustDomain, read_public
from gateway.trust.errors import TrustError

LISTENER, CLIENT = "listener", "client"
USAGES = {LISTENER: ExtendedKeyUsageOID.SERVER_AUTH, CLIENT: ExtendedKeyUsageOID.CLIENT_AUTH}
AUTHORITY_DAYS = 20 * 365
LEAF_DAYS = 825
"""The longest life that common TLS stacks accept of a server's certificate."""
COMMON_NAME_CHARACTERS = 64
"""Characters of a common name (X.520)."""
EARLY_S = 86_400
"""Seconds before the issue from which a certificate counts: clocks of devices are behind."""


def issue(domain: TrustDomain, name: str, kind: str, hosts: Sequence[str], out: Path, now: float) -> Path:
    """Makes key and certificate of a listener at `hosts` or a client `name`; returns the certificate's path.

    Raises TrustError for an invalid name or host, or when `out` holds a key already.
    """
    if not 0 < len(name) <= COMMON_NAME_CHARACTERS or not name.isprintable():
        raise TrustError(f"--name {name!r}: give 1 to {COMMON_NAME_CHARACTERS} printable characters")
    if kind == LISTENER and not hosts:
        raise TrustError("a listener's certificate names its hosts; give --host, as devices name the broker")
    if kind == CLIENT and hosts:
        raise TrustError("a client's certificate names no host; leave --host out")
    if (out / "key.pem").exists():
        raise TrustError(f"{out}: holds a key already; take another --out, or renew it with `veilmq trust renew`")
    key = generate_private_key(SECP256R1())
    try:
        authority, authority_pem, signing = _authority(domain, now)
        leaf = _leaf(authority, signing, key, name, kind, _names(hosts), now, LEAF_DAYS)
        private_directory(out)
        write_public(out / "ca.pem", authority_pem)
        write_public(out / "cert.pem", leaf + authority_pem)
        write_private(out / "key.pem", _pem(key))
    except PrivateFileError as error:
        raise TrustError(str(error)) from None
    return out / "cert.pem"


def is_of_device(directory: Path) -> bool:
    """Returns True if the directory holds a certificate of this kind: an identity of a member has a card."""
    return (directory / "cert.pem").exists() and not (directory / "card.json").exists()


def renew(directory: Path, domain: TrustDomain, now: float, valid_days: int, before_days: int) -> tuple[bool, float]:
    """Replaces the certificate if fewer than `before_days` are left; same key, names and use.

    Returns True if a new one was issued, and the end (UNIX, seconds) of the present one. Raises TrustError.
    """
    if valid_days <= before_days:
        raise TrustError(f"--days {valid_days} is no longer than --before {before_days}: it would renew for ever")
    path = directory / "cert.pem"
    try:
        old = x509.load_pem_x509_certificate(read_public(path, MAX_CARD_BYTES))
        key = load_pem_private_key(read_private(directory / "key.pem"), None)
        authority, authority_pem, signing = _authority(domain, now)
        old.verify_directly_issued_by(authority)
    except PrivateFileError as error:
        raise TrustError(str(error)) from None
    except Exception as error:
        if isinstance(error, TrustError):
            raise
        raise TrustError(f"{directory}: was not issued by {domain.directory} for devices; name that domain") from None
    end_s = old.not_valid_after_utc.timestamp()
    if end_s - now > before_days * 86_400:
        return False, end_s
    name = str(old.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
    usage = old.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    kind = next(kind for kind, oid in USAGES.items() if oid in usage)
    try:
        names = list(old.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        names = []
    assert isinstance(key, EllipticCurvePrivateKey)
    leaf = _leaf(authority, signing, key, name, kind, names, now, valid_days)
    try:
        write_public(path, leaf + authority_pem)
    except PrivateFileError as error:
        raise TrustError(str(error)) from None
    return True, x509.load_pem_x509_certificate(leaf).not_valid_after_utc.timestamp()


def _authority(domain: TrustDomain, now: float) -> tuple[x509.Certificate, bytes, EllipticCurvePrivateKey]:
    """Returns the authority for devices of a trust domain, made at its first use. Raises PrivateFileError."""
    cert, key = domain.directory / "devices.pem", domain.directory / "devices.key"
    if not key.exists():
        made = generate_private_key(SECP256R1())
        subject = x509.Name(
            [x509.NameAttribute(NameOID.COMMON_NAME, f"{domain.name} devices"[:COMMON_NAME_CHARACTERS])]
        )
        start = datetime.datetime.fromtimestamp(now - EARLY_S, datetime.UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject).issuer_name(subject).public_key(made.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(start).not_valid_after(start + datetime.timedelta(days=AUTHORITY_DAYS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(made.public_key()), critical=False)
            .sign(made, SHA256())
        )  # fmt: skip
        write_public(cert, certificate.public_bytes(Encoding.PEM))
        write_private(key, _pem(made))
    signing = load_pem_private_key(read_private(key), None)
    assert isinstance(signing, EllipticCurvePrivateKey)
    pem = read_public(cert, MAX_CARD_BYTES)
    return x509.load_pem_x509_certificate(pem), pem, signing


def _leaf(
    authority: x509.Certificate,
    signing: EllipticCurvePrivateKey,
    key: EllipticCurvePrivateKey,
    name: str,
    kind: str,
    names: Sequence[x509.GeneralName],
    now: float,
    days: int,
) -> bytes:
    """Returns a certificate in PEM; it does not outlive the authority."""
    start = datetime.datetime.fromtimestamp(now - EARLY_S, datetime.UTC)
    end = datetime.datetime.fromtimestamp(now, datetime.UTC) + datetime.timedelta(days=days)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(authority.subject).public_key(key.public_key()).serial_number(x509.random_serial_number())
        .not_valid_before(start).not_valid_after(min(end, authority.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([USAGES[kind]]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False)
    )  # fmt: skip
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(signing, SHA256()).public_bytes(Encoding.PEM)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates, key_cert_sign=signs_certificates, crl_sign=signs_certificates,
        content_commitment=False, key_encipherment=False, data_encipherment=False, key_agreement=False,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _names(hosts: Sequence[str]) -> list[x509.GeneralName]:
    """Returns hosts as names of a certificate. Raises TrustError."""
    found: list[x509.GeneralName] = []
    for host in hosts:
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            if not host.isascii() or any(c.isspace() or c in ":/" for c in host) or not host:
                raise TrustError(f"--host {host!r}: is no host name or IP address; leave port and scheme out") from None
            found.append(x509.DNSName(host))
    return found


def _pem(key: EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
