"""Certificates that both ends of an identity derive: one authority, a name, fresh keys, nothing in a repr."""

from __future__ import annotations

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from keys.identity import Identity
from spark_ingest.extents.credentials import HOST, tls_of


def test_both_ends_have_the_same_authority_and_others_another() -> None:
    one, other, stranger = (tls_of(Identity.from_private_bytes(bytes([seed]) * 32)) for seed in (1, 1, 2))
    authorities = [x509.load_pem_x509_certificate(pems.authority) for pems in (one, other, stranger)]
    keys = [each.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo) for each in authorities]
    assert keys[0] == keys[1] != keys[2]
    certificate = x509.load_pem_x509_certificate(other.certificate)
    certificate.verify_directly_issued_by(authorities[0])
    assert certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(
        x509.DNSName
    ) == [HOST]
    assert certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
    assert one.certificate != other.certificate
    assert one.key != other.key


def test_no_key_shows() -> None:
    pems = tls_of(Identity.from_private_bytes(bytes(range(32))))
    assert repr(pems) == "TlsPems(...)"
    authority = x509.load_pem_x509_certificate(pems.authority).public_key()
    assert isinstance(authority, ec.EllipticCurvePublicKey)
    assert authority.curve.name == "secp256r1"
