"""Certificates for listeners of devices and for devices: a handshake with each, renewal, and mistakes."""

from __future__ import annotations

import asyncio
import ssl
import time
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey

from gateway.trust.device_certificates import issue, renew
from gateway.trust.domains import TrustDomain
from gateway.trust.errors import TrustError
from tests.gateway.harness import Wire, serving

NOW = time.time()
DAY_S = 86_400


@pytest.fixture
def domain(tmp_path: Path) -> TrustDomain:
    return TrustDomain.create(tmp_path / "owner", "plant", NOW)


def context(authority: Path) -> ssl.SSLContext:
    """A device that checks all that a strict TLS stack checks."""
    made = ssl.create_default_context(cafile=authority)
    made.verify_flags |= ssl.VERIFY_X509_STRICT
    return made


def test_a_device_connects_by_tls_and_one_with_a_certificate_where_it_is_asked_for(
    domain: TrustDomain, tmp_path: Path
) -> None:
    issue(domain, "broker", "listener", ("127.0.0.1", "broker.example"), tmp_path / "tls", NOW)
    issue(domain, "pump-7", "client", (), tmp_path / "pump-7", NOW)
    files = {"certfile": str(tmp_path / "tls/cert.pem"), "keyfile": str(tmp_path / "tls/key.pem")}
    asks = {"require_client_certificate": True, "cafile": str(tmp_path / "owner/devices.pem")}
    listeners = {
        "default": {"bind": "127.0.0.1:0", **files}, "strict": {"bind": "127.0.0.1:0", **files, **asks},
    }  # fmt: skip

    async def check() -> None:
        async with serving({"listeners": listeners}) as broker:
            device = context(tmp_path / "tls/ca.pem")
            wire = await Wire.connect(broker, "a", context=device)
            assert wire.connack is not None
            assert wire.connack.code == 0
            with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)):
                await Wire.connect(broker, "b", listener="strict", context=device)
            device.load_cert_chain(tmp_path / "pump-7/cert.pem", tmp_path / "pump-7/key.pem")
            wire = await Wire.connect(broker, "c", listener="strict", context=device)
            assert wire.connack is not None
            assert wire.connack.code == 0

    asyncio.run(check())


def test_keys_are_of_the_kind_that_devices_know_and_links_of_members_trust_none_of_it(
    domain: TrustDomain, tmp_path: Path
) -> None:
    path = issue(domain, "broker", "listener", ("a.example",), tmp_path / "tls", NOW)
    leaf, authority = x509.load_pem_x509_certificates(path.read_bytes())
    for each in (leaf, authority):
        key = each.public_key()
        assert isinstance(key, EllipticCurvePublicKey)
        assert isinstance(key.curve, SECP256R1)
    assert (tmp_path / "tls/key.pem").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "owner/devices.key").stat().st_mode & 0o777 == 0o600
    members = x509.load_pem_x509_certificate((tmp_path / "owner/ca.pem").read_bytes())
    with pytest.raises((ValueError, TypeError)):
        authority.verify_directly_issued_by(members)


def test_a_certificate_is_renewed_when_few_days_are_left_with_key_names_and_use(
    domain: TrustDomain, tmp_path: Path, veilmq: Any
) -> None:
    path = issue(domain, "broker", "listener", ("a.example", "192.0.2.7"), tmp_path / "tls", NOW)
    before = path.read_bytes()
    assert renew(tmp_path / "tls", domain, NOW, 825, 60)[0] is False
    assert path.read_bytes() == before
    is_new, end_s = renew(tmp_path / "tls", domain, NOW + 800 * DAY_S, 825, 60)
    assert (is_new, round((end_s - NOW) / DAY_S)) == (True, 1625)
    old, new = (x509.load_pem_x509_certificate(each) for each in (before, path.read_bytes()))
    assert old.public_key() == new.public_key()
    for kind in (x509.SubjectAlternativeName, x509.ExtendedKeyUsage):
        assert old.extensions.get_extension_for_class(kind) == new.extensions.get_extension_for_class(kind)
    status, out, _ = veilmq("trust", "renew", tmp_path / "tls", "--domain", tmp_path / "owner")
    assert (status, "nothing to do" in out) == (0, True)


def test_the_command_makes_both_kinds(domain: TrustDomain, tmp_path: Path, veilmq: Any) -> None:
    owner = tmp_path / "owner"
    arguments = ("trust", "issue", owner, "--name", "broker", "--role", "listener", "--out", tmp_path / "tls")
    status, _, error = veilmq(*arguments)
    assert (status, "give --host" in error) == (2, True)
    status, out, _ = veilmq(*arguments, "--host", "localhost")
    assert (status, f"trusts {tmp_path / 'tls' / 'ca.pem'}" in out) == (0, True)
    assert veilmq(*arguments, "--host", "localhost")[0] == 2, "a key is never overwritten"
    client = ("trust", "issue", owner, "--name", "pump", "--role", "client", "--out", tmp_path / "pump")
    assert veilmq(*client)[0] == 0


@pytest.mark.parametrize(
    ("name", "kind", "hosts", "said"),
    [
        ("", "client", (), "1 to 64 printable"),
        ("x" * 65, "client", (), "1 to 64 printable"),
        ("b", "listener", ("mqtts://a:8883",), "leave port and scheme out"),
        ("b", "client", ("a",), "names no host"),
    ],
)
def test_mistakes_make_nothing(
    domain: TrustDomain, tmp_path: Path, name: str, kind: str, hosts: tuple[str, ...], said: str
) -> None:
    with pytest.raises(TrustError, match=said):
        issue(domain, name, kind, hosts, tmp_path / "out", NOW)
    assert not (tmp_path / "out").exists()


def test_another_domain_renews_nothing(domain: TrustDomain, tmp_path: Path) -> None:
    path = issue(domain, "broker", "listener", ("a.example",), tmp_path / "tls", NOW)
    before = path.read_bytes()
    other = TrustDomain.create(tmp_path / "other", "elsewhere", NOW)
    with pytest.raises(TrustError, match="was not issued by"):
        renew(tmp_path / "tls", other, NOW + 800 * DAY_S, 825, 60)
    assert path.read_bytes() == before
