"""Throw-away certificate authorities, servers and clients for TLS tests."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)


class Authority:
    """A CA whose files lie in `directory`."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self.directory = directory
        self._key = generate_private_key(SECP256R1())
        self._name = _name(name)
        certificate = self._sign(self._name, self._key, is_ca=True)
        self.cafile = directory / f"{name}.pem"
        self.cafile.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, uri: str | None = None) -> tuple[Path, Path]:
        """Files of a certificate for `name` (and `uri` as subject alternative name) and its key."""
        key = generate_private_key(SECP256R1())
        certificate = self._sign(_name(name), key, is_ca=False, uri=uri)
        certfile, keyfile = self.directory / f"{name}.pem", self.directory / f"{name}.key"
        certfile.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        keyfile.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        keyfile.chmod(0o600)
        return certfile, keyfile

    def client(self, name: str | None = None) -> ssl.SSLContext:
        """A client's context, with a certificate for `name` if given."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(self.cafile)
        if name is not None:
            context.load_cert_chain(*self.issue(name))
        return context

    def _sign(
        self, name: x509.Name, key: EllipticCurvePrivateKey, *, is_ca: bool, uri: str | None = None
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + _DAY)
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        )
        if uri is not None:
            names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri)])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self._key, SHA256())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
