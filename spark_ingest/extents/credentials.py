"""TLS between a spool and executors without a file of certificates: both ends have a single identity, and show it.

From its private key both derive the same certificate authority, which exists nowhere else, and issue themselves a
certificate for a fresh key. So each end knows that the other holds the identity to which the file of scope keys is
sealed, and no other peer gets as far as a request. (gRPC's TLS knows no Ed25519: the authority's key is on P-256.)

No clock is asked: the certificates last as long as the identity, and are never written to disk.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from keys.identity import Identity

HOST = "veilmq-extents"
"""The name in certificates: a host's own name proves nothing here, and pods have another one each time."""
_INFO = b"veilmq/1 extents"
_CURVE = ec.SECP256R1()
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""The order of the curve (SEC 2, 2.4.2)."""
_BEGIN, _END = datetime(2020, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)


class TlsPems(NamedTuple):
    """The PEM texts that gRPC takes. `key`: of the certificate; secret."""

    authority: bytes
    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "TlsPems(...)"


def tls_of(identity: Identity) -> TlsPems:
    """Returns TLS material for either end, with a new certificate at each call."""
    derived = HKDFExpand(hashes.SHA256(), 48, _INFO).derive(identity.private_bytes())
    authority = ec.derive_private_key(int.from_bytes(derived) % (_ORDER - 1) + 1, _CURVE)
    own = ec.generate_private_key(_CURVE)
    pem = serialization.Encoding.PEM
    return TlsPems(
        _issued(authority, authority).public_bytes(pem),
        _issued(authority, own).public_bytes(pem),
        own.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


def _issued(authority: ec.EllipticCurvePrivateKey, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    """Returns the authority's certificate, or a party's."""
    itself = key is authority
    issuer, name = (x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)]) for text in ("veilmq", HOST))
    uses = [x509.oid.ExtendedKeyUsageOID.SERVER_AUTH, x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = (
        x509.CertificateBuilder()
        .subject_name(issuer if itself else name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_BEGIN)
        .not_valid_after(_END)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False)
        .add_extension(x509.BasicConstraints(ca=itself, path_length=0 if itself else None), critical=True)
    )
    if not itself:
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
    return builder.sign(authority, hashes.SHA256())
