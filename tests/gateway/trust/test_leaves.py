"""TLS certificates of identities are renewed in time by their own domain, with the same key, and links show them."""

from __future__ import annotations

import ssl
import time
from pathlib import Path

import pytest
from cryptography import x509

from gateway.client.tls import LinkTls
from gateway.files import stamp
from gateway.trust.domains import LocalIdentity, TrustDomain
from gateway.trust.errors import TrustError
from gateway.trust.leaves import DAY_S, renew_leaf
from gateway.trust.live_overlay import LiveOverlay
from gateway.trust.overlay_file import load_overlay
from keys.identity import public_key_of
from tests.support.parties import NOW, Parties


def domain(world: Parties, name: str = "party1") -> TrustDomain:
    return TrustDomain.load(world.directory / name)


def test_only_when_it_is_due_and_the_key_stays(world: Parties) -> None:
    before = world.local("r1")
    shown = before.cert.read_bytes()
    assert not renew_leaf(before.directory, domain(world), NOW + 700 * DAY_S).is_new
    assert before.cert.read_bytes() == shown
    leaf = renew_leaf(before.directory, domain(world), NOW + 766 * DAY_S, 400)
    assert (leaf.is_new, leaf.name) == (True, "r1")
    after = world.local("r1")
    assert after.identity.public_bytes == before.identity.public_bytes
    assert after.card == before.card
    new = x509.load_pem_x509_certificate(after.cert.read_bytes())
    old = x509.load_pem_x509_certificate(shown)
    assert new.not_valid_after_utc.timestamp() == leaf.ends_s == pytest.approx(NOW + 1166 * DAY_S, abs=DAY_S)
    kinds = (x509.SubjectAlternativeName, x509.ExtendedKeyUsage, x509.KeyUsage, x509.BasicConstraints)
    for kind in kinds:
        assert new.extensions.get_extension_for_class(kind) == old.extensions.get_extension_for_class(kind)
    new.verify_directly_issued_by(x509.load_pem_x509_certificate(domain(world).ca_pem))


def test_only_the_domain_that_issued_it_and_no_longer_than_its_authority(world: Parties) -> None:
    due = NOW + 800 * DAY_S
    with pytest.raises(TrustError, match=r"was issued by party1, not by .*party2"):
        renew_leaf(world.directory / "r1", domain(world, "party2"), due)
    with pytest.raises(TrustError, match="renew for ever"):
        renew_leaf(world.directory / "r1", domain(world), due, 30, 60)
    ends = x509.load_pem_x509_certificate(domain(world).ca_pem).not_valid_after_utc.timestamp()
    assert renew_leaf(world.directory / "r1", domain(world), ends - 100 * DAY_S).ends_s <= ends
    with pytest.raises(TrustError, match="its authority has 59 days left and can renew nothing"):
        renew_leaf(world.directory / "r1", domain(world), ends - 59.5 * DAY_S)


def _served(server: LinkTls, client: LinkTls) -> bytes:
    """The certificate that the server shows in a handshake."""
    ends = [(ssl.MemoryBIO(), ssl.MemoryBIO()) for _ in range(2)]
    one = server.server.wrap_bio(*ends[0], server_side=True)
    other = client.client.wrap_bio(*ends[1])
    done: set[int] = set()
    for _ in range(10):
        for place, each in enumerate((other, one)):
            try:
                each.do_handshake()
                done.add(place)
            except ssl.SSLWantReadError:
                pass
        ends[0][0].write(ends[1][1].read())
        ends[1][0].write(ends[0][1].read())
    assert len(done) == 2
    found = other.getpeercert(binary_form=True)
    assert found is not None
    return found


def test_a_running_member_shows_the_renewed_certificate_and_no_other(tmp_path: Path) -> None:
    world = Parties(tmp_path, time.time())
    signed = world.sign().overlay
    local = world.local("r1")
    tls = {
        name: LinkTls(name, world.local(name).cert, world.local(name).key_path, signed.members) for name in ("r1", "g1")
    }
    live = LiveOverlay(world.out, local, tls["r1"], load_overlay(world.out, int(time.time() * 1000)), stamp(world.out))
    before = _served(tls["r1"], tls["g1"])
    live.changed_content()
    assert _served(tls["r1"], tls["g1"]) == before
    assert renew_leaf(local.directory, domain(world), time.time(), 3000, 2900).is_new
    assert _served(tls["r1"], tls["g1"]) == before
    live.changed_content()
    renewed = _served(tls["r1"], tls["g1"])
    assert renewed != before
    assert public_key_of(renewed) == public_key_of(before)

    stranger = LocalIdentity.load(world.directory / "r2").cert.read_bytes()
    local.cert.write_bytes(stranger)
    live.changed_content()
    assert _served(tls["r1"], tls["g1"]) == renewed
    local.cert.write_text("no certificate")
    live.changed_content()
    assert _served(tls["r1"], tls["g1"]) == renewed
